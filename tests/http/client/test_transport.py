"""The client: a key before the first attempt, the same one after a crash, and only safe repeats."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider

from tests.http.conftest import bench
from umavez.failures import retry_after
from umavez.http.client import (
    AsyncIdempotentTransport,
    IdempotentTransport,
    IntentChanged,
    Journal,
    KeyWouldLeak,
    Retrying,
    intent,
)
from umavez.http.client.retrying import wants_retry

QUICK = Retrying(attempts=4, first=0.001, longest=0.002)
Reply = httpx.Response | Exception


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "keys.db")
    yield journal
    journal.close()


class Far:
    """A far side that gives the replies it is told to, and notes the keys it saw."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.keys: list[str | None] = []
        self.on_request: Callable[[], object] = lambda: None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.on_request()
        self.keys.append(request.headers.get("idempotency-key"))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply


def client(far: Far, journal: Journal, **options: Any) -> httpx.Client:
    options.setdefault("retrying", QUICK)
    transport = IdempotentTransport(journal, transport=httpx.MockTransport(far), **options)
    return httpx.Client(transport=transport, base_url="http://far")


def problem(status: int, *, retryable: bool, **headers: str) -> httpx.Response:
    headers["content-type"] = "application/problem+json"
    return httpx.Response(status, json={"retryable": retryable}, headers=headers)


def test_the_key_is_on_disk_before_the_first_byte_is_sent(journal: Journal, tmp_path: Path) -> None:
    far = Far(httpx.Response(201))
    seen = []
    far.on_request = lambda: seen.append([entry.key for entry in Journal(tmp_path / "keys.db").unfinished()])
    with client(far, journal) as http:
        http.post("/charges", json={"a": 1})
    assert seen == [far.keys]
    assert journal.unfinished() == []


@pytest.mark.parametrize(
    "trouble",
    [
        httpx.ConnectError("x"),
        httpx.ReadTimeout("x"),
        httpx.WriteError("x"),
        httpx.RemoteProtocolError("x"),
        httpx.Response(503),
        httpx.Response(429, headers={"retry-after": "0"}),
        problem(409, retryable=True),
        httpx.Response(409, headers={"retry-after": "0"}),
        httpx.Response(500),
    ],
)
def test_a_keyed_request_is_repeated_with_its_key(trouble: Reply, journal: Journal) -> None:
    far = Far(trouble, trouble, httpx.Response(201))
    tracer = TracerProvider().get_tracer("test")
    with client(far, journal) as http, tracer.start_as_current_span("charge") as span:
        assert http.post("/charges", json={"a": 1}).status_code == 201
    assert len(far.keys) == 3
    assert len(set(far.keys)) == 1
    told: Any = span
    assert told.attributes["http.request.resend_count"] == 2


@pytest.mark.parametrize(
    "reply",
    [
        httpx.Response(201),
        httpx.Response(400),
        httpx.Response(422),
        httpx.Response(409),
        httpx.Response(410),
        problem(409, retryable=False),
        problem(503, retryable=False),
    ],
)
def test_an_answer_is_not_asked_for_again(reply: httpx.Response, journal: Journal) -> None:
    far = Far(reply)
    with client(far, journal) as http:
        assert http.post("/charges").status_code == reply.status_code
    assert len(far.keys) == 1


@pytest.mark.parametrize("trouble", [httpx.ReadTimeout("x"), httpx.Response(503)])
def test_a_request_without_a_key_that_is_not_idempotent_is_never_repeated(trouble: Reply, journal: Journal) -> None:
    far = Far(trouble)
    with client(far, journal, methods=()) as http:
        if isinstance(trouble, Exception):
            with pytest.raises(httpx.ReadTimeout):
                http.post("/charges")
        else:
            assert http.post("/charges").status_code == 503
    assert far.keys == [None]


def test_idempotent_methods_are_repeated_without_a_key(journal: Journal) -> None:
    far = Far(httpx.ReadError("x"), httpx.Response(200))
    with client(far, journal) as http:
        assert http.get("/charges").status_code == 200
    assert far.keys == [None, None]


def test_an_intent_keeps_its_key_when_everything_failed_and_after_success(journal: Journal) -> None:
    far = Far(httpx.ReadTimeout("x"))
    with client(far, journal) as http:
        with pytest.raises(httpx.ReadTimeout):
            http.post("/charges", json={"a": 1}, extensions=intent("order 17"))
        assert [entry.intent for entry in journal.unfinished()] == ["order 17"]
        far.replies = [httpx.Response(201)]
        for _ in range(2):
            http.post("/charges", json={"a": 1}, extensions=intent("order 17"))
    assert len(set(far.keys)) == 1
    entry = journal.get("order 17")
    assert entry is not None
    assert entry.status == 201


def test_an_intent_with_another_request_is_stopped_before_it_is_sent(journal: Journal) -> None:
    far = Far(httpx.Response(201))
    with client(far, journal) as http:
        http.post("/charges", json={"a": 1}, extensions=intent("order 17"))
        with pytest.raises(IntentChanged):
            http.post("/charges", json={"a": 2}, extensions=intent("order 17"))
        journal.forget("order 17")
        http.post("/charges", json={"a": 2}, extensions=intent("order 17"))
    assert len(set(far.keys)) == 2


def test_requests_without_an_intent_are_operations_of_their_own(journal: Journal) -> None:
    far = Far(httpx.Response(201))
    with client(far, journal) as http:
        http.post("/charges", json={"a": 1})
        http.post("/charges", json={"a": 1})
    assert len(set(far.keys)) == 2


def test_an_outcome_left_open_stays_in_the_journal(journal: Journal) -> None:
    with client(Far(httpx.Response(503)), journal) as http:
        assert http.post("/charges").status_code == 503
    assert len(journal.unfinished()) == 1
    assert journal.sweep(0) == 0


def test_finished_intents_are_swept(journal: Journal) -> None:
    with client(Far(httpx.Response(201)), journal) as http:
        http.post("/charges")
    assert journal.sweep(3600) == 0
    assert journal.sweep(0) == 1


def test_a_callers_own_key_and_the_quoted_form_are_respected(journal: Journal) -> None:
    far = Far(httpx.Response(201))
    with client(far, journal, quoted=True) as http:
        http.post("/charges", headers={"Idempotency-Key": "mine"})
        http.post("/charges")
    assert far.keys[0] == "mine"
    assert str(far.keys[1]).startswith('"')
    assert len(str(far.keys[1])) == 38


def test_a_streamed_body_is_sent_again_whole(journal: Journal) -> None:
    bodies = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(request.read())
        return httpx.Response(503 if len(bodies) == 1 else 201)

    transport = IdempotentTransport(journal, transport=httpx.MockTransport(answer), retrying=QUICK)
    with httpx.Client(transport=transport) as http:
        http.post("http://far/", content=(part for part in (b"a", b"b")))
    assert bodies == [b"ab", b"ab"]


def test_trying_ends_by_count_and_by_time() -> None:
    assert Retrying(attempts=2).after_error(2, 0, safe=True) is None
    assert Retrying(total=1).after_error(1, 2, safe=True) is None
    headers = httpx.Headers({"retry-after": "120"})
    assert Retrying(total=60).after_response(1, 0, 503, headers, b"", safe=True) is None
    assert Retrying(total=300).after_response(1, 0, 503, headers, b"", safe=True) == 120


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3", 3.0),
        ("9" * 5000, 999999999999.0),
        ("Wed, 21 Oct 2015 07:28:10 GMT", 10.0),
        ("Wed, 21 Oct 2015 07:27:00 GMT", 0.0),
        ("soon", None),
        ("²", None),
        ("Wed, 99999999999999999999 Oct 2015 07:28:10 GMT", None),
        ("Wed, 21 Oct 2015 07:28:10 +99999999999999", None),
    ],
)
def test_retry_after_is_a_number_a_date_or_nothing(text: str, seconds: float | None) -> None:
    assert retry_after(text, datetime(2015, 10, 21, 7, 28, tzinfo=UTC)) == seconds


def test_a_problem_document_that_lies_about_its_form_is_not_believed() -> None:
    headers = httpx.Headers({"content-type": "application/problem+json"})
    assert wants_retry(503, headers, b"not json")
    assert wants_retry(503, headers, b'{"retryable": "no"}')
    assert not wants_retry(409, headers, b"[]")
    assert wants_retry(503, headers, b'{"retryable": false, "x":' + b"[" * 100_000)
    assert wants_retry(503, headers, b'{"retryable": false, "x": 1e999999999}')


CRASHING = """
import os, sys, httpx
from umavez.http.client import IdempotentTransport, Journal, intent
def dies(request):
    print(request.headers["idempotency-key"], flush=True)
    os._exit(9)
transport = IdempotentTransport(Journal(sys.argv[1]), transport=httpx.MockTransport(dies))
httpx.Client(transport=transport).post("http://far/", json={"a": 1}, extensions=intent("order 17"))
"""


def test_a_client_that_died_after_sending_sends_the_same_key_again(journal: Journal, tmp_path: Path) -> None:
    died = subprocess.run(
        [sys.executable, "-c", CRASHING, str(tmp_path / "keys.db")], capture_output=True, text=True, check=False
    )
    assert died.returncode == 9
    far = Far(httpx.Response(201))
    with client(far, journal) as http:
        http.post("http://far/", json={"a": 1}, extensions=intent("order 17"))
    assert far.keys == [died.stdout.strip()]


def test_async_client_and_server_agree_end_to_end(journal: Journal) -> None:
    async def talk() -> None:
        async with bench(unknown="rerun") as b:
            b.shop.status = 503
            failures = iter([1])

            async def heal() -> None:
                if next(failures, None) is None:
                    b.shop.status = 201

            b.shop.before = heal
            transport = AsyncIdempotentTransport(journal, transport=httpx.ASGITransport(b.app), retrying=QUICK)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
                for _ in range(2):
                    answer = await http.post(
                        "/orders", json={"a": 1}, headers={"x-user": "ana"}, extensions=intent("order 17")
                    )
                    assert answer.status_code == 201
            assert answer.headers["idempotent-replayed"] == "true"
            assert b.shop.runs == 2

    asyncio.run(talk())


def test_a_key_never_goes_to_another_host(journal: Journal) -> None:
    far = Far(httpx.Response(307, headers={"location": "http://elsewhere/charges"}), httpx.Response(201))

    with client(far, journal) as http, pytest.raises(KeyWouldLeak, match="elsewhere"):
        http.post("/charges", extensions=intent("charge 1"), follow_redirects=True)

    assert len(far.keys) == 1
    assert [entry.intent for entry in journal.unfinished()] == ["charge 1"]


def test_a_redirect_on_the_same_host_keeps_its_key_and_is_not_the_end(journal: Journal) -> None:
    far = Far(httpx.Response(308, headers={"location": "/v2/charges"}), httpx.Response(201, json={}))

    with client(far, journal) as http:
        http.post("/charges", extensions=intent("charge 1"))
        assert journal.unfinished(), "a redirect that nobody followed is no outcome"
        http.post("/charges", extensions=intent("charge 1"), follow_redirects=True)

    assert len(set(far.keys)) == 1
    assert not journal.unfinished()


class Cut(httpx.SyncByteStream):
    """A body that breaks after its first chunk."""

    def __iter__(self) -> Iterator[bytes]:
        yield b'{"charged":'
        raise httpx.ReadError("cut")


class AsyncCut(httpx.AsyncByteStream):
    async def __aiter__(self) -> Any:
        yield b'{"charged":'
        raise httpx.ReadError("cut")


def test_an_answer_that_broke_off_was_not_heard(journal: Journal) -> None:
    far = Far(httpx.Response(201, stream=Cut()), httpx.Response(201, json={"charged": 1}))

    with client(far, journal) as http:
        with pytest.raises(httpx.ReadError):
            http.post("/charges", extensions=intent("charge 1"))
        assert journal.unfinished()
        assert http.post("/charges", extensions=intent("charge 1")).json() == {"charged": 1}

    assert len(set(far.keys)) == 1
    assert not journal.unfinished()


def test_an_awaited_answer_that_broke_off_was_not_heard(journal: Journal) -> None:
    async def main() -> None:
        far = Far(httpx.Response(201, stream=AsyncCut()))
        transport = AsyncIdempotentTransport(journal, transport=httpx.MockTransport(far), retrying=QUICK)
        async with httpx.AsyncClient(transport=transport, base_url="http://far") as http:
            with pytest.raises(httpx.ReadError):
                await http.post("/charges", extensions=intent("charge 1"))

    asyncio.run(main())

    assert journal.unfinished()


def test_the_journal_is_for_its_owner_alone_and_holds_no_password(tmp_path: Path) -> None:
    path = tmp_path / "own.db"
    journal = Journal(path)
    with client(Far(httpx.ConnectError("down")), journal, retrying=Retrying(attempts=1)) as http:
        with pytest.raises(httpx.ConnectError):
            http.post("http://ana:s3cret@far/charges?token=t0ken")
        with pytest.raises(httpx.ConnectError):
            http.post("http://ana:other@far/charges", extensions=intent("charge 1"))
        with pytest.raises(httpx.ConnectError):
            http.post("http://ana:rotated@far/charges", extensions=intent("charge 1"))
    journal.close()

    assert path.stat().st_mode & 0o077 == 0
    assert not any(word in path.read_bytes() for word in (b"s3cret", b"t0ken", b"other", b"rotated", b"ana"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_journal_is_fit_for_use_in_a_forked_child(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "keys.db")
    over = threading.Event()

    def keep_writing() -> None:
        while not over.wait(0.001):
            journal.begin(None, "print", "POST /")

    writing = threading.Thread(target=keep_writing)
    writing.start()
    try:
        statuses = [_in_child(lambda: journal.begin("order 17", "print", "POST /")) for _ in range(20)]
    finally:
        over.set()
        writing.join()
    assert statuses == [0] * 20
    assert len({entry.key for entry in journal.unfinished() if entry.intent == "order 17"}) == 1


def _in_child(work: Callable[[], object]) -> int:
    """The exit status of a forked child that does `work`; killed after some seconds."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


def test_a_callers_own_key_never_goes_to_another_host_either(journal: Journal) -> None:
    far = Far(httpx.Response(307, headers={"location": "http://evil/charges"}), httpx.Response(200))
    with client(far, journal) as c, pytest.raises(KeyWouldLeak, match="evil"):
        c.post("/charges", headers={"Idempotency-Key": "own"}, follow_redirects=True)
    assert far.keys == ["own"]


def test_a_callers_own_key_follows_a_redirect_on_the_same_host(journal: Journal) -> None:
    far = Far(httpx.Response(307, headers={"location": "/v2/charges"}), httpx.Response(201))
    with client(far, journal) as c:
        assert c.post("/charges", headers={"Idempotency-Key": "own"}, follow_redirects=True).status_code == 201
    assert far.keys == ["own", "own"]


def test_a_request_that_is_sent_anew_with_credentials_is_not_over(journal: Journal) -> None:
    """The first answer of an authentication is 401; that of the request itself may be lost after it."""
    asks = httpx.Response(401, headers={"www-authenticate": 'Digest realm="r", nonce="n", algorithm=MD5'})
    far = Far(asks, httpx.ReadError("cut"))
    with client(far, journal) as c, pytest.raises(httpx.ReadError):
        c.post("/charges", auth=httpx.DigestAuth("ana", "secret"), extensions=intent("charge 1"))
    assert [entry.intent for entry in journal.unfinished()] == ["charge 1"]
    assert len(set(far.keys)) == 1


def test_what_was_refused_is_open_again_once_it_is_sent_again(journal: Journal) -> None:
    far = Far(httpx.Response(403), httpx.ReadError("cut"))
    with client(far, journal) as c:
        c.post("/charges", extensions=intent("charge 1"))
        assert journal.unfinished() == []
        with pytest.raises(httpx.ReadError):
            c.post("/charges", extensions=intent("charge 1"))
        assert [entry.intent for entry in journal.unfinished()] == ["charge 1"]
        far.replies = [httpx.Response(201)]
        c.post("/charges", extensions=intent("charge 1"))
    entry = journal.get("charge 1")
    assert entry is not None
    assert (entry.status, journal.unfinished()) == (201, [])
