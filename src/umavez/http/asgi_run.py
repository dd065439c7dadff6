"""One run of an ASGI app under a key: its body is handed in, its answer held back until the outcome is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from umavez.aio_attempt import CURRENT, AsyncAttempt
from umavez.errors import ClaimLost, StoreError
from umavez.http.answer import Answer, NotFinal, lowered, no_store
from umavez.http.detached import hand_over
from umavez.http.exchange import Exchange, not_kept, streams, unfinished, unprotected
from umavez.http.keyed import Keyed, Over
from umavez.http.route import Contract
from umavez.http.spool import Spool


class _Capture:
    """Feeds the app its body and collects what it answers."""

    def __init__(
        self, app: Any, exchange: Exchange, contract: Contract, scope: Any, body: bytes | Spool, receive: Any
    ) -> None:
        self._app = app
        self._exchange = exchange
        self._contract = contract
        self._scope = scope
        self._pieces: Iterator[bytes] | None = None
        self._body: bytes | Spool | None = body
        self._real_receive = receive
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._chunks = b""
        self._gate: asyncio.Future[None] | None = None
        self._passing = False
        self.started = False
        self.answer: Answer | None = None

    def _prepared(self, keyed: Keyed) -> Any:
        """The scope for the app. Server extensions go: an answer sent as a file name cannot be kept."""
        scope = self._scope
        if scope.get("extensions"):
            scope = {**scope, "extensions": {}}
        scope["umavez"] = keyed
        state = scope.get("state")
        if state is None:
            scope["state"] = {"umavez": keyed}
        else:
            state["umavez"] = keyed
        return scope

    async def _receive(self) -> dict[str, Any]:
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

    async def _disconnected(self) -> dict[str, Any]:
        """Hides that the client left, which would make a framework cancel the work; a stream may know."""
        if not self._passing and self.answer is None:
            if self._gate is None:
                self._gate = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._gate)
        if self._passing:
            return await self._real_receive()  # type: ignore[no-any-return]  # the server's message
        return {"type": "http.disconnect"}

    def _open_gate(self) -> None:
        if self._gate is not None and not self._gate.done():
            self._gate.set_result(None)


class Run(_Capture):
    """The app under a claim of its own. Called by the engine; ends with Over once the outcome is recorded.

    The outcome is recorded when the answer is complete and before any of it goes out, so that work the app does
    after answering delays nobody. A stream is recorded before its first byte.
    """

    def __init__(
        self,
        app: Any,
        exchange: Exchange,
        contract: Contract,
        scope: Any,
        body: bytes | Spool,
        receive: Any,
        send: Any,
        *,
        eager: bool,
    ) -> None:
        super().__init__(app, exchange, contract, scope, body, receive)
        self._real_send = send
        self._eager = eager
        self._attempt: AsyncAttempt

    async def __call__(self) -> Any:
        """Run the app. Raises Over, or whatever the app raises before it has answered."""
        self.started = True
        self._attempt = attempt = CURRENT.get()  # type: ignore[assignment]  # the engine calls this inside an attempt
        if self._eager:
            await hand_over()
        try:
            await self._app(self._prepared(Keyed(attempt)), self._receive, self._send)
        finally:
            self._open_gate()
        if self.answer is None and not self._passing:
            raise RuntimeError("The app returned without a complete response; its outcome is not known.")
        raise Over

    async def _send(self, message: Any) -> None:
        if self._passing:
            return await self._real_send(message)  # type: ignore[no-any-return]  # None
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = lowered(message.get("headers", ()))
            if streams(self._contract, self._headers):
                await self._pass_on()
            return None
        chunk = message.get("body", b"")
        self._chunks = self._chunks + chunk if self._chunks else chunk
        if not message.get("more_body"):
            return await self._finish(Answer(self._status, self._headers, self._chunks))
        if len(self._chunks) > self._contract.max_response:
            await self._pass_on()
        return None

    async def _finish(self, answer: Answer) -> None:
        """Record the outcome, then let the answer go."""
        answer, self.answer = await recorded(self._attempt, self._exchange, self._contract, answer, whole=True), answer
        self._open_gate()
        await send_answer(self._real_send, answer)

    async def _pass_on(self) -> None:
        """Let the answer go as it comes. First recorded: a stream cut off halfway must not run again."""
        answer = await recorded(
            self._attempt, self._exchange, self._contract, Answer(self._status, self._headers, b""), whole=False
        )
        self._passing = True
        self._open_gate()
        start = {"type": "http.response.start", "status": answer.status, "headers": answer.headers}
        if answer.status != self._status:
            self._passing, self.answer = False, answer
            return await send_answer(self._real_send, answer)
        await self._real_send(start)
        if self._chunks:
            await self._real_send({"type": "http.response.body", "body": self._chunks, "more_body": True})
        return None


async def recorded(
    attempt: AsyncAttempt, exchange: Exchange, contract: Contract, answer: Answer, *, whole: bool
) -> Answer:
    """Record what `answer` means; returns what the client is told. Without `whole` the body is not kept."""
    try:
        if not contract.is_final(answer.status):
            await attempt.fail(unfinished(answer))
        elif whole:
            await attempt.succeed(exchange.value(contract, answer))
        else:
            await attempt.succeed(not_kept(answer, contract))
    except ClaimLost as lost:
        return exchange.refusal(lost)
    except StoreError:
        # It happened. Told 503 the client would try again; told the truth it has no reason to.
        return answer._replace(headers=[*no_store(answer.headers), unprotected(b"not-recorded")])
    return answer._replace(headers=no_store(answer.headers))


class JoinedRun(_Capture):
    """The app inside a transaction that the middleware ends. The whole answer waits for the commit."""

    async def __call__(self, attempt: AsyncAttempt, connection: Any) -> list[Any]:
        """Run the app; returns what to keep. Raises Over for an answer that is no outcome, to roll back."""
        self.started = True
        try:
            await self._app(self._prepared(Keyed(attempt, connection)), self._receive, self._collect)
        finally:
            self._open_gate()
        if self.answer is None:
            raise RuntimeError("The app returned without a complete response; the transaction is rolled back.")
        answer, self.answer = self.answer, self.answer._replace(headers=no_store(self.answer.headers))
        try:
            return self._exchange.value(self._contract, answer)
        except NotFinal as error:
            raise Over from error

    async def _collect(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = lowered(message.get("headers", ()))
            return
        self._chunks += message.get("body", b"")
        if not message.get("more_body"):
            self.answer = Answer(self._status, self._headers, self._chunks)


async def send_answer(send: Any, answer: Answer) -> None:
    """Send a whole answer."""
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})


def body_source(body: bytes | Spool, receive: Any) -> Any:
    """A `receive` that gives the body that was read already, then goes on with the server's."""
    pieces = iter([body]) if isinstance(body, bytes) else body.pieces()
    given = False

    async def source() -> Any:
        nonlocal given
        if given:
            return await receive()
        piece = next(pieces, None)
        given = piece is None
        return {"type": "http.request", "body": piece or b"", "more_body": not given}

    return source


async def fetched(app: Any, scope: Any, place: str) -> Answer:
    """What the app answers to GET on `place`, asked with the caller's own credentials."""
    path, _, query = place.partition("?")
    left_out = (b"content-length", b"content-type", b"idempotency-key", b"transfer-encoding")
    asked = {
        **scope,
        "method": "GET",
        "path": path,
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "headers": [pair for pair in scope["headers"] if pair[0] not in left_out],
        "extensions": {},
    }
    parts: list[Any] = []
    over = asyncio.get_running_loop().create_future()
    told = False

    async def receive() -> Any:
        nonlocal told
        if told:
            await over
            return {"type": "http.disconnect"}
        told = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        parts.append(message)

    try:
        await app(asked, receive, send)
    finally:
        over.set_result(None) if not over.done() else None
    body = b"".join(part.get("body", b"") for part in parts[1:])
    return Answer(parts[0]["status"], lowered(parts[0].get("headers", ())), body)
