"""Principals: whose keys these are. Two principals with the same key never meet."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import lru_cache
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

    __slots__ = ("_named", "_prefix")

    def __init__(self, scope: str) -> None:
        if "/" in scope:
            # Else service "a" with principal "b/c" and service "a/b" with principal "c" would share keys.
            raise ConfigurationError(
                f"scope={scope!r}: leave out the slash, which divides the service from its callers."
            )
        self._prefix = prefix = f"{scope}/"
        # Callers come back: what their scopes are called is made once, for a bounded number of them.
        self._named = lru_cache(maxsize=10_000)(lambda principal: _named(prefix, principal))

    def of(self, principal: str | Anonymous) -> str:
        """The scope of one caller. Raises ConfigurationError for what is not a name."""
        if type(principal) is str and principal:
            return self._named(principal)
        if principal is ANONYMOUS:
            return self._prefix
        raise ConfigurationError(
            f"principal= gave {type(principal).__name__}; give a text, None (not identified) or ANONYMOUS."
        )


def _named(prefix: str, principal: str) -> str:
    text = prefix + principal
    if len(text) <= MAX_LENGTH and text.isprintable() and not principal.startswith("sha256 "):
        return text
    # Too long for a key, or with marks that some store cannot hold: by digest, which no name looks like.
    return f"{prefix}sha256 {sha256(principal.encode('utf-8', 'surrogatepass')).hexdigest()}"


def from_header(name: str) -> Resolver:
    """A resolver by a request header that a trusted proxy sets; for ASGI scopes and WSGI environs.

    Only where clients cannot set the header themselves: whoever can, can read every answer.
    """
    wanted = name.lower().encode("latin-1")
    variable = "HTTP_" + name.upper().replace("-", "_")

    def resolve(request: Any) -> Principal:
        if "headers" not in request:
            return request.get(variable) or None
        headers = request["headers"]
        fields = dict(headers)
        if wanted not in fields or (len(fields) < len(headers) and [name for name, _ in headers].count(wanted) > 1):
            return None
        return fields[wanted].decode("latin-1") or None

    return resolve
