"""Where an application stands: below a prefix of its server, mounted in another, and at paths strangers make up."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from django.conf import settings

if not settings.configured:
    settings.configure(SECRET_KEY="for tests only", ALLOWED_HOSTS=["*"], DATA_UPLOAD_MAX_MEMORY_SIZE=5000)

from django.http import HttpResponse
from django.test import RequestFactory
from fastapi import FastAPI

from umavez import AsyncOnce, Once, StoreUnavailable
from umavez.core.record import Query
from umavez.http import ANONYMOUS, Route, asgi, wsgi
from umavez.http.contract.route import inside
from umavez.http.django import middleware
from umavez.http.fastapi import idempotent, protect
from umavez.stores.memory import AsyncMemoryStore, MemoryStore

Told = tuple[int, bytes]
KEY = "k-1"


def over_asgi(within: str, path: str, *, method: str = "POST", query: str = "", **options: Any) -> Callable[[], Told]:
    runs: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        runs.append(1)
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"run %d" % len(runs)})

    once = AsyncOnce(options.pop("store", AsyncMemoryStore()), scope="api")
    shell = asgi.Idempotency(app, once=once, principal=ANONYMOUS, **options)

    async def ask() -> Told:
        sent: list[Any] = []
        headers = [(b"idempotency-key", KEY.encode())]
        scope = {"type": "http", "method": method, "path": within + path, "root_path": within, "headers": headers}

        async def receive() -> Any:
            return {"type": "http.request", "body": b"{}"}

        async def send(message: Any) -> None:
            sent.append(message)

        await shell({**scope, "query_string": query.encode()}, receive, send)
        return sent[0]["status"], b"".join(part["body"] for part in sent[1:])

    return lambda: asyncio.run(ask())


def over_wsgi(within: str, path: str, *, method: str = "POST", query: str = "", **options: Any) -> Callable[[], Told]:
    runs: list[int] = []

    def app(environ: Any, start_response: Any) -> list[bytes]:
        runs.append(1)
        start_response("201 Created", [])
        return [b"run %d" % len(runs)]

    once = Once(options.pop("store", MemoryStore()), scope="api")
    shell = wsgi.Idempotency(app, once=once, principal=ANONYMOUS, **options)

    def ask() -> Told:
        lines: list[str] = []
        place = {"SCRIPT_NAME": within, "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": method}
        body = {"CONTENT_LENGTH": "2", "wsgi.input": io.BytesIO(b"{}")}
        answer = shell({**place, **body, "HTTP_IDEMPOTENCY_KEY": KEY}, lambda line, _: lines.append(line))
        return int(lines[0][:3]), b"".join(answer)

    return ask


def over_django(within: str, path: str, *, method: str = "POST", query: str = "", **options: Any) -> Callable[[], Told]:
    runs: list[int] = []

    def view(_: Any) -> HttpResponse:
        runs.append(1)
        return HttpResponse(b"run %d" % len(runs), status=201)

    once = Once(options.pop("store", MemoryStore()), scope="api")
    shell = middleware(once=once, principal=ANONYMOUS, **options)(view)

    def ask() -> Told:
        place = {"SCRIPT_NAME": within, "QUERY_STRING": query, "PATH_INFO": path, "HTTP_IDEMPOTENCY_KEY": KEY}
        answer = shell(RequestFactory().generic(method, "/", b"{}", "application/json", **place))
        return answer.status_code, answer.content

    return ask


SHELLS = [over_asgi, over_wsgi, over_django]
shells = pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell.__name__)


@shells
@pytest.mark.parametrize("declared", ["/orders", "/{kind}", "/api/v1/orders"])
def test_a_route_is_found_below_the_prefix_of_its_application(shell: Any, declared: str) -> None:
    ask = shell("/api/v1", "/orders", routes=[Route("POST", declared, unknown="hold")])
    assert [ask(), ask()] == [(201, b"run 1")] * 2


@shells
def test_a_prefix_that_only_looks_like_one_is_part_of_the_path(shell: Any) -> None:
    ask = shell("", "/api/orders", routes=[Route("POST", "/orders", unknown="hold")])
    assert [ask(), ask()] == [(201, b"run 1"), (201, b"run 2")]


@shells
def test_an_application_that_is_mounted_twice_shows_no_answer_of_its_twin(shell: Any) -> None:
    store = AsyncMemoryStore() if shell is over_asgi else MemoryStore()
    options = {"store": store, "routes": [Route("POST", "/orders", unknown="hold", mismatch="replay")]}
    one, other = shell("/one", "/orders", **options), shell("/other", "/orders", **options)
    assert [one(), one(), other(), other()] == [(201, b"run 1")] * 4
    assert len({record.key.value for record in getattr(store, "_store", store).find(Query())}) == 2


@shells
def test_the_documents_are_found_below_the_prefix_too(shell: Any) -> None:
    routes = [Route("POST", "/orders", unknown="hold")]
    status, body = shell("/api", "/.well-known/idempotency", method="GET", routes=routes)()
    assert (status, json.loads(body)["header"]) == (200, "Idempotency-Key")
    query = "method=POST&path=/api/orders"
    status, body = shell("/api", "/.well-known/idempotency/status", method="GET", query=query, routes=routes)()
    assert (status, json.loads(body)["state"]) == (200, "absent")


@pytest.mark.parametrize(
    ("path", "within", "seen"),
    [
        ("/api/o", "/api", "/o"),
        ("/api", "/api", "/"),
        ("/apiary/o", "/api", "/apiary/o"),
        ("/o", "/api", "/o"),
        ("/o", "", "/o"),
        ("/api//o", "/api/", "/o"),
    ],
)
def test_a_path_is_seen_from_where_the_application_stands(path: str, within: str, seen: str) -> None:
    assert inside(path, within) == seen


def shop() -> FastAPI:
    app = FastAPI()
    runs: list[int] = []

    @app.post("/orders", status_code=201)
    @idempotent(unknown="hold", required=True)
    async def order() -> dict[str, int]:
        runs.append(1)
        return {"run": len(runs)}

    protect(app, once=AsyncOnce("memory:", scope="shop"), principal=ANONYMOUS)
    return app


def _mounted() -> tuple[Any, str]:
    outer = FastAPI()
    outer.mount("/v1", shop())
    return outer, ""


@pytest.mark.parametrize(
    ("made", "path"),
    [
        (lambda: (shop(), "/api"), "/api/orders"),
        (lambda: (shop(), "/api"), "/orders"),
        (_mounted, "/v1/orders"),
    ],
    ids=["a root path that the server keeps", "a root path that a proxy took off", "mounted"],
)
def test_a_fastapi_application_is_enforced_wherever_it_stands(made: Any, path: str) -> None:
    app, root = made()

    async def talk() -> list[tuple[int, Any]]:
        transport = httpx.ASGITransport(app, root_path=root)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            answers = [await client.post(path, headers={"idempotency-key": KEY}) for _ in range(2)]
            answers.append(await client.post(path))
        return [(answer.status_code, answer.json().get("run")) for answer in answers]

    assert asyncio.run(talk()) == [(201, 1), (201, 1), (400, None)]


@shells
@pytest.mark.parametrize("path", ["/notes/\0", "/notes/a\0b", "/notes/\0é"])
def test_a_path_with_nul_is_the_applications_to_refuse(shell: Any, path: str) -> None:
    ask = shell("", path, routes=[Route("POST", "/notes/{name}", unknown="hold")])
    assert [ask(), ask()] == [(201, b"run 1")] * 2


class Away(MemoryStore):
    """Cannot be read."""

    def read(self, key: Any) -> Any:
        raise StoreUnavailable("The store is away.")


class AwaitedAway(AsyncMemoryStore):
    """Cannot be read."""

    async def read(self, key: Any) -> Any:
        raise StoreUnavailable("The store is away.")


@shells
def test_the_status_of_a_key_is_a_problem_while_the_store_is_away(shell: Any) -> None:
    store = AwaitedAway() if shell is over_asgi else Away()
    asked = {"method": "GET", "query": "method=POST&path=/orders"}
    status, body = shell("", "/.well-known/idempotency/status", store=store, unknown="hold", **asked)()
    assert (status, json.loads(body)["type"]) == (503, "urn:umavez:problem:store-unavailable")
