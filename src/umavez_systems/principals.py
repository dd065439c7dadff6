"""Principals: who is calling. API keys by setting; without any, everyone on loopback is 'local'."""

from __future__ import annotations

import hmac
from hashlib import sha256

from umavez_systems.problems import Problem

LOCAL = "local"


class Principals:
    """Knows the API keys by digest only, so that no secret stands in memory as text."""

    def __init__(self, secrets: dict[str, str]) -> None:
        self._digests = {name: sha256(secret.encode()).digest() for name, secret in secrets.items()}

    def of(self, authorization: str | None) -> str:
        """The principal's name. Raises a 401 problem; compares in constant time."""
        if not self._digests:
            return LOCAL
        scheme, _, secret = (authorization or "").partition(" ")
        offered = sha256(secret.strip().encode()).digest()
        found = [name for name, digest in self._digests.items() if hmac.compare_digest(digest, offered)]
        if scheme.lower() != "bearer" or not found:
            raise Problem(401, "nao-autenticado", "Não autenticado", "Envie Authorization: Bearer <chave de API>.")
        return found[0]


def scoped_key(principal: str, key: str) -> str:
    """The key as it stands in `idempotencia_key` columns, which are UNIQUE for everybody.

    The local principal's keys stand as they are (the seed's contract); a named principal's carry its name, so
    that two callers who choose the same key never meet. See docs/decisions/0008.
    """
    if principal == LOCAL:
        return key
    scoped = f"{principal}:{key}"
    return scoped if len(scoped) <= 255 else f"{principal}:#{sha256(key.encode()).hexdigest()}"
