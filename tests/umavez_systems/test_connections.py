"""Clients that send half a request, a drop at a time, or never read: the server goes on answering others."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.umavez_systems.conftest import listening
from umavez_systems.gates import connections
from umavez_systems.gates.connections import MOST_HEAD
from umavez_systems.settings import Settings

UMAVEZ = Path(sys.executable).parent / "umavez"
HALF = b"POST /api/v1/clientes HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
Address = tuple[str, int]


def address_of(client: httpx.Client) -> Address:
    assert client.base_url.port is not None
    return client.base_url.host, client.base_url.port


@contextlib.contextmanager
def process(folder: Path, descriptors: int, **environment: str) -> Iterator[Address]:
    """`umavez serve` in a process that may open so many descriptors."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    shell = f'ulimit -n {descriptors} && exec "$@"'
    words = ["sh", "-c", shell, "sh", str(UMAVEZ), "serve", "--port", str(port)]
    server = subprocess.Popen(words, cwd=folder, env={**os.environ, **environment})
    try:
        deadline = time.monotonic() + 60
        while not healthy(("127.0.0.1", port)):
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.05)
        yield "127.0.0.1", port
    finally:
        server.kill()
        server.wait()


def healthy(address: Address) -> bool:
    try:
        return httpx.get(f"http://{address[0]}:{address[1]}/health", timeout=10).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """This process may open as many as it needs for the clients it plays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192) if hard > 0 else 8192, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.usefixtures("many_descriptors")
def test_1100_half_sent_requests_do_not_stop_a_server_with_1024_descriptors(tmp_path: Path) -> None:
    beginnings = [b"", b"GET /hea", HALF, HALF + b"Content-Length: 100\r\n\r\n{"]
    with process(tmp_path, 1024) as address, contextlib.ExitStack() as stack:
        for number in range(1100):
            client = stack.enter_context(socket.create_connection(address, 20))
            # The server may have left it for a newer one already.
            with contextlib.suppress(ConnectionError):
                client.sendall(beginnings[number % len(beginnings)])
            if number % 200 == 199:
                assert healthy(address), f"after {number + 1} half-sent requests"
        began = time.monotonic()
        assert all(healthy(address) for _ in range(20))
        assert time.monotonic() - began < 8, "they were answered only after the half-sent ones timed out"


def heard(client: socket.socket) -> bytes:
    """All that the server says until it closes."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def dribble(client: socket.socket, text: bytes) -> float:
    """Send a byte now and then until the server has had enough; how long that took."""
    began = time.monotonic()
    client.settimeout(0.05)
    for byte in text:
        with contextlib.suppress(ConnectionError):
            client.sendall(bytes([byte]))
        with contextlib.suppress(TimeoutError):
            client.recv(1, socket.MSG_PEEK)
            break
    client.settimeout(20)
    return time.monotonic() - began


@pytest.fixture
def impatient(tmp_path: Path) -> Settings:
    return Settings(
        database=f"sqlite:///{tmp_path}/a.db", head_seconds=0.5, body_seconds=0.7, send_seconds=0.5, max_connections=8
    )


@pytest.mark.parametrize(
    ("begin", "rest"),
    [
        (b"", b"GET /health HTTP/1.1\r\n" + b"X-Slow: 1\r\n" * 50),
        (b"", b"\r\n" * 200),
        (HALF + b"Content-Length: 400\r\n\r\n", b"{" + b" " * 300),
        (HALF + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n" * 80),
    ],
    ids=["headers", "empty lines", "body", "chunks"],
)
def test_a_dribbled_request_is_ended(impatient: Settings, serving: Any, begin: bytes, rest: bytes) -> None:
    with serving(impatient) as client, socket.create_connection(address_of(client), 20) as slow:
        slow.sendall(begin)
        took = dribble(slow, rest)
        said = heard(slow)

        assert took < 6
        assert said.startswith(b"HTTP/1.1 408 "), said
        assert json.loads(said.partition(b"\r\n\r\n")[2])["type"].endswith("/demorou")
        assert client.get("/health").status_code == 200


def test_a_long_body_over_a_slow_line_is_read_to_its_end(
    impatient: Settings, serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LINGER", 0.0)
    line = b"p@example.com\n" * 100
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\nemail\n' + line * 40
    head = (
        b"POST /mailings HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: %d\r\n\r\n" % (len(body) + 9)
    )
    with serving(impatient) as client, socket.create_connection(address_of(client), 20) as steady:
        steady.sendall(head)
        for place in range(0, len(body), len(body) // 16):  # for twice the time that a body has
            steady.sendall(body[place : place + len(body) // 16])
            threading.Event().wait(0.1)
        steady.sendall(b"\r\n--b--\r\n")
        assert heard(steady).startswith(b"HTTP/1.1 201 ")


def test_a_request_that_was_answered_before_it_was_all_here_is_ended_in_silence(
    impatient: Settings, serving: Any
) -> None:
    with serving(impatient) as client, socket.create_connection(address_of(client), 20) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 400\r\n\r\n")
        assert b"200 OK" in slow.recv(4096)
        assert dribble(slow, b"x" * 300) < 8
        assert heard(slow) == b""


def test_a_client_that_says_nothing_is_left_before_and_after_a_request(impatient: Settings, serving: Any) -> None:
    with serving(impatient.model_copy(update={"keep_alive_seconds": 1})) as client:
        with socket.create_connection(address_of(client), 20) as silent:
            assert heard(silent) == b""
        with socket.create_connection(address_of(client), 20) as silent:
            silent.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert heard(silent).count(b"HTTP/1.1") == 1


def test_a_head_without_end_is_refused(impatient: Settings, serving: Any) -> None:
    with serving(impatient) as client, socket.create_connection(address_of(client), 20) as endless:
        with contextlib.suppress(ConnectionError):
            endless.sendall(b"GET /health HTTP/1.1\r\nX: " + b"x" * 2 * MOST_HEAD)
        assert heard(endless).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    "said", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"HELO mail\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"]
)
def test_what_is_no_http_is_told_so_as_any_other_mistake(impatient: Settings, serving: Any, said: bytes) -> None:
    """E: TLS on the plain port, another protocol, a version that there is none of."""
    with serving(impatient) as client:
        with socket.create_connection(address_of(client), 20) as stranger:
            stranger.sendall(said)
            head, _, body = heard(stranger).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"application/problem+json" in head
        assert json.loads(body)["detail"] == "O que chegou não é HTTP; confira o cliente."
        assert client.get("/health").status_code == 200


def test_empty_lines_after_a_request_have_no_more_time_than_another(impatient: Settings, serving: Any) -> None:
    with serving(impatient) as client, socket.create_connection(address_of(client), 20) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200 OK" in slow.recv(4096)
        assert dribble(slow, b"\r\n" * 200) < 6
        assert heard(slow).startswith(b"HTTP/1.1 408 ")


async def echo_headers(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body to its end, then says which headers the request has."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    names = b",".join(name for name, _ in scope["headers"])
    length = [(b"content-length", str(len(names)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": names})


def test_trailers_are_no_headers(impatient: Settings) -> None:
    with listening(echo_headers, impatient) as address, socket.create_connection(address, 20) as raw:
        raw.sendall(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n")
        raw.sendall(b"Idempotency-Key: from-a-trailer\r\n\r\n")
        assert heard(raw).endswith(b"\r\n\r\ntransfer-encoding")


def test_a_client_that_never_reads_is_left(impatient: Settings) -> None:
    left = threading.Event()

    async def talk_much(scope: Any, _receive: Any, send: Any) -> None:
        """Answers with more than the system's buffers hold."""
        if scope["type"] != "http":
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(200):
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
        left.set()

    with listening(talk_much, impatient) as address, socket.create_connection(address, 20) as deaf:
        deaf.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert left.wait(10), "the server still waits for it"


def test_too_many_requests_in_advance_are_refused(client: httpx.Client) -> None:
    with socket.create_connection(address_of(client), 20) as raw:
        with contextlib.suppress(ConnectionError):
            raw.sendall(b"GET /ready HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 10_000)
        assert heard(raw).count(b"200 OK") < 20
    assert client.get("/health").status_code == 200


def test_pipelined_requests_are_answered_in_their_order(client: httpx.Client) -> None:
    with socket.create_connection(address_of(client), 20) as raw:
        ask = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n"
        raw.sendall(ask % (b"/ready", b"") * 3 + ask % (b"/nada", b"") + ask % (b"/health", b"Connection: close\r\n"))
        said = heard(raw)
    assert re.findall(rb"HTTP/1\.1 (\d+)", said) == [b"200", b"200", b"200", b"404", b"200"]


def test_beyond_the_connections_the_longest_waited_for_gives_way(impatient: Settings, serving: Any) -> None:
    patient = impatient.model_copy(update={"head_seconds": 60.0})
    with serving(patient) as client, contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(socket.create_connection(address_of(client), 20)) for _ in range(8)]
        assert httpx.get(client.base_url.join("/health")).status_code == 200
        assert heard(waiting[0]) == b"", "the first was left"
        waiting[7].sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert heard(waiting[7]).startswith(b"HTTP/1.1 200"), "the last was not"


def test_when_every_connection_is_at_work_one_more_gets_503(impatient: Settings, serving: Any) -> None:
    with serving(impatient) as client, contextlib.ExitStack() as stack:
        address = str(client.base_url).replace("http", "ws", 1).rstrip("/")
        for _ in range(8):
            stack.enter_context(connect(f"{address}/api/governance/ride/confirmation/live", proxy=None))
        refused = httpx.get(client.base_url.join("/health"))

        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["retryable"] is True


def test_a_client_that_goes_away_amid_its_body_is_no_error_of_the_server(
    client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(address_of(client), 20) as raw:
        raw.sendall(HALF + b"Content-Length: 100\r\n\r\n{")
        assert client.get("/health").status_code == 200
    for _ in range(20):
        assert client.get("/health").status_code == 200
    assert not [record for record in caplog.records if record.exc_info]
