"""The shells are twins: one table of what an app does, and the same answers through ASGI, WSGI and both Djangos."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx
import pytest
from django.conf import settings

if not settings.configured:
    settings.configure(SECRET_KEY="for tests only", ALLOWED_HOSTS=["*"], DATA_UPLOAD_MAX_MEMORY_SIZE=5000)

from django.http import HttpResponse, StreamingHttpResponse
from django.test import RequestFactory

from umavez import AsyncOnce, ClaimLost, Once, SchemaOutdated, StoreUnavailable
from umavez._async.admission import AsyncAdmission
from umavez._sync.admission import Admission
from umavez.core.flow import Stale
from umavez.core.key import Key
from umavez.core.record import Query, Settled, Status
from umavez.engine.insistence import not_at_all
from umavez.http import _async as shell_async
from umavez.http import _sync as shell_sync
from umavez.http import asgi, from_header, wsgi
from umavez.http.contract.answer import Answer
from umavez.http.contract.exchange import Exchange
from umavez.http.contract.route import contract
from umavez.http.django import middleware
from umavez.stores.memory import AsyncMemoryStore, MemoryStore

HEADERS = {"x-user": "ana", "idempotency-key": "k1", "content-type": "application/json"}
COMPARED = (
    "cache-control",
    "content-type",
    "idempotency-unprotected",
    "idempotent-replayed",
    "location",
    "retry-after",
    "x-own",
)
TYPE = ("Content-Type", "application/json")


class Does(NamedTuple):
    """What the app answers."""

    status: int = 201
    headers: tuple[tuple[str, str], ...] = (TYPE,)
    body: bytes = b'{"run": 1}'
    streams: bool = False


class Told(NamedTuple):
    """What a client is told."""

    status: int
    headers: dict[str, str]
    body: bytes


def told(status: int, headers: Any, body: bytes) -> Told:
    named = {name.lower(): value for name, value in headers}
    return Told(status, {name: named[name] for name in COMPARED if name in named}, body)


class Heard:
    """An observer that keeps in which words answers were told of."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def __call__(self, _: object) -> None:
        """Events are not looked at here."""

    def told_http(self, operation: str, answer: str) -> None:
        assert operation == "POST *"
        self.words.append(answer)


HEARD = Heard()


class Losing(MemoryStore):
    """Somebody else has taken over by the time an outcome is recorded."""

    def swap(self, expected: str | None, draft: Any) -> Any:
        if draft.status is not Status.PENDING:
            return Stale(None, self._clock.now())
        return super().swap(expected, draft)


class Gone(MemoryStore):
    """Takes no claim."""

    def swap(self, expected: str | None, draft: Any) -> Any:
        raise StoreUnavailable("The store is away.")


def awaited_store(store: MemoryStore) -> AsyncMemoryStore:
    made = AsyncMemoryStore()
    made._store = store
    return made


def over_asgi(does: Does, store: MemoryStore, requests: list[bytes], **options: Any) -> tuple[list[Told], int]:
    runs: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        runs.append(1)
        headers = [(name.encode(), value.encode()) for name, value in does.headers]
        await send({"type": "http.response.start", "status": does.status, "headers": headers})
        await send({"type": "http.response.body", "body": does.body, "more_body": does.streams})
        if does.streams:
            await send({"type": "http.response.body", "body": b""})

    async def talk() -> list[Told]:
        once = AsyncOnce(awaited_store(store), scope="api", observers=[HEARD])
        shell = asgi.Idempotency(app, once=once, principal=from_header("x-user"), **options)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(shell), base_url="http://shop") as client:
            answers = [await client.post("/o", headers=HEADERS, content=body) for body in requests]
        await once.close()
        return [told(answer.status_code, answer.headers.items(), answer.content) for answer in answers]

    return asyncio.run(talk()), len(runs)


def over_wsgi(does: Does, store: MemoryStore, requests: list[bytes], **options: Any) -> tuple[list[Told], int]:
    runs: list[int] = []

    def app(environ: Any, start_response: Any) -> list[bytes]:
        runs.append(1)
        start_response(f"{does.status} Said", list(does.headers))
        return [does.body]

    with Once(store, scope="api", observers=[HEARD]) as once:
        shell = wsgi.Idempotency(app, once=once, principal=from_header("x-user"), **options)
        with httpx.Client(transport=httpx.WSGITransport(shell), base_url="http://shop") as client:
            answers = [client.post("/o", headers=HEADERS, content=body) for body in requests]
    return [told(answer.status_code, answer.headers.items(), answer.content) for answer in answers], len(runs)


def _view(does: Does, runs: list[int]) -> Any:
    runs.append(1)
    made = StreamingHttpResponse([does.body]) if does.streams else HttpResponse(does.body)
    made.status_code = does.status
    for name, value in does.headers:
        made[name] = value
    return made


def _request(body: bytes) -> Any:
    headers = {name: value for name, value in HEADERS.items() if name != "content-type"}
    return RequestFactory().post("/o", body, content_type="application/json", headers=headers)


def _heard(response: Any) -> Told:
    body = b"".join(response.streaming_content) if response.streaming else response.content
    return told(response.status_code, response.items(), body)


def over_django(does: Does, store: MemoryStore, requests: list[bytes], **options: Any) -> tuple[list[Told], int]:
    runs: list[int] = []
    with Once(store, scope="api", observers=[HEARD]) as once:
        shell = middleware(once=once, principal=lambda request: request.headers["x-user"], **options)
        call = shell(lambda _: _view(does, runs))
        return [_heard(call(_request(body))) for body in requests], len(runs)


def over_async_django(does: Does, store: MemoryStore, requests: list[bytes], **options: Any) -> tuple[list[Told], int]:
    runs: list[int] = []

    async def view(request: Any) -> Any:
        return _view(does, runs)

    async def talk() -> list[Told]:
        once = AsyncOnce(awaited_store(store), scope="api", observers=[HEARD])
        shell = middleware(async_once=once, principal=lambda request: request.headers["x-user"], **options)(view)
        answers = [_heard(await shell(_request(body))) for body in requests]
        await once.close()
        return answers

    return asyncio.run(talk()), len(runs)


SHELLS = [over_asgi, over_wsgi, over_django, over_async_django]
TWICE = [b"{}", b"{}"]
OWN = (TYPE, ("Location", "/o/1"), ("X-Own", "1"), ("Cache-Control", "public"))

TABLE: dict[str, tuple[Does, list[bytes], dict[str, Any], type[MemoryStore], list[int], int]] = {
    "a final answer": (Does(), TWICE, {}, MemoryStore, [201, 201], 1),
    "a final refusal": (Does(422), TWICE, {}, MemoryStore, [422, 422], 1),
    "headers of its own": (Does(headers=OWN), TWICE, {}, MemoryStore, [201, 201], 1),
    "headers kept by wish": (Does(headers=OWN), TWICE, {"keep_headers": ["X-Own"]}, MemoryStore, [201, 201], 1),
    "bytes that are no text": (Does(body=b"\xff\x00"), TWICE, {}, MemoryStore, [201, 201], 1),
    "an empty answer": (Does(200, body=b""), TWICE, {}, MemoryStore, [200, 200], 1),
    "not now": (Does(429), TWICE, {}, MemoryStore, [429, 429], 2),
    "a server fault, harmless": (Does(503), TWICE, {}, MemoryStore, [503, 503], 2),
    "a server fault, held": (Does(503), TWICE, {"unknown": "hold"}, MemoryStore, [503, 409], 1),
    "final by wish": (Does(503), TWICE, {"final": {503}}, MemoryStore, [503, 503], 1),
    "not final by wish": (Does(404), TWICE, {"not_final": {404}}, MemoryStore, [404, 404], 2),
    "another body": (Does(), [b"{}", b"[]"], {}, MemoryStore, [201, 422], 1),
    "an answer too large to keep": (Does(), TWICE, {"max_response": 3}, MemoryStore, [201, 410], 1),
    "a body too large": (Does(), [b"[1,2,3]"], {"max_request": 3}, MemoryStore, [413], 0),
    "a lost claim": (Does(), TWICE[:1], {}, Losing, [409], 1),
    "no store": (Does(), TWICE[:1], {}, Gone, [503], 0),
    "no store, open": (Does(), TWICE[:1], {"outage": "open"}, Gone, [201], 1),
}


@pytest.mark.parametrize("case", TABLE)
def test_every_shell_tells_the_same(case: str) -> None:
    """X.03."""
    does, requests, options, store, statuses, runs = TABLE[case]
    told_by = [shell(does, store(), requests, **{"unknown": "rerun", **options}) for shell in SHELLS]
    for answers, ran in told_by:
        assert ([answer.status for answer in answers], ran) == (statuses, runs)
        assert answers == told_by[0][0]


COUNTED = {
    "a final answer": ["first", "replayed"],
    "not now": ["unfinished", "unfinished"],
    "a server fault, held": ["unfinished", "outcome-unknown"],
    "another body": ["first", "key-reused"],
    "an answer too large to keep": ["first", "response-not-kept"],
    "a body too large": ["body-too-large"],
    "a lost claim": ["overtaken"],
    "no store": ["store-unavailable"],
    "no store, open": ["unprotected"],
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("case", COUNTED)
def test_every_shell_counts_the_same(case: str, shell: Callable[..., Any]) -> None:
    does, requests, options, store, _, _ = TABLE[case]
    HEARD.words.clear()
    shell(does, store(), requests, **{"unknown": "rerun", **options})
    assert COUNTED[case] == HEARD.words


@pytest.mark.parametrize("shell", SHELLS)
def test_a_streamed_answer_is_not_kept_by_any_shell(shell: Callable[..., tuple[list[Told], int]]) -> None:
    does = Does(headers=(("Content-Type", "text/event-stream"),), streams=True)
    answers, runs = shell(does, MemoryStore(), TWICE, unknown="rerun")
    assert ([answer.status for answer in answers], answers[0].body, runs) == ([201, 410], does.body, 1)


class Recording:
    """An attempt that keeps what it is told and then raises `error`, if any."""

    def __init__(self, error: Exception | None) -> None:
        self.key = Key("s", "op", "k")
        self.calls: list[Any] = []
        self._error = error

    def _told(self, what: str, value: Any) -> None:
        self.calls.append((what, value if what == "succeed" else type(value)))
        if self._error is not None:
            raise self._error

    def leave_unrecorded(self) -> None:
        self.calls.append(("leave_unrecorded", None))

    def succeed(self, value: Any) -> None:
        self._told("succeed", value)

    def fail(self, error: BaseException) -> None:
        self._told("fail", error)


class AsyncRecording(Recording):
    async def succeed(self, value: Any) -> None:  # type: ignore[override]
        self._told("succeed", value)

    async def fail(self, error: BaseException) -> None:  # type: ignore[override]
        self._told("fail", error)


@pytest.mark.parametrize("error", [None, ClaimLost(Key("s", "o", "v")), StoreUnavailable("away")])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("status", [200, 404, 409, 500])
def test_both_ways_to_record_an_answer_are_one(status: int, whole: bool, error: Exception | None) -> None:
    with Once("memory:", scope="api") as once:
        exchange = Exchange(once.plans, "api", principal=lambda _: "ana", unknown="rerun")
    terms = contract(unknown="rerun")
    answer = Answer(status, [(b"content-type", b"text/plain"), (b"cache-control", b"public")], b"body")
    plain, awaited = Recording(error), AsyncRecording(error)
    one: Any = shell_sync.record(plain, exchange, terms, answer, whole=whole)  # type: ignore[arg-type]
    other: Any = asyncio.run(shell_async.record(awaited, exchange, terms, answer, whole=whole))  # type: ignore[arg-type]
    assert one == other
    assert plain.calls == awaited.calls
    assert one.status == (409 if isinstance(error, ClaimLost) else status)


class Hiccup(MemoryStore):
    """Takes no success, and everything else."""

    def swap(self, expected: str | None, draft: Any) -> Any:
        if draft.status is Status.SUCCESS:
            raise StoreUnavailable("The store is away for a moment.")
        return super().swap(expected, draft)


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell.__name__)
def test_what_happened_and_could_not_be_recorded_does_not_run_again_at_once(
    shell: Callable[..., tuple[list[Told], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for admission in (Admission, AsyncAdmission):
        monkeypatch.setattr(admission.__init__, "__defaults__", (not_at_all, admission.__init__.__defaults__[1]))

    answers, runs = shell(Does(), Hiccup(), [b"{}", b"{}"], unknown="rerun")

    assert [answer.status for answer in answers] == [201, 409]
    assert answers[0].headers["idempotency-unprotected"] == "not-recorded"
    assert runs == 1


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell.__name__)
def test_a_compressed_answer_is_replayed_as_such_and_the_order_of_middleware_is_named(
    shell: Callable[..., tuple[list[Told], int]], caplog: pytest.LogCaptureFixture
) -> None:
    packed = gzip.compress(b'{"run": 1}')
    does = Does(headers=(TYPE, ("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")), body=packed)

    answers, runs = shell(does, MemoryStore(), [b"{}", b"{}"], unknown="rerun")

    # httpx unpacks what says that it is packed; Django's test client leaves it packed.
    assert {answer.body for answer in answers} <= {packed, b'{"run": 1}'}
    assert len({answer.body for answer in answers}) == 1
    assert runs == 1
    assert len([line for line in caplog.messages if "compression outside" in line]) == 1


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell.__name__)
def test_a_store_that_fails_is_logged_with_the_digest_of_the_key(
    shell: Callable[..., tuple[list[Told], int]], caplog: pytest.LogCaptureFixture
) -> None:
    answers, runs = shell(Does(), Gone(), [b"{}"], unknown="rerun")

    (line,) = [record for record in caplog.records if record.name == "umavez.http"]
    assert (answers[0].status, runs, line.levelname) == (503, 0, "WARNING")
    assert "key digest" in line.getMessage()
    assert "k1" not in line.getMessage()


class Tableless(MemoryStore):
    """Was never migrated."""

    def swap(self, expected: str | None, draft: Any) -> Any:
        raise SchemaOutdated("The tables are missing; run: umavez migrate.")


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell.__name__)
def test_missing_tables_are_not_called_retryable(
    shell: Callable[..., tuple[list[Told], int]], caplog: pytest.LogCaptureFixture
) -> None:
    answers, _ = shell(Does(), Tableless(), [b"{}"], unknown="rerun")

    assert answers[0].status == 503
    assert json.loads(answers[0].body)["retryable"] is False
    assert [record.levelname for record in caplog.records if record.name == "umavez.http"] == ["ERROR"]


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell.__name__)
def test_an_outcome_that_cannot_be_read_here_is_neither_shown_nor_run_again(
    shell: Callable[..., tuple[list[Told], int]],
) -> None:
    store = MemoryStore()
    shell(Does(), store, [b"{}"], unknown="rerun")
    for digest, record in list(store._records.items()):
        store._records[digest] = record._replace(settled=Settled(True, '{"$sealed":["old","AAAA"]}'))

    answers, runs = shell(Does(), store, [b"{}"], unknown="rerun")

    assert (answers[0].status, runs) == (503, 0)
    assert b"$sealed" not in answers[0].body


@pytest.mark.parametrize("shell", SHELLS)
def test_a_request_is_kept_with_where_it_came_from(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its traceparent and its id, of the request that ran; a repeat changes nothing, and nonsense is left out."""
    trace = f"00-{'ab' * 16}-{'cd' * 8}-01"
    store = MemoryStore()
    for sent in ({"traceparent": trace, "x-request-id": "req-7"}, {"traceparent": "x", "x-request-id": "req-8"}):
        for name, value in sent.items():
            monkeypatch.setitem(HEADERS, name, value)
        shell(Does(), store, TWICE[:1], unknown="rerun")
    (record,) = store.find(Query())
    origin = store.origin(record.key)
    assert origin is not None
    assert (origin.trace, origin.request) == (trace, "req-7")

    monkeypatch.setitem(HEADERS, "idempotency-key", "k2")
    monkeypatch.setitem(HEADERS, "x-request-id", "a b")
    shell(Does(), store, TWICE[:1], unknown="rerun")
    assert [store.origin(record.key) for record in store.find(Query(newest_first=True))].count(None) == 1


@pytest.mark.parametrize(
    ("trace", "request_id"),
    [
        ("0" * 1_000_000, "x" * 1_000_000),
        (f"ff-{'ab' * 16}-{'cd' * 8}-01", "a\x01b"),
        (f"00-{'ab' * 16}-{'cd' * 8}-01\x00", "a\tb"),
        (f"00-{'ab' * 16}-{'cd' * 8}-01" * 2, "\x7f"),
    ],
    ids=["a million", "no version", "NUL", "twice"],
)
@pytest.mark.parametrize("shell", SHELLS)
def test_what_strangers_send_for_an_origin_is_left_out(
    shell: Any, trace: str, request_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    monkeypatch.setitem(HEADERS, "traceparent", trace)
    monkeypatch.setitem(HEADERS, "x-request-id", request_id)

    answers, runs = shell(Does(), store, TWICE[:1], unknown="rerun")

    assert (answers[0].status, runs) == (201, 1)
    (record,) = store.find(Query())
    assert store.origin(record.key) is None
