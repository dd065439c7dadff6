"""A small SMTP server for development: it takes every mail and hands it to a function. Nothing leaves the machine."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

LINE_LONGEST = 2_000
MAIL_LONGEST = 25_000_000
MOST_CONNECTIONS = 500
PATIENCE = 300.0
END = b"\r\n.\r\n"
_PATH = re.compile(rb"<([^<>\r\n]{0,320})>")
Take = Callable[[str, str, bytes], str | None]
"""Gets sender, recipient and content; returns the reply, or None to hang up without one."""
Judge = Callable[[str], str]
"""Gets a recipient; returns the reply to RCPT."""


def welcome(_: str) -> str:
    """Every recipient is fine."""
    return "250 2.1.5 OK"


class Sink:
    """Listens, and counts who is there."""

    def __init__(self, take: Take, judge: Judge = welcome) -> None:
        self.take = take
        self.judge = judge
        self.open = 0
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Start; returns the port."""
        self._server = await asyncio.get_running_loop().create_server(lambda: _Session(self), host, port)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()


class _Session(asyncio.Protocol):
    """One connection."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._buffer = bytearray()
        self._reading_data = False
        self._forget()

    def _forget(self) -> None:
        self._sender: str | None = None
        self._recipients: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  # what create_server gives
        self._transport = transport
        self._sink.open += 1
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, transport.close)
        if self._sink.open > MOST_CONNECTIONS:
            self._say("421 4.3.2 too many connections")
            transport.close()
            return
        self._say("220 umavez sink")

    def connection_lost(self, exc: Exception | None) -> None:
        self._sink.open -= 1
        self._timer.cancel()

    def _say(self, line: str) -> None:
        self._transport.write(line.encode() + b"\r\n")

    def data_received(self, data: bytes) -> None:
        self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._transport.close)
        self._buffer += data
        while not self._transport.is_closing() and self._step():
            pass

    def _step(self) -> bool:
        """Take one line or one mail out of the buffer; False when more is needed."""
        if self._reading_data:
            return self._mail()
        end = self._buffer.find(b"\r\n")
        if end < 0:
            if len(self._buffer) > LINE_LONGEST:
                self._say("500 5.5.2 line too long")
                self._transport.close()
            return False
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        self._command(line)
        return True

    def _mail(self) -> bool:
        end = 0 if self._buffer.startswith(b".\r\n") else self._buffer.find(END)
        if end < 0:
            if len(self._buffer) > MAIL_LONGEST:
                self._say("552 5.3.4 too large")
                self._transport.close()
            return False
        content = bytes(self._buffer[: end + 2 if end else 0]).replace(b"\r\n..", b"\r\n.")
        del self._buffer[: end + len(END) if end else 3]
        self._reading_data = False
        sender, recipients = self._sender or "", self._recipients
        self._forget()
        replies = [self._sink.take(sender, recipient, content) for recipient in recipients]
        if replies[0] is None:
            self._transport.abort()
            return False
        self._say(replies[0])
        return True

    def _command(self, line: bytes) -> None:
        verb = line[:4].upper()
        path = _PATH.search(line)
        if verb == b"EHLO":
            self._transport.write(b"250-umavez sink\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250 PIPELINING\r\n")
        elif verb in (b"HELO", b"NOOP", b"RSET"):
            if verb == b"RSET":
                self._forget()
            self._say("250 2.0.0 OK")
        elif verb == b"MAIL" and path:
            self._sender = path[1].decode("utf-8", "replace")
            self._say("250 2.1.0 OK")
        elif verb == b"RCPT" and path and self._sender is not None:
            self._recipient(path[1].decode("utf-8", "replace"))
        elif verb == b"DATA" and self._recipients:
            self._reading_data = True
            self._say("354 go on")
        elif verb == b"QUIT":
            self._say("221 2.0.0 bye")
            self._transport.close()
        else:
            self._say("503 5.5.1 not now" if verb in (b"MAIL", b"RCPT", b"DATA") else "502 5.5.1 not known")

    def _recipient(self, address: str) -> None:
        reply = self._sink.judge(address)
        if reply.startswith("250"):
            self._recipients.append(address)
        self._say(reply)
