"""The post: one connection for many calls, and every way in which an answer can fail to come told apart."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator

import pytest

from tests.umavez_systems.outgoing.counter import OK, Counter
from umavez_systems.fiscal.ports import AutoridadeError, NadaEnviado, Ocupada, Recusada, SemResposta
from umavez_systems.fiscal.wire import soap
from umavez_systems.fiscal.wire.soap import Correio
from umavez_systems.outgoing import connections


@pytest.fixture
def counter() -> Iterator[Counter]:
    made = Counter()
    yield made
    made.close()


@pytest.fixture
def post() -> Iterator[Correio]:
    made = Correio(ssl.create_default_context())
    yield made
    made.close()


def test_calls_share_a_connection(counter: Counter, post: Correio) -> None:
    assert [post.chamar("POST", counter.address, 5, b"x") for _ in range(3)] == [(200, b"ok")] * 3
    assert counter.connections == 1
    assert counter.requests[0].startswith(b"POST /servico?a=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert counter.requests[0].endswith(b"Content-Length: 1\r\n\r\nx")


def test_one_that_the_authority_left_is_not_used_again(counter: Counter, post: Correio) -> None:
    counter.hang_up = True
    for _ in range(3):
        assert post.chamar("GET", counter.address, 5) == (200, b"ok")
        time.sleep(0.05)  # until its farewell is here
    assert counter.connections == 3


def test_one_that_lay_idle_for_too_long_is_not_used_again(
    counter: Counter, post: Correio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "KEPT", 0.0)
    for _ in range(2):
        post.chamar("GET", counter.address, 5)
    assert counter.connections == 2


def test_one_that_is_to_be_closed_is_closed(counter: Counter, post: Correio) -> None:
    counter.answers = [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na", None]
    assert post.chamar("GET", counter.address, 5) == (200, b"a")
    with pytest.raises(SemResposta):
        post.chamar("GET", counter.address, 5)
    assert post.chamar("GET", counter.address, 5) == (200, b"ok")
    assert counter.connections == 3


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde",
        b"HTTP/1.0 200 OK\r\n\r\nabcde",
    ],
)
def test_an_answer_is_read_to_its_end_however_it_is_marked(counter: Counter, post: Correio, answer: bytes) -> None:
    counter.answers, counter.hang_up = [answer], answer.startswith(b"HTTP/1.0")
    assert post.chamar("GET", counter.address, 5) == (200, b"abcde")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (None, SemResposta),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", SemResposta),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf", SemResposta),
        (b"nothing that is known here\r\n\r\n", SemResposta),
        (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", SemResposta),
        (b"HTTP/1.1 429 No\r\nRETRY-AFTER: 7\r\nContent-Length: 0\r\n\r\n", Ocupada),
        (b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", Recusada),
    ],
)
def test_what_is_no_answer_is_told_by_how_far_it_came(
    counter: Counter, post: Correio, answer: bytes | None, error: type[AutoridadeError]
) -> None:
    counter.answers, counter.hang_up = [answer], True
    with pytest.raises(error) as found:
        post.chamar("POST", counter.address, 5, b"x")
    assert not isinstance(found.value, Ocupada) or found.value.retry_after == 7
    time.sleep(0.05)  # until the server's farewell is here
    assert post.chamar("POST", counter.address, 5, b"x") == (200, b"ok"), "the next call has a connection of its own"


def test_silence_ends_in_time_and_an_endless_answer_is_bounded(
    counter: Counter, post: Correio, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"]
    with pytest.raises(SemResposta, match="ReadTimeout"):
        post.chamar("GET", counter.address, 0.1)
    monkeypatch.setattr(soap, "LARGEST", 3)
    counter.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n123456789"]
    with pytest.raises(SemResposta, match="passa de 3 bytes"):
        post.chamar("GET", counter.address, 5)
    monkeypatch.undo()
    assert post.chamar("GET", counter.address, 5) == (200, b"ok")


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"])
def test_an_answer_that_comes_in_drops_is_not_waited_for_longer_than_another(
    counter: Counter, post: Correio, begun: bytes
) -> None:
    """In its first line, among its headers and in its body: each byte is in time, and all together never end."""
    drops = b"HTTP/1.1 200 OK\r\nX-Wait: " if begun == b"" else b"X-Wait: "
    counter.answers, counter.drops = [begun], drops + b"x" * 1000
    began = time.monotonic()
    with pytest.raises(SemResposta):
        post.chamar("GET", counter.address, 0.5)
    assert time.monotonic() - began < 5


def test_who_takes_a_request_in_sips_is_not_waited_for_either(post: Correio) -> None:
    door = socket.create_server(("127.0.0.1", 0))
    began = time.monotonic()
    with pytest.raises(SemResposta):
        post.chamar("POST", f"http://127.0.0.1:{door.getsockname()[1]}/", 0.3, b"x" * 20_000_000)
    assert time.monotonic() - began < 5
    door.close()


def test_what_comes_behind_an_answer_is_no_answer_to_the_next_call(counter: Counter, post: Correio) -> None:
    counter.answers = [OK + b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold"]
    assert [post.chamar("GET", counter.address, 5) for _ in range(2)] == [(200, b"ok")] * 2
    assert counter.connections == 2
    counter.answers = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 2"]
    assert [post.chamar("GET", counter.address, 5) for _ in range(2)] == [(200, b"ok")] * 2
    assert counter.connections == 3


def test_what_never_left_may_be_sent_again(counter: Counter, post: Correio) -> None:
    counter.close()
    with pytest.raises(NadaEnviado):
        post.chamar("POST", counter.address, 5, b"x")
    with pytest.raises(NadaEnviado):
        post.chamar("POST", "https://nao.existe.invalid/x", 5, b"x")
    with pytest.raises(Recusada):
        post.chamar("POST", "ftp://127.0.0.1/x", 5, b"x")
    with pytest.raises(Recusada):
        post.chamar("POST", counter.address, 5, b"x", {"A": "b\r\nC: d"})


def test_no_more_connections_than_allowed(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST", 1)
    lone = Correio(ssl.create_default_context())
    for answer, error in ((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", SemResposta), (None, SemResposta)):
        counter.answers = [answer]
        with pytest.raises(error):
            lone.chamar("GET", counter.address, 0.1)
    assert lone.chamar("GET", counter.address, 5) == (200, b"ok"), "a failed call gives its place back"
    lone.close()
