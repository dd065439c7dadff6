"""Answers: counts what requests with a key are told, by the route and in a word.

A word is `first` or `replayed`, the name of a problem, or the status of any other refusal.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PROBLEM = "umavez.problem"
"""Where in a request's scope the name of the problem stands that it is answered with."""


class Answers:
    """ASGI middleware around the routes."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; one without a key is passed on as it is."""
        if scope["type"] != "http" or not any(name == b"idempotency-key" for name, _ in scope["headers"]):
            return await self.app(scope, receive, send)

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(scope, message)
            await send(message)

        return await self.app(scope, receive, told)

    def _count(self, scope: Scope, message: Message) -> None:
        # A stranger chooses the path, and the server its routes: what reached none of them is counted together.
        operation = getattr(scope.get("route"), "name", "other")
        scope["app"].state.carrier.counted.told_http(operation, _word(scope, message))


def _word(scope: Scope, message: Message) -> str:
    if PROBLEM in scope:
        return str(scope[PROBLEM])
    if Headers(raw=message.get("headers", [])).get("idempotent-replayed") == "true":
        return "replayed"
    return "first" if message["status"] < 400 else str(message["status"])
