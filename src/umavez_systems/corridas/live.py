"""Live: a WebSocket that tells a passenger's app when its token was used, expired or was cancelled.

Where API keys are set, the key comes with the request that opens the socket, and nothing is opened without it. The
first message says which passenger asks for which token: neither stands in the address, where logs would keep it. What
this process does is told at once; what another process did is seen at the next look.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from umavez import UmavezError
from umavez.tokens import TokenView
from umavez_systems.corridas.confirmations import digest_of
from umavez_systems.corridas.domain import iso
from umavez_systems.corridas.operations import Corridas
from umavez_systems.money import exact_json
from umavez_systems.problems import Problem

LOG = logging.getLogger("umavez.systems")
LOOK_SECONDS = 2.0
PATIENCE = 5.0
"""Seconds for the first message to come."""
LONGEST = 2_000
IDLE_TALK = 16
"""Messages beyond the first that are read past; who says more is left."""
PROTOCOL = "umavez.live"
KEY_PROTOCOL = "umavez.key."
"""A browser cannot send a header with a WebSocket: it offers the protocols `umavez.live` and this with the key."""
FINAL = ("used", "expired", "cancelled", "unknown")
router = APIRouter()


class Live:
    """Who waits for which token, in this process."""

    def __init__(self, corridas: Corridas, most: int, most_each: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._open: Counter[str] = Counter()
        self._most = most
        self._most_each = most_each
        corridas.confirmations.told = self._told

    @contextlib.contextmanager
    def place(self, principal: str) -> Iterator[None]:
        """A place among the open sockets. Raises a 503 problem when all are taken, or all of this principal."""
        if self._open.total() >= self._most or self._open[principal] >= self._most_each:
            problem = Problem(503, "ocupado", "Servidor ocupado", "Há conexões demais; tente de novo em instantes.")
            raise problem.retryable_after(5.0)
        self._open[principal] += 1
        try:
            yield
        finally:
            self._open[principal] -= 1
            if not self._open[principal]:
                del self._open[principal]

    def _told(self, digest: str) -> None:
        """Called in the thread of a use case. A loop that has ended has nobody to wake."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake, digest)

    def _wake(self, digest: str) -> None:
        for event in self._waiting.get(digest, ()):
            event.set()

    @contextlib.contextmanager
    def waiting(self, digest: str) -> Iterator[asyncio.Event]:
        """An event that is set when something happens to the token."""
        event = asyncio.Event()
        self._waiting[digest].add(event)
        try:
            yield event
        finally:
            self._waiting[digest].discard(event)
            if not self._waiting[digest]:
                del self._waiting[digest]


@router.websocket("/api/governance/ride/confirmation/live")
async def follow(socket: WebSocket) -> None:
    """Tell the token's state, now and when it changes; the socket closes after the last change."""
    live: Live = socket.app.state.live
    try:
        principal = socket.app.state.carrier.principals.of(_authorization(socket))
        with live.place(principal), contextlib.suppress(WebSocketDisconnect):
            await socket.accept(PROTOCOL if PROTOCOL in socket.scope["subprotocols"] else None)
            await _follow(socket, live, principal)
    except Problem as problem:
        # Only before the socket is open: a plain HTTP answer.
        await socket.send_denial_response(problem.response())


def _authorization(socket: WebSocket) -> str | None:
    """The request's Authorization, or the key among the protocols it offers, in base64url without padding."""
    for offered in socket.scope["subprotocols"]:
        if offered.startswith(KEY_PROTOCOL):
            text = offered.removeprefix(KEY_PROTOCOL)
            with contextlib.suppress(ValueError):
                return f"Bearer {base64.urlsafe_b64decode(text + '=' * (-len(text) % 4)).decode()}"
    return socket.headers.get("authorization")


async def _follow(socket: WebSocket, live: Live, principal: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            passenger, token = await _greeted(socket)
        gone = asyncio.create_task(_until_gone(socket))
        try:
            with live.waiting(digest_of(token)) as event:
                await _tell(socket, event, gone, (principal, passenger, token))
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
    except Problem as problem:
        await _send(
            socket,
            {"event": "refused", "error": problem.members.get("error", problem.kind.name), "message": problem.detail},
        )
        await socket.close(1008)
    except _NotText:
        await socket.close(1003, "Envie texto JSON, não bytes.")
    except TimeoutError:
        await socket.close(1008, "Nenhuma mensagem chegou.")
    except UmavezError as error:
        LOG.warning("A live socket was closed: %s", error)
        await socket.close(1013, "Tente de novo em instantes.")


class _NotText(Exception):
    """The client sent bytes."""


async def _greeted(socket: WebSocket) -> tuple[str, str]:
    """The passenger and the token of the first message. Raises a problem, or _NotText for bytes."""
    text = await _heard(socket)
    if text is None:
        raise _NotText
    if len(text) > LONGEST:
        raise _wanted()
    data = exact_json(text)
    if not isinstance(data, dict):
        raise _wanted()
    passenger, token = data.get("passengerId"), data.get("confirmationToken")
    if (
        not isinstance(passenger, str)
        or not isinstance(token, str)
        or not 0 < len(passenger) <= 200
        or "\0" in passenger
    ):
        raise _wanted()
    return passenger, token


def _wanted() -> Problem:
    return Problem(422, "dados-invalidos", "Dados inválidos", "Envie passengerId e confirmationToken em JSON.")


async def _heard(socket: WebSocket) -> str | None:
    """The text of the next message; None for one of bytes. Raises WebSocketDisconnect."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1005))
    text: str | None = message.get("text")
    return text


async def _tell(socket: WebSocket, event: asyncio.Event, gone: asyncio.Task[None], who: tuple[str, str, str]) -> None:
    carrier = socket.app.state.carrier
    told, past = None, 0
    while not gone.done():
        event.clear()
        view: TokenView = await carrier.run(carrier.corridas.confirmations.look, *who)
        if view.state.value != told:
            told = view.state.value
            await _send(socket, _message(view))
        if told in FINAL:
            await socket.close()
            return
        left = view.expires_at / 1000 - time.time()
        past += left <= 0
        waiter = asyncio.create_task(event.wait())
        await asyncio.wait((waiter, gone), timeout=_pause(left, past), return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
    gone.result()


def _pause(left: float, past: int) -> float:
    """Seconds until the next look: until a little past the token's last instant, which is `left` away by our clock.

    The store's clock decides, and may lag behind ours by hours; so the `past` looks beyond it are ever further apart.
    """
    return min(LOOK_SECONDS, left + 0.02 if left > 0 else 0.02 * 2 ** min(past, 10))


def _message(view: TokenView) -> dict[str, Any]:
    ride = view.outcome["rideId"] if view.outcome else None
    return {"event": view.state.value, "expiresAt": iso(view.expires_at), "rideId": ride}


async def _until_gone(socket: WebSocket) -> None:
    """Ends when the client leaves; what it says meanwhile is not listened to. Raises a problem when it is too much."""
    with contextlib.suppress(WebSocketDisconnect):
        for _ in range(IDLE_TALK):
            if await _heard(socket) is None:
                raise _NotText
        raise Problem(429, "mensagens-demais", "Mensagens demais", "Envie uma mensagem só e espere as respostas.")


async def _send(socket: WebSocket, message: dict[str, Any]) -> None:
    await socket.send_text(json.dumps(message, ensure_ascii=False))
