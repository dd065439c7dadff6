"""Connections: a client that sends or reads slowly, or never, keeps no place from others.

uvicorn waits for a request's end for ever. Here every wait for the client has a deadline, the head of a request a
size, and the server a number of connections: one more takes the place of the client that was waited for longest, and
gets 503 only when all others are being worked for.
"""

from __future__ import annotations

import asyncio
import resource
import time
from functools import cache, partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from umavez_systems.gates.turnstile import Turnstile
from umavez_systems.problems import Problem
from umavez_systems.settings import Settings

MOST_HEAD = 65_536
"""Bytes of a request's line and headers."""
MOST_AHEAD = 16
"""Requests that wait on one connection for the answer to an earlier one."""
LEAST_PACE = 16_384
"""Bytes per second of a body that may go on for longer than its time: a long list over a slow line, but no trickle."""
LINGER = 2.0
"""Seconds for which what was written last may still be on its way to a client."""


class GuardedProtocol(HttpToolsProtocol):
    """One HTTP connection whose client is waited for in bounds. Make it with `protocol_of`."""

    most = 1_000
    head_seconds = 10.0
    body_seconds = 30.0
    send_seconds = 30.0
    turnstile: Turnstile | None = None
    """Of the process; made with its first request."""

    waiting_since: float | None = None
    """Since when it is the client's turn; None while the server works for it."""
    _deadline: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None
    _head = 0
    _body = 0
    """Bytes that came since the client was last given time for a body."""
    _headers_done = False
    _reading = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        """Wait for the first request, unless there is no room."""
        super().connection_made(transport)
        if len(self.connections) > self.most and not self._make_room():
            self._refuse(
                _problem(503, "ocupado", "Servidor ocupado", "Há conexões demais; tente de novo em instantes.")
            )
            return
        self._wait(self.head_seconds)

    def _make_room(self) -> bool:
        """Leave the client that was waited for longest, if any. Those that were told goodbye are gone soon anyway."""
        others = [other for other in self.connections if isinstance(other, GuardedProtocol) and other is not self]
        if leaving := [other for other in others if other.transport.is_closing()]:
            for other in leaving:
                other.transport.abort()
            return True
        waiting = [other for other in others if other.waiting_since is not None]
        if not waiting:
            return False
        min(waiting, key=lambda other: other.waiting_since or 0.0).transport.abort()
        return True

    def data_received(self, data: bytes) -> None:
        """Read on. What is no part of a request yet, as empty lines are, counts as its head."""
        if self.transport.is_closing():
            return
        if self._deadline is None and self._idle():
            self._wait(self.head_seconds)
        if self._headers_done:
            self._body += len(data)
        else:
            self._head += len(data)
        super().data_received(data)
        if not self._headers_done and self._head > MOST_HEAD and not self.transport.is_closing():
            self._refuse(
                _problem(431, "cabecalho-grande", "Cabeçalho grande demais", f"O limite é de {MOST_HEAD} bytes.")
            )

    def on_message_begin(self) -> None:
        """A request has begun."""
        self._reading = True
        self._headers_done = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; what comes after the body is read past."""
        if not self._headers_done:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The body has its own time. Whoever sends too many requests before their answers is refused by the parser."""
        if len(self.pipeline) >= MOST_AHEAD:
            raise OverflowError("too many requests in advance")
        self._headers_done = True
        self._head = self._body = 0
        # The routes stop waiting for a body by themselves; this is for what is sent after their answer.
        self._wait(self.body_seconds + LINGER)
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Begin with a request when its turn has come."""
        kind = type(self)
        if kind.turnstile is None or kind.turnstile.loop is not self.loop:
            kind.turnstile = Turnstile(self.loop)
        kind.turnstile.enter(cycle.scope["path"], partial(super()._start_asgi_task, cycle, app))

    def on_message_complete(self) -> None:
        """The request is here: it is the server's turn."""
        self._reading = False
        self._headers_done = False
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of one that was answered before it was here."""
        super().on_response_complete()
        if self.timeout_keep_alive_task is not None and self.waiting_since is None:
            self.waiting_since = time.monotonic()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing more came."""
        self._leave()

    def send_400_response(self, msg: str) -> None:  # uvicorn's words, in English and as plain text
        """What came is no HTTP: said as every other refusal is."""
        ahead = len(self.pipeline) >= MOST_AHEAD
        detail = (
            "Espere pelas respostas antes de enviar mais." if ahead else "O que chegou não é HTTP; confira o cliente."
        )
        self._refuse(_problem(400, "http-invalido", "Requisição inválida", detail))

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing to tell: who offers HTTP/2, as many clients do, is answered in HTTP/1.1."""

    def handle_websocket_upgrade(self) -> None:
        """The connection is no longer ours."""
        self._stop_waiting()
        super().handle_websocket_upgrade()

    def pause_writing(self) -> None:
        """The client does not read what it asked for."""
        super().pause_writing()
        if self._sending is None:
            self._sending = self.loop.call_later(self.send_seconds, self.transport.abort)
            self.waiting_since = self.waiting_since or time.monotonic()

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
            if self._deadline is None:
                self.waiting_since = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget every deadline."""
        self._stop_waiting()
        if self._sending is not None:
            self._sending.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def _idle(self) -> bool:
        return not self._reading and self._unanswered() is None

    def _unanswered(self) -> RequestResponseCycle | None:
        cycle: RequestResponseCycle | None = self.cycle
        return None if cycle is None or cycle.response_complete else cycle

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self.waiting_since = time.monotonic()
        self._deadline = self.loop.call_later(seconds, self._waited, seconds)

    def _stop_waiting(self) -> None:
        self.waiting_since = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _waited(self, seconds: float) -> None:
        self._deadline = None
        if self.flow.read_paused:
            # It was the server that did not read: the client gets its time again.
            self._wait(seconds)
        elif self._headers_done and self._unanswered() is None:
            # Answered before it was all here: a second answer would be taken for the next request's.
            self._leave()
        elif self._headers_done and self._body >= LEAST_PACE * seconds:
            self._body = 0
            self._wait(seconds)
        elif self._reading or self._head:
            self._refuse(_problem(408, "demorou", "Requisição incompleta", "O resto da requisição não chegou a tempo."))
        else:
            self._leave()

    def _refuse(self, problem: Problem) -> None:
        """Say why, if nothing was said yet, and close."""
        cycle = self._unanswered()
        if cycle is not None:
            # The route that waits for this body learns that nobody is there.
            cycle.disconnected = True
            cycle.message_event.set()
        if cycle is None or not cycle.response_started:
            response = problem.response()
            head = b"".join(b"%s: %s\r\n" % header for header in response.raw_headers)
            self.transport.write(
                STATUS_LINE[problem.status] + head + b"connection: close\r\n\r\n" + bytes(response.body)
            )
        self._leave()

    def _leave(self) -> None:
        """Close, and soon for good: a client that does not read would else keep the connection half closed."""
        self._stop_waiting()
        if not self.transport.is_closing():
            self.transport.close()
        self.loop.call_later(LINGER, self.transport.abort)


def _problem(status: int, kind: str, title: str, detail: str) -> Problem:
    problem = Problem(status, kind, title, detail)
    if status == 503:
        problem.retry_after = 1.0
    return problem


def protocol_of(settings: Settings) -> type[GuardedProtocol]:
    """The protocol with these settings. Half of the descriptors that the system allows is left for everything else."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = {
        "most": min(settings.max_connections, descriptors // 2),
        "head_seconds": settings.head_seconds,
        "body_seconds": settings.body_seconds,
        "send_seconds": settings.send_seconds,
    }
    return type("Guarded", (GuardedProtocol,), limits)


@cache
def _from_environment() -> type[GuardedProtocol]:
    return protocol_of(Settings())


def guarded(**given: Any) -> GuardedProtocol:
    """A connection of a worker process, which reads its settings from the environment. Named in `options`."""
    return _from_environment()(**given)


def options(settings: Settings) -> dict[str, Any]:
    """What uvicorn is told. A message on a WebSocket is refused by its announced size, before it is read."""
    return {
        "http": "umavez_systems.gates.connections:guarded",
        "ws": "umavez_systems.gates.sockets:GuardedSocket",
        "backlog": 128,
        "timeout_keep_alive": settings.keep_alive_seconds,
        "timeout_graceful_shutdown": 30,
        "ws_max_size": settings.max_websocket_bytes,
        "ws_ping_interval": settings.websocket_ping_seconds,
        "ws_ping_timeout": settings.websocket_ping_seconds,
        "ws_per_message_deflate": False,
        "log_level": "warning",
        "access_log": False,  # it would be written at a level that is not shown, after being put together
        "server_header": False,
    }
