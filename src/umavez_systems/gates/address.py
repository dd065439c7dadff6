"""Address: what a request asks for, refused where no route and no database could hold it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from umavez_systems.openapi import written_out
from umavez_systems.problems import Problem, unknown_method


class ReadableAddress:
    """Middleware that answers 400 to a path or query with the character NUL, for every route at once.

    PostgreSQL cannot take NUL in a text, SQLite ends some texts at it, and no name here has one. A path that ends in a
    line feed is 404: routes end with `$`, which matches before one, and would answer for an address that is not theirs.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http" and ("\0" in scope["path"] or scope["query_string"].find(b"%00") >= 0):
            problem = Problem(
                400, "endereco-invalido", "Endereço inválido", "O endereço não pode conter o caractere NUL (%00)."
            )
            await problem.response()(scope, receive, send)
            return
        if scope["type"] == "http" and scope["path"].endswith("\n"):
            problem = Problem(404, "nao-encontrado", "Não encontrado", "Não há nada neste endereço.")
            await problem.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)


class KnownMethods:
    """Middleware that answers 405 where an address stands in the document as it is, but not for this method.

    Such an address is that one alone: `/mailings/previa` is no mailing called previa.
    """

    def __init__(self, app: ASGIApp, document: Callable[[], dict[str, Any]]) -> None:
        self._app = app
        self._document = document
        self._known: dict[str, list[str]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http":
            # Read at the first request: until then routes may be added.
            self._known = self._known or written_out(self._document())
            known = self._known.get(scope["path"])
            if known is not None and scope["method"] not in known:
                return await unknown_method(known).response()(scope, receive, send)
        return await self._app(scope, receive, send)
