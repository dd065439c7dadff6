"""Sockets: a WebSocket from its request on. Whoever is refused is told so, is gone soon, and costs no line of the log.

uvicorn answers nothing to a request that its WebSocket library cannot read, and waits for ever; it calls every refusal
an error, and keeps what a client that does not read was to be told.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from umavez_systems.problems import Problem

LINGER = 2.0
"""Seconds for which what was written last may still be on its way to a client."""
MOST_FRAMES = 64
"""Parts of one message: the library bounds its bytes, but any number of parts may be empty."""
MOST_UNREAD = 65_536
"""Bytes that may wait for a client that sends pings and does not read what they are answered with."""
HEAD = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\ncache-control: no-store\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n"
)


class GuardedSocket(WebSocketsSansIOProtocol):
    """One WebSocket whose client is waited for in bounds. Named in `connections.options`."""

    loop: asyncio.AbstractEventLoop

    def data_received(self, data: bytes) -> None:
        """Read on; a request that cannot be read is refused."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if not self.handshake_initiated:
            # The first that is received is the whole request: uvicorn has read it already.
            self._refuse()
        elif self.transport.is_closing():
            # Goodbye, or what is no frame. Whoever does not read what is left for him holds the application, too.
            self._leave()

    def handle_cont(self, event: Frame) -> None:
        """Keep a part of a message."""
        if len(self.frames) >= MOST_FRAMES:
            self._end(CloseCode.MESSAGE_TOO_BIG)
            return
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        """Hand over a message; one that calls itself text and is none ends the socket, and is no error of ours."""
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self._end(CloseCode.INVALID_DATA)
                return
        super().send_receive_event_to_app()

    def handle_ping(self) -> None:
        """Answer a ping, unless earlier answers still wait to be read."""
        if self.transport.get_write_buffer_size() > MOST_UNREAD:
            self.transport.abort()
            return
        super().handle_ping()

    def keepalive_timeout(self) -> None:
        """Nobody is there: what was to be told them is not kept."""
        super().keepalive_timeout()
        self._leave()

    async def send(self, message: Any) -> None:
        """Tell the client. A refusal that was told whole is an end as good as any, and no error."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            self.handshake_complete = True

    async def run_asgi(self) -> None:
        """Handle the socket to its end."""
        await super().run_asgi()
        self._leave()

    def _end(self, code: CloseCode) -> None:
        if not self.close_sent:
            self.conn.send_close(code)
            self.handle_parser_exception()
            self._leave()

    def _refuse(self) -> None:
        problem = Problem(
            400, "http-invalido", "Requisição inválida", "O pedido de WebSocket não pode ser lido; confira o cliente."
        )
        body = bytes(problem.response().body)
        self.close_sent = True
        self.transport.write(HEAD % len(body) + body)
        self.transport.close()
        self._leave()

    def _leave(self) -> None:
        """Soon for good: a client that does not read would else keep the connection half closed."""
        self.loop.call_later(self.close_timeout if self.close_timer is not None else LINGER, self.transport.abort)
