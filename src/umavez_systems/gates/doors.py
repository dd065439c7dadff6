"""Doors: who may come in where no API key is asked for.

Without keys, being on this machine is what lets a caller in. A page of another site, opened in a browser here, is on
this machine, too: it is known by the name it asks for (a name of its own that points here), by its Origin, and by what
the browser says about where it comes from. Where keys are set nothing of this is needed: no browser sends a key by
itself.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from umavez_systems.problems import Problem
from umavez_systems.settings import Settings

SAFE = ("GET", "HEAD", "OPTIONS")
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""Set by a proxy: the caller behind it may be anybody."""


class Doors:
    """ASGI middleware that holds the doors of a server without API keys. Works behind any runner."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self._open = bool(settings.principals)
        self._hosts = settings.hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request in, or answer with a problem."""
        if self._open or scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        try:
            self._check(scope)
        except Problem as problem:
            return await problem.response()(scope, receive, send)
        return await self.app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if not _local(scope.get("client")) or any(name in headers for name in FORWARDED):
            raise _closed("porta-fechada", "Sem chaves de API só esta máquina é atendida; defina UMAVEZ_API_KEYS.")
        hosts = headers.getlist("host")
        host = hosts[0].strip().lower() if len(hosts) == 1 else ""
        if _name_of(host) not in self._hosts:
            raise _closed(
                "host-desconhecido",
                "Sem chaves de API o servidor só atende em 127.0.0.1, localhost ou nos nomes de UMAVEZ_ALLOWED_HOSTS.",
                421,
            )
        if (scope["type"] == "websocket" or scope["method"] not in SAFE) and _foreign(headers, host):
            raise _closed("outra-origem", "A página que pediu isto é de outra origem; defina UMAVEZ_API_KEYS.")


def _local(client: Any) -> bool:
    """Whether a connection comes from this machine. What is not known does not."""
    try:
        return client is not None and _plain_address(client[0]).is_loopback
    except ValueError:
        return False


def _plain_address(text: str) -> Any:
    address = ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def _name_of(host: str) -> str:
    """The name in a Host header, without its port; empty when there is none."""
    try:
        return urlsplit(f"//{host}").hostname or "" if "@" not in host else ""
    except ValueError:
        return ""


def _foreign(headers: Headers, host: str) -> bool:
    """Whether a browser says that another site asks. Programs that are no browser say nothing."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return True
    origin = headers.get("origin")
    return origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}")


def _closed(kind: str, detail: str, status: int = 403) -> Problem:
    return Problem(status, kind, "Acesso recusado", detail)
