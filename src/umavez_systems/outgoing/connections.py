"""Connections: HTTP/1.1 over kept sockets, read by the standard library, with what fails told in httpx's words.

Without httpx around it a call takes half the processor time, and is bounded as a whole: httpx gives every read the
whole time-out, so that an answer which comes in drops never ends; it reads whatever is sent, and unpacks the packed.
"""

from __future__ import annotations

import io
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from http.client import HTTPException, HTTPResponse
from typing import Any, NamedTuple

import httpx

CONNECT = 10.0
MOST, MOST_KEPT, KEPT = 64, 16, 5.0
"""Connections at once, those kept for the next call, and for how many seconds."""
LARGEST = 10_000_000
"""Bytes of an answer, where the caller names no bound of its own."""
PIECE = 65_536
PLAIN = {"Accept": "*/*", "User-Agent": "umavez"}
"""Nothing packed is asked for: an answer is bounded by what it is when read."""

Place = tuple[str, str, int | None]


class Answer(NamedTuple):
    """What was answered; the names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def successful(self) -> Answer:
        """Itself. Raises BadStatus where it is no success."""
        if not 200 <= self.status < 300:
            raise BadStatus(self)
        return self


class BadStatus(httpx.HTTPError):
    """It was answered, and not with what was hoped for."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"HTTP {answer.status}")
        self.answer = answer


class TooLarge(httpx.ReadError):
    """An answer above its bound. It was not read to its end; `begun` is how it begins."""

    def __init__(self, largest: int, begun: bytes) -> None:
        super().__init__(f"more than {largest} bytes")
        self.begun = begun


class Connections:
    """Connections to whoever is called, kept for a moment after use. Safe for threads."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._given = context
        self._kept: dict[Place, list[tuple[socket.socket, float]]] = {}
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(MOST)
        self._ended = False

    def call(
        self,
        method: str,
        address: str,
        timeout: float,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        largest: int | None = None,
    ) -> Answer:
        """The answer to one request, of whatever status, within `timeout` seconds. Raises httpx's errors."""
        ends = time.monotonic() + timeout
        url = _url(address)
        asked = _written(method, url, {**PLAIN, **(headers or {})}, body)
        with self._taken(url, timeout) as line:
            response, raw = _answered(line, method, asked, ends, LARGEST if largest is None else largest)
        return Answer(response.status, {name.lower(): text for name, text in response.getheaders()}, raw)

    @cached_property
    def _context(self) -> ssl.SSLContext:
        """Made when it is needed: certificates are read from disk, which plain HTTP need not wait for."""
        context = self._given or ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        return context

    @contextmanager
    def _taken(self, url: httpx.URL, timeout: float) -> Iterator[socket.socket]:
        """A connection for one call, kept afterwards unless it failed or is closed."""
        soon = min(CONNECT, timeout)
        if not self._free.acquire(timeout=soon):
            raise httpx.PoolTimeout("every connection is in use")
        place = (url.scheme, url.host, url.port)
        line: socket.socket | None = None
        try:
            line = self._idle(place) or self._opened(url, soon)
            yield line
            line = self._keep(place, line)
        finally:
            if line is not None:
                _closed(line)
            self._free.release()

    def _idle(self, place: Place) -> socket.socket | None:
        """One that was kept and is still good: something to read on an idle one is the other side's farewell."""
        while True:
            with self._lock:
                kept = self._kept.get(place)
                if not kept:
                    return None
                line, since = kept.pop()
            looking = select.poll()
            looking.register(line, select.POLLIN)
            if time.monotonic() - since < KEPT and not looking.poll(0):
                return line
            _closed(line)

    def _keep(self, place: Place, line: socket.socket) -> socket.socket | None:
        """None once it is kept; else the connection, to be closed."""
        if line.fileno() < 0:
            return None
        with self._lock:
            kept = self._kept.setdefault(place, [])
            if self._ended or len(kept) >= MOST_KEPT:
                return line
            kept.append((line, time.monotonic()))
        return None

    def _opened(self, url: httpx.URL, timeout: float) -> socket.socket:
        if url.scheme not in ("http", "https"):
            raise httpx.UnsupportedProtocol(f"{url.scheme} is not spoken here")
        line: socket.socket | None = None
        try:
            line = socket.create_connection((url.host, url.port or (443 if url.scheme == "https" else 80)), timeout)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return line if url.scheme == "http" else self._context.wrap_socket(line, server_hostname=url.host)
        except (OSError, ValueError) as error:  # ValueError: a name that no server can have
            if line is not None:
                _closed(line)
            late = isinstance(error, TimeoutError)
            raise (httpx.ConnectTimeout if late else httpx.ConnectError)(str(error)) from error

    def close(self) -> None:
        """Close what is kept; what is in use is closed by whoever uses it."""
        with self._lock:
            self._ended = True
            kept = [line for lines in self._kept.values() for line, _ in lines]
            self._kept.clear()
        for line in kept:
            _closed(line)


def _closed(line: socket.socket) -> None:
    with suppress(OSError):
        line.close()


@lru_cache(maxsize=200)
def _url(address: str) -> httpx.URL:
    """Parsed once: services are few, and questions by a key in the address are rare."""
    return httpx.URL(address)


def _written(method: str, url: httpx.URL, headers: dict[str, str], body: bytes | None) -> bytes:
    """A request's bytes. Raises httpx.LocalProtocolError for a header that would end early."""
    named = {"Host": url.netloc.decode(), **headers}
    if body is not None or method == "POST":
        named["Content-Length"] = str(len(body or b""))
    if any("\r" in text or "\n" in text for text in named.values()):
        raise httpx.LocalProtocolError("a header has a line's end in it")
    lines = "".join(f"{name}: {text}\r\n" for name, text in named.items())
    return b"%s %s HTTP/1.1\r\n%s\r\n%s" % (method.encode(), url.raw_path, lines.encode("latin-1"), body or b"")


class _Arriving(io.RawIOBase):
    """What arrives on a connection, until `ends`: every byte may be late, but all of them together no later."""

    def __init__(self, line: socket.socket, ends: float) -> None:
        self._line = line
        self._ends = ends
        self.over = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.over:
            return 0
        self._line.settimeout(_left(self._ends))
        return self._line.recv_into(buffer)


class _Reader(io.BufferedReader):
    """As http.client wants to be given it. Closing it leaves the connection open, and what was read too far in it."""

    def makefile(self, _mode: str) -> _Reader:
        return self

    def close(self) -> None:
        pass


def _left(ends: float) -> float:
    left = ends - time.monotonic()
    if left <= 0:
        raise TimeoutError("the time is over")
    return left


def _send(line: socket.socket, asked: bytes, ends: float) -> None:
    """Send it all until `ends`; sendall would give every piece that long."""
    waiting = memoryview(asked)
    while waiting:
        line.settimeout(_left(ends))
        waiting = waiting[line.send(waiting) :]


def _answered(line: socket.socket, method: str, asked: bytes, ends: float, largest: int) -> tuple[HTTPResponse, bytes]:
    """The answer to a request, read to its end; the connection is closed where it cannot be used again."""
    arriving = _Arriving(line, ends)
    reader: Any = _Reader(arriving)
    try:
        _send(line, asked, ends)
        response = HTTPResponse(reader, method=method)
        response.begin()
        raw = _read(response, largest)
        arriving.over = True
        if response.will_close or reader.peek(1):
            # What came behind the answer is an answer to nothing, and must not be taken for the next one.
            _closed(line)
    except TimeoutError as error:
        raise httpx.ReadTimeout(str(error)) from error
    except HTTPException as error:
        raise httpx.RemoteProtocolError(str(error)) from error
    except OSError as error:
        raise httpx.ReadError(str(error)) from error
    return response, raw


def _read(response: HTTPResponse, largest: int) -> bytes:
    """The body, at most `largest` bytes of it."""
    parts: list[bytes] = []
    size = 0
    while part := response.read1(PIECE):
        parts.append(part)
        size += len(part)
        if size > largest:
            raise TooLarge(largest, b"".join(parts)[:1000])
    if response.length:
        raise httpx.RemoteProtocolError("the answer broke off")
    return b"".join(parts)
