"""WebSockets that are refused: each is told so and gone, and together they do not fill a log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import uvicorn
from httpx import Client

from umavez_systems.corridas import live
from umavez_systems.gates import sockets
from umavez_systems.logs import MOST_SORTS, Seldom

LIVE = b"/api/governance/ride/confirmation/live"
UPGRADE = (
    b"Host: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
)


def asked(path: bytes = LIVE, more: bytes = b"", kept: bytes = UPGRADE) -> bytes:
    return b"GET %s HTTP/1.1\r\n%s%s\r\n" % (path, kept, more)


REFUSED = {
    "another page": asked(more=b"Origin: http://evil.example\r\n"),
    "no route": asked(b"/nothing"),
    "the console": asked(b"/console/"),
    "no key": asked(kept=b"Host: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"),
    "many headers": asked(more=b"".join(b"X-%d: 1\r\n" % number for number in range(300))),
    "a long header": asked(more=b"X-Long: " + b"a" * 20_000 + b"\r\n"),
    "a long address": asked(b"/" + b"a" * 20_000),
    "a body": asked(more=b"Content-Length: 5\r\n") + b"hello",
    "chunks": asked(more=b"Transfer-Encoding: chunked\r\n"),
    "no HTTP": b"GET / HTTP/9.9\r\n\r\n",
}


class Server(NamedTuple):
    address: tuple[str, int]
    errors: Path

    def said(self, request: bytes) -> bytes:
        """All that the server answers until it closes."""
        with socket.create_connection(self.address, 10) as client:
            client.sendall(request)
            return all_of(client)


def all_of(client: socket.socket) -> bytes:
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("sockets")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address: tuple[str, int] = probe.getsockname()
    errors = folder / "errors"
    words = [sys.executable, "-m", "umavez.cli", "serve", "--port", str(address[1])]
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            words, cwd=folder, env={**os.environ, "UMAVEZ_DATABASE": "sqlite:///a.db"}, stderr=stderr
        )
        try:
            deadline = time.monotonic() + 60
            while not healthy(address):
                assert process.poll() is None, "the server did not start"
                assert time.monotonic() < deadline, "the server did not start in time"
                time.sleep(0.05)
            yield Server(address, errors)
        finally:
            process.kill()
            process.wait()


def healthy(address: tuple[str, int]) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"http://{address[0]}:{address[1]}/health", timeout=10).status_code == 200
    return False


@pytest.mark.parametrize("request_", REFUSED.values(), ids=REFUSED)
def test_a_refused_socket_is_told_so_and_is_gone(server: Server, request_: bytes) -> None:
    assert server.said(request_).startswith(b"HTTP/1.1 4")


def test_what_cannot_be_read_is_told_as_every_other_mistake(server: Server) -> None:
    head, _, body = server.said(REFUSED["many headers"]).partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    assert json.loads(body)["type"].endswith("/http-invalido")


def test_refused_sockets_do_not_fill_a_log(server: Server) -> None:
    """h2c is asked for by ordinary clients, too: `curl --http2` does."""
    h2c = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n"
    before = server.errors.read_text().count("\n")
    for _ in range(10):
        for request_ in (*REFUSED.values(), h2c):
            server.said(request_)
    after = server.errors.read_text()
    assert after.count("\n") - before <= 3, after
    assert " ERROR " not in after, after
    assert "Traceback" not in after, after


def test_a_line_that_strangers_cause_is_written_seldom_and_with_its_number() -> None:
    moment = 0.0
    seldom = Seldom(60.0, lambda: moment)

    def written(text: str, name: str = "uvicorn.error") -> str | None:
        record = logging.LogRecord(name, logging.WARNING, "x.py", 1, text, (), None)
        return record.getMessage() if seldom.filter(record) else None

    assert written("Invalid HTTP") == "Invalid HTTP"
    assert [written("Invalid HTTP") for _ in range(5)] == [None] * 5
    assert written("Another") == "Another"
    assert [written("Ours", "umavez.systems") for _ in range(3)] == ["Ours"] * 3
    moment = 61.0
    assert written("Invalid HTTP") == "Invalid HTTP (5 more like this since the last)"
    assert [written(f"Of many {number}") for number in range(1000)][-1] == "Of many 999"
    assert len(seldom._told) <= MOST_SORTS


def opened(client: Client) -> socket.socket:
    assert client.base_url.port is not None
    raw = socket.create_connection((client.base_url.host, client.base_url.port), 20)
    raw.sendall(asked())
    assert raw.recv(4096).startswith(b"HTTP/1.1 101 ")
    return raw


def frame(code: int, payload: bytes) -> bytes:
    """As clients send it; its mask changes nothing."""
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else bytes([0xFE]) + len(payload).to_bytes(2, "big")
    return bytes([code]) + size + b"\0\0\0\0" + payload


def test_text_that_is_no_unicode_ends_the_socket_and_is_no_error(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(client) as raw:
        raw.sendall(frame(0x81, b"\xff\xfe"))
        assert all_of(raw)[2:4] == (1007).to_bytes(2, "big")
    assert not caplog.records


def test_a_message_of_endless_empty_parts_is_ended(client: Client) -> None:
    with opened(client) as raw:
        raw.sendall(frame(0x01, b"{") + frame(0x00, b"") * 5_000)
        assert all_of(raw)[2:4] == (1009).to_bytes(2, "big")


def test_who_sends_pings_and_reads_no_answer_is_left(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PATIENCE", 60.0)
    pings = frame(0x89, b"x" * 125) * 8_000
    with opened(client) as raw, pytest.raises(ConnectionError):
        for _ in range(40):
            raw.sendall(pings)


@pytest.mark.parametrize("last", [b"\xff\x80\0\0\0\0", frame(0x88, b"")], ids=["what is no frame", "goodbye"])
def test_who_leaves_without_reading_what_was_sent_holds_nobody(last: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application waits for room in the buffer, which nobody empties any more."""
    monkeypatch.setattr(sockets, "LINGER", 0.1)
    ended = threading.Event()

    async def talkative(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "websocket"
        await receive()
        await send({"type": "websocket.accept"})
        try:
            while True:
                await send({"type": "websocket.send", "text": "x" * 100_000})
        finally:
            ended.set()

    server = uvicorn.Server(uvicorn.Config(talkative, ws=sockets.GuardedSocket, lifespan="off", log_level="critical"))
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as raw:
        serving = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
        serving.start()
        raw.connect(listener.getsockname())
        raw.sendall(asked())
        deadline = time.monotonic() + 10
        while not any(not one.writable.is_set() for one in connected(server)):
            assert time.monotonic() < deadline, "the buffer was never full"
            time.sleep(0.01)
        raw.sendall(last)
        assert ended.wait(5)
        server.should_exit = True
        serving.join(10)


def connected(server: uvicorn.Server) -> list[sockets.GuardedSocket]:
    return [one for one in list(server.server_state.connections) if isinstance(one, sockets.GuardedSocket)]
