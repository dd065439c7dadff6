"""Principals: whose keys these are. Two principals with the same key never meet."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from enum import Enum
from hashlib import sha256
from typing import Any

from umavez.core.key import MAX_LENGTH
from umavez.errors import ConfigurationError


class Anonymous(Enum):
    """The type of ANONYMOUS."""

    ANONYMOUS = "anonymous"


ANONYMOUS = Anonymous.ANONYMOUS
"""The explicit word for "whoever calls is the same to us". Anybody who knows a key is then given its answer."""

Principal = str | Anonymous | None
Resolver = Callable[[Any], Any]
"""From the shell's own request (ASGI scope, WSGI environ, Django request) to a Principal, or an awaitable of one.

None, or an empty text, says that nobody is identified: the request goes to the app unprotected, which is to answer 401.
"""


def resolver(principal: Resolver | Anonymous) -> Resolver:
    """The resolver to use. Raises ConfigurationError for anything but a callable or ANONYMOUS."""
    if principal is ANONYMOUS:
        return lambda _: ANONYMOUS
    if not callable(principal):
        raise ConfigurationError(
            "principal= must be a callable that says who is calling, or ANONYMOUS if that makes no difference."
        )
    return principal


class Scopes:
    """The scope texts of one service: its own name, a slash, and who is calling."""

    __slots__ = ("_prefix",)

    def __init__(self, scope: str) -> None:
        if "/" in scope:
            # Else service "a" with principal "b/c" and service "a/b" with principal "c" would share keys.
            raise ConfigurationError(
                f"scope={scope!r}: leave out the slash, which divides the service from its callers."
            )
        self._prefix = f"{scope}/"

    def of(self, principal: str | Anonymous) -> str:
        """The scope of one caller. Raises ConfigurationError for what is not a name."""
        if principal is ANONYMOUS:
            return self._prefix
        if type(principal) is not str or not principal:
            raise ConfigurationError(
                f"principal= gave {type(principal).__name__}; give a text, None (not identified) or ANONYMOUS."
            )
        text = self._prefix + principal
        if len(text) <= MAX_LENGTH and text.isprintable() and not principal.startswith("sha256 "):
            return text
        # Too long for a key, or with marks that some store cannot hold: by digest, which no name looks like.
        return f"{self._prefix}sha256 {sha256(principal.encode('utf-8', 'surrogatepass')).hexdigest()}"


def from_header(name: str) -> Resolver:
    """A resolver by a request header that a trusted proxy sets; for ASGI scopes and WSGI environs.

    Only where clients cannot set the header themselves: whoever can, can read every answer.
    """
    wanted = name.lower().encode("latin-1")
    variable = "HTTP_" + name.upper().replace("-", "_")

    def resolve(request: Any) -> Principal:
        if "headers" not in request:
            return request.get(variable) or None
        values = [value for field, value in request["headers"] if field == wanted]
        return values[0].decode("latin-1") or None if len(values) == 1 else None

    return resolve


class ApiKeys:
    """Callers by bearer secret. Knows the secrets by digest only, so that none stands in memory as text."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._digests = {name: sha256(secret.encode()).digest() for name, secret in secrets.items()}

    def __bool__(self) -> bool:
        return bool(self._digests)

    def name_of(self, authorization: str | None) -> str | None:
        """The name of whoever sent this Authorization field, or None. Every secret is compared, in constant time."""
        scheme, _, secret = (authorization or "").partition(" ")
        offered = sha256(secret.strip().encode("utf-8", "surrogatepass")).digest()
        found = [name for name, digest in self._digests.items() if hmac.compare_digest(digest, offered)]
        return found[0] if found and scheme.lower() == "bearer" else None
