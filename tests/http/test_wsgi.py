"""The WSGI shell: the same contract as over ASGI, for apps called with environ and start_response."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from umavez import Once, StoreUnavailable
from umavez.http import from_header
from umavez.http.contract.body import declared_length
from umavez.http.wsgi import Idempotency
from umavez.stores.memory import MemoryStore


class Shop:
    """A WSGI app whose every run counts."""

    def __init__(self) -> None:
        self.runs = 0
        self.status = "201 Created"
        self.headers = [("Content-Type", "application/json"), ("Set-Cookie", "a=b"), ("Location", "/o/1")]
        self.chunks: list[bytes] | None = None
        self.bodies: list[bytes] = []
        self.closed = 0
        self.gate: threading.Event | None = None

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        self.runs += 1
        self.bodies.append(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
        if self.gate is not None:
            self.gate.wait(5)
        start_response(self.status, self.headers)
        return Chunks(self, [b"%d" % self.runs] if self.chunks is None else self.chunks)


class Chunks:
    def __init__(self, shop: Shop, chunks: list[bytes]) -> None:
        self._shop = shop
        self._chunks = iter(chunks)

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks

    def close(self) -> None:
        self._shop.closed += 1


class Bench:
    def __init__(self, store: Any = "memory:", **options: Any) -> None:
        self.shop = Shop()
        self.once = Once(store, scope="api")
        options.setdefault("unknown", "rerun")
        self.app = Idempotency(self.shop, once=self.once, principal=from_header("x-user"), **options)

    def post(self, key: str | None = "k1", **request: Any) -> httpx.Response:
        headers = {"x-user": "ana"} | ({} if key is None else {"idempotency-key": key})
        with httpx.Client(transport=httpx.WSGITransport(self.app), base_url="http://shop") as client:
            return client.request(request.pop("method", "POST"), request.pop("path", "/o"), headers=headers, **request)


@contextmanager
def bench(store: Any = "memory:", **options: Any) -> Iterator[Bench]:
    b = Bench(store, **options)
    with b.once:
        yield b


def test_a_repeat_gets_the_first_answer_without_its_cookie() -> None:
    with bench() as b:
        first, again = b.post(json={"a": 1}), b.post(json={"a": 1.0})
        assert first.content == again.content == b"1"
        assert (first.status_code, again.status_code) == (201, 201)
        assert again.headers["idempotent-replayed"] == "true"
        assert again.headers["location"] == "/o/1"
        assert "set-cookie" in first.headers
        assert "set-cookie" not in again.headers
        assert first.headers["cache-control"] == again.headers["cache-control"] == "no-store"
        assert b.post(json={"a": 2}).status_code == 422
        assert (b.shop.runs, b.shop.closed) == (1, 1)


def test_refusals_are_problem_documents() -> None:
    with bench(required=True, max_request=10) as b:
        for key, body, status in ((None, b"", 400), ("a,b", b"", 400), ("a b", b"", 400), ("k", b"x" * 11, 413)):
            refused = b.post(key, content=body)
            assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json")
        assert b.shop.runs == 0


def test_a_repeat_while_the_first_runs_is_told_to_come_back() -> None:
    with bench() as b:
        b.shop.gate = threading.Event()
        first = threading.Thread(target=b.post)
        first.start()
        while not b.shop.runs:
            pass
        busy = b.post()
        assert (busy.status_code, busy.headers["retry-after"]) == (409, "1")
        b.shop.gate.set()
        first.join()
        assert b.post().content == b"1"


@pytest.mark.parametrize(("status", "again"), [("503 Away", 503), ("429 Slow", 429), ("404 None", 404)])
def test_what_is_final_is_the_same_as_over_asgi(status: str, again: int) -> None:
    with bench() as b:
        b.shop.status = status
        b.post()
        assert b.post().status_code == again
        assert b.shop.runs == (1 if again == 404 else 2)


def test_a_large_answer_goes_out_once_and_is_gone_afterwards() -> None:
    with bench(max_response=10) as b:
        b.shop.chunks = [b"x" * 8] * 5
        assert b.post().content == b"x" * 40
        assert b.post().status_code == 410
        assert (b.shop.runs, b.shop.closed) == (1, 1)


def test_a_stream_is_recorded_before_its_first_byte_and_closed_after_its_last() -> None:
    with bench(stream=True) as b:

        def broken(environ: Any, start_response: Any) -> Iterator[bytes]:
            b.shop.runs += 1
            start_response("200 OK", [])
            yield b"half"
            raise RuntimeError("cut")

        b.app.app = broken
        with pytest.raises(RuntimeError):
            b.post()
        assert b.post().status_code == 410
        assert b.shop.runs == 1


def test_a_stream_that_nobody_reads_is_closed_too() -> None:
    with bench(stream=True) as b:
        environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/o", "HTTP_IDEMPOTENCY_KEY": "k", "HTTP_X_USER": "ana"}
        answer: Any = b.app({**environ, "wsgi.input": io.BytesIO()}, lambda *_: None)
        answer.close()
        answer.close()
        assert b.shop.closed == 1


class Gone(MemoryStore):
    """Takes no claim."""

    def swap(self, expected: str | None, draft: Any) -> Any:
        raise StoreUnavailable("The store is away.")


@pytest.mark.parametrize(
    ("store", "options"),
    [(MemoryStore, {"stream": True}), (Gone, {"outage": "open"})],
    ids=["a stream", "the store is away"],
)
def test_a_spooled_upload_is_open_as_long_as_its_answer_goes_out(store: Any, options: dict[str, Any]) -> None:
    def echo(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        while piece := environ["wsgi.input"].read(2000):
            yield piece

    with Once(store(), scope="api") as once:
        shell = Idempotency(echo, once=once, principal=from_header("x-user"), unknown="hold", memory=1000, **options)
        with httpx.Client(transport=httpx.WSGITransport(shell), base_url="http://shop") as client:
            headers = {"x-user": "ana", "idempotency-key": "k"}
            assert client.post("/o", headers=headers, content=b"y" * 5000).content == b"y" * 5000


def test_an_error_page_after_the_first_byte_is_refused_as_a_server_would() -> None:
    with bench(stream=True) as b:

        def broken(environ: Any, start_response: Any) -> Iterator[bytes]:
            start_response("200 OK", [])
            yield b"half"
            try:
                bytes(-1)
            except ValueError:
                start_response("500 Error", [], sys.exc_info())
                yield b"an error page, as if it were the other half"

        b.app.app = broken
        with pytest.raises(ValueError, match="negative count"):
            b.post()


def test_a_spooled_upload_reaches_the_app_whole() -> None:
    with bench(memory=1000) as b:
        b.post(content=b"y" * 5000)
        assert b.shop.bodies == [b"y" * 5000]
        assert b.post(content=b"y" * 5000).headers["idempotent-replayed"] == "true"
        assert b.post(content=b"z" * 5000).status_code == 422


def test_a_body_without_length_is_read_where_the_server_marks_its_end() -> None:
    with bench() as b:
        for mark in (True, False):
            environ = {
                "REQUEST_METHOD": "POST",
                "PATH_INFO": "/o",
                "HTTP_IDEMPOTENCY_KEY": f"k{mark}",
                "HTTP_X_USER": "ana",
                "wsgi.input": io.BytesIO(b"chunks"),
                "wsgi.input_terminated": mark,
            }
            b.app(environ, lambda *_: None)
        assert b.shop.bodies == [b"chunks", b""]


class Away(MemoryStore):
    def swap(self, expected: str | None, draft: Any) -> Any:
        raise StoreUnavailable("The store is away.")


def test_without_the_store_a_route_is_closed_or_says_that_it_is_open() -> None:
    with bench(Away()) as b:
        assert b.post().status_code == 503
        assert b.shop.runs == 0
    with bench(Away(), outage="open") as b:
        answer = b.post(content=b"body")
        assert (answer.status_code, answer.headers["idempotency-unprotected"]) == (201, "store-outage")
        assert b.shop.bodies == [b"body"]


def test_the_entity_is_shown_as_it_is_now() -> None:
    with bench(replay="entity") as b:
        b.post()
        b.shop.status, b.shop.chunks = "200 OK", [b"now"]
        again = b.post()
        assert (again.status_code, again.content) == (201, b"now")


def test_the_policy_and_the_status_of_a_key_can_be_asked() -> None:
    with bench() as b:
        b.post()
        assert b.post(method="GET", path="/.well-known/idempotency").json()["header"] == "Idempotency-Key"
        asked = {"method": "GET", "path": "/.well-known/idempotency/status?method=POST&path=/o"}
        assert b.post(**asked).json()["state"] == "finished"
        assert b.post("other", **asked).json()["state"] == "absent"
        assert b.post(method="GET", path=asked["path"] + "&x=1" * 19).status_code == 400


@pytest.mark.parametrize(
    "body", [b'{"a":1e999999999}', b'{"a":' + b"[" * 100_000, b'{"a":"\\ud800"}', b'{"a":1,"a":2}']
)
def test_a_body_beyond_the_bounds_of_json_is_passed_on_and_counts_by_its_bytes(body: bytes) -> None:
    with bench() as b:
        first, again, other = (b.post(content=text) for text in (body, body, body + b" "))
        assert (first.status_code, again.headers["idempotent-replayed"], other.status_code) == (201, "true", 422)
        assert b.shop.bodies == [body]


@pytest.mark.parametrize(
    ("text", "number"),
    [(None, None), ("", None), ("12", 12), (b"12", 12), ("²", None), ("-1", None), (" 1", None), ("9" * 5000, 10**18)],
)
def test_a_declared_length_is_digits_or_nothing(text: str | bytes | None, number: int | None) -> None:
    assert declared_length(text) == number


def test_paths_are_text_whatever_their_bytes() -> None:
    with bench() as b:
        for path in ("/caf%C3%A9", "/%FF%FE", "/" + "x" * 400):
            assert b.post(path=path).status_code == 201
            assert b.post(path=path).headers["idempotent-replayed"] == "true"


def test_a_body_that_ends_early_is_not_run(caplog: pytest.LogCaptureFixture) -> None:
    with bench() as b:
        told: list[str] = []
        environ = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": "/o",
            "HTTP_X_USER": "ana",
            "HTTP_IDEMPOTENCY_KEY": "k1",
            "CONTENT_LENGTH": "11",
            "CONTENT_TYPE": "application/json",
            "wsgi.input": io.BytesIO(b'{"a": 123'),
        }

        body = b"".join(b.app(environ, lambda status, *_: told.append(status)))

        assert (told, b.shop.runs) == (["400 Bad Request"], 0)
        assert b'"retryable": true' in body
        assert b.post(content=b'{"a": 1234}').status_code == 201, "the whole request has its key still"
