"""Live: a WebSocket that tells a passenger's app when its token was used, expired or was cancelled.

The first message says who asks and for which token: neither stands in the address, where logs would keep it. What
this process does is told at once; what another process did is seen at the next look.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import defaultdict
from typing import Any

from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from umavez import UmavezError
from umavez.tokens import TokenView
from umavez_systems.corridas.domain import iso
from umavez_systems.corridas.operations import Corridas, digest_of
from umavez_systems.problems import Problem

LOOK_SECONDS = 2.0
PATIENCE = 10.0
MOST = 1_000
"""Sockets that one process keeps open."""
LONGEST = 2_000
FINAL = ("used", "expired", "cancelled", "unknown")
router = APIRouter()


class Live:
    """Who waits for which token, in this process."""

    def __init__(self, corridas: Corridas) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self.open = 0
        corridas.told = self._told

    def _told(self, digest: str) -> None:
        """Called in the thread of a use case. A loop that has ended has nobody to wake."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake, digest)

    def _wake(self, digest: str) -> None:
        for event in self._waiting.get(digest, ()):
            event.set()

    @contextlib.contextmanager
    def waiting(self, digest: str) -> Any:
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
    await socket.accept()
    if live.open >= MOST:
        await socket.close(1013, "Muitas conexões; tente de novo em instantes.")
        return
    live.open += 1
    try:
        await _follow(socket, live)
    except WebSocketDisconnect:
        return
    finally:
        live.open -= 1


async def _follow(socket: WebSocket, live: Live) -> None:
    try:
        principal, passenger, token = await asyncio.wait_for(_greeted(socket), PATIENCE)
        gone = asyncio.create_task(_until_gone(socket))
        try:
            with live.waiting(digest_of(token)) as event:
                await _tell(socket, event, gone, (principal, passenger, token))
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
    except Problem as problem:
        await _send(
            socket, {"event": "refused", "error": problem.extra.get("error", problem.kind), "message": problem.detail}
        )
        await socket.close(1008)
    except TimeoutError:
        await socket.close(1008, "Nenhuma mensagem chegou.")
    except UmavezError:
        await socket.close(1013, "Tente de novo em instantes.")


async def _greeted(socket: WebSocket) -> tuple[str, str, str]:
    """The principal, passenger and token of the first message. Raises a problem."""
    text = await socket.receive_text()
    try:
        data = json.loads(text) if len(text) <= LONGEST else None
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        data = {}
    passenger, token = data.get("passengerId"), data.get("confirmationToken")
    if (
        not isinstance(passenger, str)
        or not isinstance(token, str)
        or not 0 < len(passenger) <= 200
        or "\0" in passenger
    ):
        raise Problem(422, "dados-invalidos", "Dados inválidos", "Envie passengerId e confirmationToken em JSON.")
    given = data.get("authorization")
    header = given if isinstance(given, str) else socket.headers.get("authorization")
    return socket.app.state.carrier.principals.of(header), passenger, token


async def _tell(socket: WebSocket, event: asyncio.Event, gone: asyncio.Task[None], who: tuple[str, str, str]) -> None:
    carrier = socket.app.state.carrier
    told = None
    while not gone.done():
        event.clear()
        view: TokenView = await carrier.run(carrier.corridas.look, *who)
        if view.state.value != told:
            told = view.state.value
            await _send(socket, _message(view))
        if told in FINAL:
            await socket.close()
            return
        # A little past the last instant: the store's clock decides, and may lag behind ours.
        left = view.expires_at / 1000 - time.time() + 0.02
        waiter = asyncio.create_task(event.wait())
        await asyncio.wait(
            (waiter, gone), timeout=min(LOOK_SECONDS, max(0.02, left)), return_when=asyncio.FIRST_COMPLETED
        )
        waiter.cancel()


def _message(view: TokenView) -> dict[str, Any]:
    ride = view.outcome["rideId"] if view.outcome else None
    return {"event": view.state.value, "expiresAt": iso(view.expires_at), "rideId": ride}


async def _until_gone(socket: WebSocket) -> None:
    """Ends when the client leaves; what it says meanwhile is not listened to."""
    with contextlib.suppress(WebSocketDisconnect):
        while True:
            await socket.receive_text()


async def _send(socket: WebSocket, message: dict[str, Any]) -> None:
    await socket.send_text(json.dumps(message, ensure_ascii=False))
