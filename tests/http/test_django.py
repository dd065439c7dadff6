"""The Django middleware, sync and async: the same contract, on Django's own requests and transactions."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

if not settings.configured:
    settings.configure(SECRET_KEY="for tests only", ALLOWED_HOSTS=["*"], DATA_UPLOAD_MAX_MEMORY_SIZE=5000)

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.test import RequestFactory

from umavez import AsyncOnce, ConfigurationError, Once
from umavez.http import Route
from umavez.http.django import middleware, waiting


class Views:
    """Views that count; `make` builds the next response."""

    def __init__(self) -> None:
        self.runs = 0
        self.make: Any = lambda run: JsonResponse({"run": run}, status=201)

    def sync(self, request: Any) -> Any:
        self.runs += 1
        assert request.umavez.attempt.number >= 1
        response = self.make(self.runs)
        response.set_cookie("session", "secret")
        return response

    async def aio(self, request: Any) -> Any:
        await asyncio.sleep(0)
        return self.sync(request)


class Bench:
    """Either kind of project behind the middleware."""

    def __init__(self, kind: str, **options: Any) -> None:
        self.views = Views()
        self._kind = kind
        options.setdefault("unknown", "rerun")
        self._once: Any = Once("memory:", scope="s") if kind == "sync" else AsyncOnce("memory:", scope="s")
        engine = {"once" if kind == "sync" else "async_once": self._once}
        made = middleware(principal=lambda request: request.headers.get("x-user"), **engine, **options)
        self._call = made(self.views.sync if kind == "sync" else self.views.aio)
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        closing = self._once.close()
        if closing is not None:
            self._loop.run_until_complete(closing)
        self._loop.close()

    def ask(
        self, method: str = "POST", path: str = "/o", key: str | None = "k", user: str | None = "ana", body: Any = None
    ) -> Any:
        headers = {"x-user": user} if user else {}
        headers |= {"idempotency-key": key} if key is not None else {}
        data = {} if method == "GET" else {"data": json.dumps(body or {}), "content_type": "application/json"}
        request = getattr(RequestFactory(), method.lower())(path, headers=headers, **data)
        answer = self._call(request)
        return answer if self._kind == "sync" else self._loop.run_until_complete(answer)


@pytest.fixture(params=["sync", "async"])
def bench(request: pytest.FixtureRequest) -> Iterator[Callable[..., Bench]]:
    """Makes benches of either kind, and closes them."""
    made: list[Bench] = []

    def make(**options: Any) -> Bench:
        made.append(Bench(request.param, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_repeat_gets_the_first_answer_without_its_cookie(bench: Callable[..., Bench]) -> None:
    b = bench()
    first, again, other = b.ask(), b.ask(), b.ask(body={"a": 1})
    assert (first.status_code, first.content) == (201, b'{"run": 1}') == (again.status_code, again.content)
    assert again["Idempotent-Replayed"] == "true"
    assert first["Cache-Control"] == again["Cache-Control"] == "no-store"
    assert "session" in first.cookies
    assert "session" not in again.cookies
    assert other.status_code == 422
    assert b.views.runs == 1


def test_refusals_are_problem_documents(bench: Callable[..., Bench]) -> None:
    b = bench(required=True)
    for key, body, status in ((None, None, 400), ("a b", None, 400), ("a,b", None, 400), ("k", "x" * 6000, 413)):
        refused = b.ask(key=key, body=body)
        assert (refused.status_code, refused["Content-Type"]) == (status, "application/problem+json")
    assert b.views.runs == 0


def test_server_errors_free_the_key_and_refusals_are_final(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.views.make = lambda run: HttpResponse(status=503 if run == 1 else 404)
    assert [b.ask().status_code for _ in range(3)] == [503, 404, 404]
    assert b.views.runs == 2


def test_a_stream_is_not_kept_and_does_not_run_again(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.views.make = lambda _: StreamingHttpResponse(iter([b"a", b"b"]))
    assert b"".join(b.ask().streaming_content) == b"ab"
    assert b.ask().status_code == 410
    assert b.views.runs == 1


def test_who_is_not_identified_goes_to_the_view(bench: Callable[..., Bench]) -> None:
    b = bench()
    with pytest.raises(AttributeError):
        b.ask(user=None)
    assert b.ask(method="GET", user="ana", key=None, path="/.well-known/idempotency").status_code == 200


def test_an_error_of_the_view_is_its_own(bench: Callable[..., Bench]) -> None:
    b = bench(unknown="hold")

    def fail(_: int) -> None:
        raise KeyError("mine")

    b.views.make = fail
    with pytest.raises(KeyError):
        b.ask()
    assert b.ask().status_code == 409


def test_status_and_policy_can_be_asked(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.ask()
    found = b.ask("GET", "/.well-known/idempotency/status?method=POST&path=/o")
    assert json.loads(found.content)["state"] == "finished"
    assert b.ask("GET", "/.well-known/idempotency/status", user=None).status_code == 401
    assert b.ask("GET", "/.well-known/idempotency/status?method=POST&path=/o" + "&x=1" * 19).status_code == 400


def test_an_engine_is_needed_and_both_must_share_their_scope() -> None:
    with pytest.raises(ConfigurationError):
        middleware(principal=lambda _: "a", unknown="rerun")
    with pytest.raises(ConfigurationError):
        middleware(
            once=Once("memory:", scope="a"),
            async_once=AsyncOnce("memory:", scope="b"),
            principal=lambda _: "a",
            unknown="rerun",
        )
    with pytest.raises(ConfigurationError):
        middleware(once=Once("memory:", scope="a"), principal=lambda _: "a", unknown="rerun", replay="entity")


JOINED = """
import sys
from django.conf import settings
settings.configure(SECRET_KEY="x", ALLOWED_HOSTS=["*"], DATABASES={"default": {
    "ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1], "OPTIONS": {"transaction_mode": "IMMEDIATE"}}})
import django
django.setup()
from django.db import connection
from django.http import HttpResponse
from django.test import RequestFactory
from umavez import Once
from umavez.http import Route
from umavez.http.django import atomic, middleware
once = Once(f"sqlite:///{sys.argv[1]}?journal=delete", scope="s")
once.migrate()
with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE orders (name TEXT)")
statuses = [500, 201, 201]
def view(request):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES ('one')")
    return HttpResponse(status=statuses.pop(0))
app = middleware(once=once, principal=lambda _: "a", routes=[Route("POST", "/o", joined=atomic)])(view)
for _ in range(3):
    print(app(RequestFactory().post("/o", headers={"idempotency-key": "k"})).status_code)
"""


def test_a_joined_view_commits_its_rows_with_its_response(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", JOINED, str(tmp_path / "shop.db")], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["500", "201", "201"], done.stderr
    connection = sqlite3.connect(tmp_path / "shop.db")
    assert connection.execute("SELECT count(*) FROM orders").fetchall() == [(1,)]
    connection.close()


MARKED = (
    JOINED[: JOINED.index("statuses =")]
    + """
from django.db import IntegrityError, models, transaction
class Order(models.Model):
    name = models.TextField(unique=True)
    class Meta:
        app_label, db_table = "shop", "orders"
with connection.cursor() as cursor:
    cursor.execute("DROP TABLE orders")
    cursor.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT UNIQUE)")
runs = []
def view(request):
    status = int(request.headers["x-status"])
    runs.append(status)
    Order.objects.create(name=f"order {status}")
    try:
        Order.objects.create(name=f"order {status}")
    except IntegrityError:
        return HttpResponse(status=status)
app = middleware(once=once, principal=lambda _: "a", routes=[Route("POST", "/o", joined=atomic)])(view)
for status in (404, 404, 201):
    headers = {"idempotency-key": f"k{status}", "x-status": str(status)}
    try:
        print(app(RequestFactory().post("/o", headers=headers)).status_code)
    except Exception as error:
        print(type(error).__name__)
print(len(runs), Order.objects.count())
"""
)


def test_a_transaction_that_django_rolls_back_unasked_is_no_outcome(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MARKED, str(tmp_path / "shop.db")], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["404", "404", "ConfigurationError", "3", "0"], done.stderr


SIGNED_IN = """
import asyncio
import sys
from django.conf import settings
apps = ["auth", "contenttypes", "sessions"]
own = ["sessions.middleware.SessionMiddleware", "auth.middleware.AuthenticationMiddleware"]
settings.configure(SECRET_KEY="x", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, LOGGING_CONFIG=None,
    INSTALLED_APPS=[f"django.contrib.{name}" for name in apps],
    MIDDLEWARE=[*(f"django.contrib.{name}" for name in own), "__main__.Idempotency"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}})
import django
django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from django.http import HttpResponse
from django.test import AsyncClient, Client
from django.urls import path
from umavez import AsyncOnce, Once
from umavez.http.django import middleware, user_id
call_command("migrate", verbosity=0)
for name in ("ana", "rui"):
    User.objects.create_user(name, password="x")
runs = []
def view(request):
    runs.append(1)
    return HttpResponse(f"{request.user.pk}", status=201)
async def awaited(request):
    runs.append(1)
    return HttpResponse(f"{(await request.auser()).pk}", status=201)
urlpatterns = [path("view", view), path("awaited", awaited)]
once, async_once = Once("memory:", scope="s"), AsyncOnce("memory:", scope="s")
Idempotency = middleware(once=once, async_once=async_once, principal=user_id, unknown="hold")
headers = {"idempotency-key": "k"}
def told(answer):
    print(answer.status_code, answer.content.decode(), answer.get("idempotency-unprotected", "-"))
for name in ("ana", "rui", None):
    client = Client()
    if name:
        client.login(username=name, password="x")
    for _ in range(2 if name else 1):
        told(client.post("/view", headers=headers))
async def talk():
    for name in ("ana", "rui"):
        client = AsyncClient()
        await client.alogin(username=name, password="x")
        for _ in range(2):
            told(await client.post("/awaited", headers=headers))
asyncio.run(talk())
print(len(runs))
"""


def test_djangos_own_user_is_the_principal_in_threads_and_in_tasks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIGNED_IN, str(tmp_path / "shop.db")], capture_output=True, text=True, check=False
    )
    twice = ["201 1 -", "201 1 -", "201 2 -", "201 2 -"]
    assert done.stdout.splitlines() == [*twice, "201 None no-principal", *twice, "5"], done.stderr


INSERTING = "INSERT INTO orders VALUES ('one')"


def orders(path: Path) -> str:
    """The URL of a file that has orders, which transactions can be joined on."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE orders (name TEXT)")
    connection.close()
    return f"sqlite:///{path}?journal=delete"


def posted() -> Any:
    return RequestFactory().post("/o", headers={"idempotency-key": "k"})


def test_a_view_that_commits_sqlalchemys_transaction_is_told_and_has_one_effect(tmp_path: Path) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    path, runs = tmp_path / "shop.db", []
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")

    def view(request: Any) -> Any:
        runs.append(request.umavez.connection.execute(sqlalchemy.text(INSERTING)))
        request.umavez.connection.commit()
        return HttpResponse("done", status=201)

    with Once(orders(path), scope="s") as once:
        once.migrate()
        routes = [Route("POST", "/o", joined=engine.begin)]
        app = middleware(once=once, principal=lambda _: "a", routes=routes)(view)
        with pytest.raises(ConfigurationError, match="leave commit and rollback to joined="):
            app(posted())
        assert app(posted())["Idempotent-Replayed"] == "true"
    engine.dispose()
    assert len(runs) == 1


def test_an_awaited_view_that_commits_sqlalchemys_transaction_is_told_and_has_one_effect(tmp_path: Path) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    path, runs = tmp_path / "shop.db", []

    async def view(request: Any) -> Any:
        runs.append(await request.umavez.connection.execute(sqlalchemy.text(INSERTING)))
        await request.umavez.connection.commit()
        return HttpResponse("done", status=201)

    async def talk() -> None:
        engine = pytest.importorskip("sqlalchemy.ext.asyncio").create_async_engine(f"sqlite+aiosqlite:///{path}")
        async with AsyncOnce(orders(path), scope="s") as once:
            await once.migrate()
            routes = [Route("POST", "/o", joined=engine.begin)]
            app = middleware(async_once=once, principal=lambda _: "a", routes=routes)(view)
            with pytest.raises(ConfigurationError, match="leave commit and rollback to joined="):
                await app(posted())
            assert (await app(posted()))["Idempotent-Replayed"] == "true"
        await engine.dispose()

    asyncio.run(talk())
    assert len(runs) == 1


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_joined_view_that_streams_commits_what_it_streams_and_repeats_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "shop.db"

    def parts(connection: sqlite3.Connection) -> Iterator[bytes]:
        yield b"a"
        connection.execute(INSERTING)
        yield b"b"

    async def awaited_parts(connection: sqlite3.Connection) -> AsyncIterator[bytes]:
        for part in parts(connection):
            yield part

    @contextmanager
    def begun() -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            assert connection.execute("SELECT count(*) FROM orders").fetchall() == [(1,)]
            connection.execute("COMMIT")

    def heard(app: Any) -> tuple[int, bytes]:
        answer = app(posted())
        return answer.status_code, b"".join(answer)

    with Once(orders(path), scope="s") as once:
        once.migrate()
        stream = parts if kind == "sync" else awaited_parts
        routes = [Route("POST", "/o", joined=begun)]
        app = middleware(once=once, principal=lambda _: "a", routes=routes)(
            lambda request: StreamingHttpResponse(stream(request.umavez.connection))
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Django minds an awaited stream in a project of threads
            assert [heard(app), heard(app)] == [(200, b"ab")] * 2


def test_an_awaited_joined_view_that_streams_repeats_what_it_streamed(tmp_path: Path) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    path = tmp_path / "shop.db"

    async def parts(connection: Any) -> AsyncIterator[bytes]:
        yield b"a"
        await connection.execute(sqlalchemy.text(INSERTING))
        yield b"b"

    async def view(request: Any) -> Any:
        return StreamingHttpResponse(parts(request.umavez.connection))

    async def talk() -> list[bytes]:
        engine = pytest.importorskip("sqlalchemy.ext.asyncio").create_async_engine(f"sqlite+aiosqlite:///{path}")
        async with AsyncOnce(orders(path), scope="s") as once:
            await once.migrate()
            routes = [Route("POST", "/o", joined=engine.begin)]
            app = middleware(async_once=once, principal=lambda _: "a", routes=routes)(view)
            first, again = await app(posted()), await app(posted())
        await engine.dispose()
        return [b"".join([part async for part in first]), again.content]

    assert asyncio.run(talk()) == [b"ab", b"ab"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM orders").fetchall() == [(1,)]


def test_routes_may_have_contracts_of_their_own(bench: Callable[..., Bench]) -> None:
    b = bench(routes=[Route("PUT", "/o/{id}", unknown="hold", required=True)])
    assert b.ask("PUT", "/o/1", key=None).status_code == 400
    assert b.ask("PUT", "/o/1").status_code == 201
    assert b.ask("PUT", "/o/1")["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in b.ask("PUT", "/o/2").headers


def test_a_truncated_body_is_not_run() -> None:
    bench = Bench("sync")
    request = RequestFactory().post(
        "/o",
        data='{"a": 123',
        content_type="application/json",
        headers={"x-user": "ana", "idempotency-key": "k"},
    )
    request.META["CONTENT_LENGTH"] = "11"

    answer = bench._call(request)

    assert (answer.status_code, bench.views.runs) == (400, 0)
    assert json.loads(answer.content)["retryable"] is True
    bench.close()


def test_a_sync_middleware_under_asgi_is_refused() -> None:
    bench = Bench("sync")
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/o",
        "headers": [(b"x-user", b"ana"), (b"idempotency-key", b"k")],
        "query_string": b"",
    }

    with pytest.raises(ConfigurationError, match="async_once"):
        bench._call(ASGIRequest(scope, BytesIO(b"{}")))

    assert bench.views.runs == 0
    bench.close()


def test_a_client_that_leaves_makes_no_room_while_its_view_runs() -> None:
    """Django cancels the request of a client that has left; the view goes on, and counts until its end."""

    async def story() -> list[int]:
        began, may_end = asyncio.Event(), asyncio.Event()

        async def view(_: Any) -> Any:
            began.set()
            await may_end.wait()
            return JsonResponse({}, status=201)

        async with AsyncOnce("memory:", scope="s") as once:
            call = middleware(principal=lambda _: "ana", async_once=once, unknown="rerun", in_flight=1)(view)

            async def ask(key: str) -> int:
                request = RequestFactory().post("/o", "{}", "application/json", headers={"idempotency-key": key})
                return int((await call(request)).status_code)

            leaving = asyncio.create_task(ask("first"))
            await began.wait()
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            told = [await asyncio.wait_for(ask("second"), 30)]
            may_end.set()
            await asyncio.gather(*waiting._WORKING)
            return [*told, await ask("second")]

    assert asyncio.run(story()) == [429, 201]
