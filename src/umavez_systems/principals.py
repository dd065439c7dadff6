"""Principals: who is calling. API keys by setting; without any, everyone on loopback is 'local'."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from pydantic import SecretStr

from umavez import http as contract
from umavez.http import ApiKeys
from umavez_systems.problems import Problem

LOCAL = "local"
LONGEST_USUARIO = 180
"""With the principal's name it fits into the columns that say who did something."""


class Principals:
    """Who is calling, by API key; everybody is `local` where there are none."""

    def __init__(self, secrets: Mapping[str, SecretStr]) -> None:
        self._keys = ApiKeys({name: secret.get_secret_value() for name, secret in secrets.items()})

    def of(self, authorization: str | None) -> str:
        """The principal's name. Raises a 401 problem."""
        if not self._keys:
            return LOCAL
        name = self._keys.name_of(authorization)
        if name is None:
            problem = contract.Problem(contract.problems.UNAUTHENTICATED)
            problem.headers["WWW-Authenticate"] = 'Bearer realm="umavez"'
            raise problem
        return name


def acting(principal: str, usuario: str | None) -> str:
    """Who did something, as it is recorded: the principal, and whom it says it acts for. Raises a 422 problem.

    X-Usuario is the caller's word alone. The principal comes first and has no space in its name, so that nothing a
    caller sends can stand in its place.
    """
    if not usuario:
        return principal
    if len(usuario) > LONGEST_USUARIO:
        raise Problem(422, "dados-invalidos", "Dados inválidos", f"x-usuario: no máximo {LONGEST_USUARIO} caracteres.")
    return f"{principal} (em nome de {usuario})"


def scoped_key(principal: str, key: str) -> str:
    """The key as it stands in `idempotencia_key` columns, which are UNIQUE for everybody.

    The local principal's keys stand as they are (the seed's contract); a named principal's carry its name, so
    that two callers who choose the same key never meet. See docs/decisions/0008.
    """
    if principal == LOCAL:
        return key
    scoped = f"{principal}:{key}"
    return scoped if len(scoped) <= 255 else f"{principal}:#{sha256(key.encode()).hexdigest()}"
