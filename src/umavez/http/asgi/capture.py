"""One run of an ASGI app under a key: its body is handed in, its answer held back until the outcome is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from umavez._async.attempt import AsyncAttempt
from umavez.engine.current import CURRENT
from umavez.http._async import record
from umavez.http.asgi.background import hand_over
from umavez.http.asgi.message import App, Body, Receive, Scope, Send, send_answer
from umavez.http.contract.answer import Answer, NotFinal, lowered, no_store
from umavez.http.contract.body import Spool
from umavez.http.contract.exchange import Exchange, streams
from umavez.http.contract.handler import ANSWERED, SEEN, Keyed, Over
from umavez.http.contract.route import Contract


class Capture:
    """Feeds the app its body and collects what it answers. `started` and `answer` tell how far it came."""

    # Where most requests end with the value they begin with: not set for each of them.
    started = False
    answer: Answer | None = None
    _status = 0
    _chunks: bytes | bytearray = b""
    _passing = False
    _pieces: Iterator[bytes] | None = None
    _gate: asyncio.Future[None] | None = None

    def __init__(
        self,
        app: App,
        exchange: Exchange,
        contract: Contract,
        scope: Scope,
        body: Body,
        receive: Receive,
        send: Send,
        eager: bool,
    ) -> None:
        self._app = app
        self._exchange = exchange
        self._contract = contract
        self._scope = scope
        self._body: Body | None = body
        self._real_receive = receive
        self._real_send = send
        self._eager = eager
        self._headers: list[tuple[bytes, bytes]] = []

    def _prepared(self, keyed: Keyed) -> Scope:
        """The scope for the app. Server extensions go: an answer sent as a file name cannot be kept."""
        scope = self._scope
        if scope.get("extensions"):
            scope = {**scope, "extensions": {}}
        scope[SEEN] = keyed
        state = scope.get("state")
        if state is None:
            scope["state"] = {"umavez": keyed}
        else:
            state["umavez"] = keyed
        return scope

    async def _receive(self) -> Any:
        body = self._body
        if type(body) is bytes:
            self._body = None
            return {"type": "http.request", "body": body, "more_body": False}
        if body is not None:
            return self._piece(body)  # type: ignore[arg-type]  # what is not bytes is a Spool
        return await self._disconnected()

    def _piece(self, body: Spool) -> dict[str, Any]:
        if self._pieces is None:
            self._pieces = body.pieces()
        piece = next(self._pieces, None)
        if piece is None:
            self._body = None
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    async def _disconnected(self) -> Any:
        """Hides that the client left, which would make a framework cancel the work; a stream may know."""
        if not self._passing and self.answer is None:
            if self._gate is None:
                self._gate = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._gate)
        if self._passing:
            return await self._real_receive()
        return {"type": "http.disconnect"}

    def _gathered(self, chunk: bytes) -> bytes | bytearray:
        """What the app has answered so far. Appended to: many small pieces joined anew would cost their square."""
        chunks = self._chunks
        if not chunks:
            self._chunks = chunk
        elif type(chunks) is bytearray:
            chunks += chunk
        else:
            self._chunks = bytearray(chunks) + chunk
        return self._chunks

    def _open_gate(self) -> None:
        if self._gate is not None and not self._gate.done():
            self._gate.set_result(None)


class Run(Capture):
    """The app under a claim of its own. Called by the engine; gives ANSWERED once the outcome is recorded.

    The outcome is recorded when the answer is complete and before any of it goes out, so that work the app does
    after answering delays nobody. A stream is recorded before its first byte.
    """

    _attempt: AsyncAttempt

    async def __call__(self) -> Any:
        """Run the app. Raises Over where it has answered and nothing was recorded, or what the app raises."""
        self.started = True
        attempt: Any = CURRENT.get()  # the engine calls this inside an attempt
        self._attempt = attempt
        if self._eager:
            await hand_over()
        try:
            await self._app(self._prepared(Keyed(attempt)), self._receive, self._send)
        finally:
            self._open_gate()
        if self.answer is None and not self._passing:
            raise RuntimeError("The app returned without a complete response; its outcome is not known.")
        if not attempt.done:
            raise Over
        return ANSWERED

    async def _send(self, message: Any) -> None:
        if self._passing:
            return await self._real_send(message)
        if self.answer is not None:
            return None  # answered already, as where the claim was lost before a stream began
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = headers = lowered(message.get("headers", ()))
            if streams(self._contract, headers):
                await self._pass_on()
            return None
        chunks = self._gathered(message.get("body", b""))
        if not message.get("more_body"):
            return await self._finish(Answer(self._status, self._headers, bytes(chunks)))
        if len(chunks) > self._contract.max_response:
            await self._pass_on()
        return None

    async def _finish(self, answer: Answer) -> None:
        """Record the outcome, then let the answer go."""
        told = await record(self._attempt, self._exchange, self._contract, answer, whole=True)
        self.answer = answer
        self._open_gate()
        await send_answer(self._real_send, told)

    async def _pass_on(self) -> None:
        """Let the answer go as it comes. First recorded: a stream cut off halfway must not run again."""
        answer = Answer(self._status, self._headers, b"")
        told = await record(self._attempt, self._exchange, self._contract, answer, whole=False)
        if told.status != answer.status:
            self.answer = told
            self._open_gate()
            return await send_answer(self._real_send, told)
        self._passing = True
        self._open_gate()
        await self._real_send({"type": "http.response.start", "status": told.status, "headers": told.headers})
        if self._chunks:
            await self._real_send({"type": "http.response.body", "body": bytes(self._chunks), "more_body": True})
        return None


class JoinedRun(Capture):
    """The app inside a transaction that the middleware ends. The whole answer waits for the commit."""

    async def __call__(self, attempt: AsyncAttempt, connection: Any) -> list[Any]:
        """Run the app; returns what to keep. Raises Over for an answer that is no outcome, to roll back."""
        self.started = True
        try:
            await self._app(self._prepared(Keyed(attempt, connection)), self._receive, self._collect)
        finally:
            self._open_gate()
        answer = self.answer
        if answer is None:
            raise RuntimeError("The app returned without a complete response; the transaction is rolled back.")
        self.answer = Answer(answer.status, no_store(answer.headers), answer.body)
        try:
            return self._exchange.value(self._contract, answer)
        except NotFinal as error:
            raise Over from error

    async def _collect(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = lowered(message.get("headers", ()))
            return
        chunks = self._gathered(message.get("body", b""))
        if not message.get("more_body"):
            self.answer = Answer(self._status, self._headers, bytes(chunks))
