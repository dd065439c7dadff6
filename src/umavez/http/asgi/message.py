"""ASGI messages: a request's body read whole or handed in again, an answer sent, the app asked for an entity."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any
from urllib.parse import unquote_to_bytes

from umavez.http.contract.answer import Answer, lowered
from umavez.http.contract.body import Spool
from umavez.http.contract.exchange import OF_THE_REQUEST
from umavez.http.contract.route import Contract

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]
Body = bytes | Spool


async def whole_body(contract: Contract, receive: Receive) -> Body | None:
    """The whole request body, or None when the client left before sending it: nothing has run then.

    Raises Problem (413) above the contract's limit.
    """
    message = await receive()
    if message["type"] == "http.disconnect":
        return None
    chunk: bytes = message.get("body", b"")
    if not message.get("more_body") and len(chunk) <= contract.max_request:
        return chunk
    spool = Spool(contract.max_request, contract.memory)
    spool.add(chunk)
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            spool.close()
            return None
        spool.add(message.get("body", b""))
    return spool


def body_source(body: Body, receive: Receive) -> Receive:
    """A `receive` that gives the body that was read already, then goes on with the server's."""
    pieces: Iterator[bytes] = iter([body]) if isinstance(body, bytes) else body.pieces()
    given = False

    async def source() -> Any:
        nonlocal given
        if given:
            return await receive()
        piece = next(pieces, None)
        given = piece is None
        return {"type": "http.request", "body": piece or b"", "more_body": not given}

    return source


async def send_answer(send: Send, answer: Answer) -> None:
    """Send a whole answer."""
    status, headers, body = answer
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def fetched(app: App, scope: Scope, place: str) -> Answer:
    """What the app answers to GET on `place`, asked with the caller's own credentials."""
    path, _, query = place.encode("latin-1").partition(b"?")
    asked = {
        **scope,
        "method": "GET",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path,
        "query_string": query,
        "headers": [pair for pair in scope["headers"] if pair[0] not in OF_THE_REQUEST],
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
