"""Calls over HTTPS with the taxpayer's certificate, SOAP 1.2 or plain. A failure is told by how far a request came."""

from __future__ import annotations

import io
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from http.client import HTTPException, HTTPResponse
from typing import Any

import httpx

from umavez.failures import Phase, of_status, trouble_of
from umavez_systems.fiscal.ports import AutoridadeError, NadaEnviado, Ocupada, Recusada, SemResposta
from umavez_systems.fiscal.wire.answers import LARGEST

CONNECT = 10.0
MOST, MOST_KEPT, KEPT = 64, 16, 5.0
"""Connections at once, those kept for the next call, and for how many seconds."""
PIECE = 65_536
WSDL = "http://www.portalfiscal.inf.br/nfe/wsdl/"
_OPEN = b'<soap12:Envelope xmlns:soap12="http://www.w3.org/2003/05/soap-envelope"><soap12:Body>'
_CLOSE = b"</soap12:Body></soap12:Envelope>"
PATIENCE_WITHOUT_WISH = 5.0
PLAIN = {"Accept": "*/*", "User-Agent": "umavez"}
"""Nothing packed is asked for: an answer is bounded by what it is when read."""


class Correio:
    """Carries requests to the services of one authority. Safe for threads; `close` gives the connections back."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._conexoes = Conexoes(context)

    def levar(self, address: str, service: str, verb: str, xml: bytes, timeout: float) -> bytes:
        """The reply's bytes to one call. Raises NadaEnviado, Ocupada, SemResposta or Recusada."""
        body = b'%s<nfeDadosMsg xmlns="%s">%s</nfeDadosMsg>%s' % (_OPEN, f"{WSDL}{service}".encode(), xml, _CLOSE)
        headers = {"Content-Type": f'application/soap+xml; charset=utf-8; action="{WSDL}{service}/{verb}"'}
        return self.chamar("POST", address, timeout, body, headers)[1]

    def chamar(
        self,
        method: str,
        address: str,
        timeout: float,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        answers: frozenset[int] = frozenset({200}),
    ) -> tuple[int, bytes]:
        """Status and bytes of a reply whose status is one of `answers`. Raises as `levar` does for every other."""
        ends = time.monotonic() + timeout
        try:
            url = _url(address)
            asked = _written(method, url, {**PLAIN, **(headers or {})}, body)
            with self._conexoes.tomada(url, timeout) as line:
                response, raw = _answered(line, method, asked, ends)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise told(error) from error
        if response.status not in answers:
            _refuse_status(response.status, dict(response.getheaders()), raw)
        return response.status, raw

    def close(self) -> None:
        """Close the connections."""
        self._conexoes.close()


class Conexoes:
    """Connections to authorities, kept for a moment after use. Safe for threads.

    Sockets and the standard library's reader of answers, without httpx around them: a call through httpx takes twice
    the processor time. What fails is told in httpx's words, by how far it came.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        context.set_alpn_protocols(["http/1.1"])
        self._context = context
        self._kept: dict[tuple[str, str, int | None], list[tuple[socket.socket, float]]] = {}
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(MOST)
        self._ended = False

    @contextmanager
    def tomada(self, url: httpx.URL, timeout: float) -> Iterator[socket.socket]:
        """A connection for one call, kept afterwards unless it failed or is closed. Raises httpx's errors."""
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

    def _idle(self, place: tuple[str, str, int | None]) -> socket.socket | None:
        """One that was kept and is still good: something to read on an idle one is the authority's farewell."""
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

    def _keep(self, place: tuple[str, str, int | None], line: socket.socket) -> socket.socket | None:
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


def _answered(line: socket.socket, method: str, asked: bytes, ends: float) -> tuple[HTTPResponse, bytes]:
    """The answer to a request, read to its end; the connection is closed where it cannot be used again."""
    arriving = _Arriving(line, ends)
    reader: Any = _Reader(arriving)
    try:
        _send(line, asked, ends)
        response = HTTPResponse(reader, method=method)
        response.begin()
        raw = _read(response)
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


@lru_cache(maxsize=200)
def _url(address: str) -> httpx.URL:
    """Parsed once: services are few, and questions by a key in the address are rare."""
    return httpx.URL(address)


def _read(response: HTTPResponse) -> bytes:
    """The body, at most LARGEST bytes."""
    parts: list[bytes] = []
    size = 0
    while part := response.read1(PIECE):
        parts.append(part)
        size += len(part)
        if size > LARGEST:
            raise SemResposta(f"A resposta passa de {LARGEST} bytes.", b"".join(parts)[:1000])
    if response.length:
        raise httpx.RemoteProtocolError("the answer broke off")
    return b"".join(parts)


def _refuse_status(status: int, headers: dict[str, str], raw: bytes) -> None:
    trouble = of_status(status, {name.lower(): text for name, text in headers.items()})
    said = f"A autoridade respondeu HTTP {status}."
    if trouble.phase is Phase.NEVER_SENT:
        raise Ocupada(said, PATIENCE_WITHOUT_WISH if trouble.retry_after is None else trouble.retry_after, raw)
    if trouble.phase is Phase.MAYBE_SENT or 200 < status < 300:
        raise SemResposta(said, raw)
    raise Recusada(said, status, raw)


def told(error: Exception) -> AutoridadeError:
    """What a failed call means: only what certainly never left may be sent again without asking."""
    said: Any = type(error).__name__
    phase = trouble_of(error).phase
    if phase is Phase.NEVER_SENT:
        return NadaEnviado(f"A autoridade não foi alcançada ({said}).")
    if phase is Phase.MAYBE_SENT:
        return SemResposta(f"A autoridade não respondeu ({said}).")
    return Recusada(f"A chamada não pôde ser feita ({said}).", 0)
