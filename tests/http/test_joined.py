"""Joined routes: what the handler writes and the response that is replayed commit together, or not at all."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from umavez import AsyncOnce, ConfigurationError, Once
from umavez.http import Route, from_header
from umavez.http._async import is_ended, mark_of
from umavez.http.asgi import Idempotency as AsgiIdempotency
from umavez.http.wsgi import Idempotency as WsgiIdempotency

HEADERS = {"x-user": "ana", "idempotency-key": "k1"}


@contextmanager
def transaction(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        connection.close()


def rows(path: Path) -> list[Any]:
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT name FROM orders").fetchall()
    connection.close()
    return found


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[tuple[Path, Once]]:
    path = tmp_path / "shop.db"
    with Once(f"sqlite:///{path}?journal=delete", scope="shop") as once:
        once.migrate()
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE orders (name TEXT)")
        connection.close()
        yield path, once


class Handler:
    """A WSGI app that writes one row through the request's transaction."""

    def __init__(self) -> None:
        self.status = "201 Created"
        self.error: Exception | None = None
        self.runs = 0
        self.ending: str | None = None

    def __call__(self, environ: Any, start_response: Any) -> list[bytes]:
        self.runs += 1
        environ["umavez"].connection.execute("INSERT INTO orders VALUES ('one')")
        if self.ending is not None:
            environ["umavez"].connection.execute(self.ending)
        if self.error is not None:
            raise self.error
        start_response(self.status, [("Content-Type", "application/json")])
        return [json.dumps({"run": self.runs}).encode()]


def test_effect_and_response_commit_together(shop: tuple[Path, Once]) -> None:
    path, once = shop
    handler = Handler()
    routes = [Route("POST", "/orders", joined=lambda: transaction(path), required=True)]
    app = WsgiIdempotency(handler, once=once, principal=from_header("x-user"), routes=routes)
    with httpx.Client(transport=httpx.WSGITransport(app), base_url="http://shop", headers=HEADERS) as client:
        first, again = client.post("/orders"), client.post("/orders")
        assert first.json() == again.json() == {"run": 1}
        assert again.headers["idempotent-replayed"] == "true"
        assert (len(rows(path)), handler.runs) == (1, 1)
        assert client.post("/orders", json={"other": 1}).status_code == 422


@pytest.mark.parametrize("status", ["500 Broken", "429 Slow", "503 Away"])
def test_an_answer_that_is_no_outcome_rolls_the_effect_back(status: str, shop: tuple[Path, Once]) -> None:
    path, once = shop
    handler = Handler()
    routes = [Route("POST", "/orders", joined=lambda: transaction(path))]
    app = WsgiIdempotency(handler, once=once, principal=from_header("x-user"), routes=routes)
    with httpx.Client(transport=httpx.WSGITransport(app), base_url="http://shop", headers=HEADERS) as client:
        handler.status = status
        assert client.post("/orders").status_code == int(status[:3])
        assert rows(path) == []
        handler.error = RuntimeError("boom")
        with pytest.raises(RuntimeError):
            client.post("/orders")
        assert rows(path) == []
        handler.status, handler.error = "201 Created", None
        assert client.post("/orders").json() == {"run": 3}
        assert len(rows(path)) == 1


def test_a_commit_that_fails_leaves_neither_effect_nor_response(shop: tuple[Path, Once]) -> None:
    path, once = shop
    handler = Handler()
    fails = [True]

    @contextmanager
    def failing() -> Iterator[sqlite3.Connection]:
        with transaction(path) as connection:
            yield connection
            if fails:
                fails.clear()
                raise sqlite3.OperationalError("disk full")

    app = WsgiIdempotency(
        handler, once=once, principal=from_header("x-user"), routes=[Route("POST", "/orders", joined=failing)]
    )
    with httpx.Client(transport=httpx.WSGITransport(app), base_url="http://shop", headers=HEADERS) as client:
        with pytest.raises(sqlite3.OperationalError):
            client.post("/orders")
        assert rows(path) == []
        assert client.post("/orders").json() == {"run": 2}
        assert len(rows(path)) == 1


@pytest.mark.parametrize("after", ["", "BEGIN IMMEDIATE"])
def test_a_handler_that_commits_by_itself_is_told_and_has_one_effect(after: str, shop: tuple[Path, Once]) -> None:
    path, once = shop
    handler = Handler()

    def ends(environ: Any, start_response: Any) -> list[bytes]:
        answer = handler(environ, start_response)
        environ["umavez"].connection.execute("COMMIT")
        if after:
            environ["umavez"].connection.execute(after)
        return answer

    routes = [Route("POST", "/orders", joined=lambda: transaction(path))]
    app = WsgiIdempotency(ends, once=once, principal=from_header("x-user"), routes=routes)
    with httpx.Client(transport=httpx.WSGITransport(app), base_url="http://shop", headers=HEADERS) as client:
        with pytest.raises(ConfigurationError, match="leave commit and rollback to joined="):
            client.post("/orders")
        again = client.post("/orders")
        assert (again.json(), again.headers["idempotent-replayed"]) == ({"run": 1}, "true")
        assert (len(rows(path)), handler.runs) == (1, 1)


@pytest.mark.parametrize("status", ["201 Created", "500 Broken"])
@pytest.mark.parametrize("ending", ["ROLLBACK", "COMMIT"])
def test_a_handler_that_ends_its_transaction_is_told_whatever_it_answers(
    ending: str, status: str, shop: tuple[Path, Once]
) -> None:
    path, once = shop
    handler = Handler()
    handler.ending, handler.status = ending, status
    routes = [Route("POST", "/orders", joined=lambda: transaction(path))]
    app = WsgiIdempotency(handler, once=once, principal=from_header("x-user"), routes=routes)
    with httpx.Client(transport=httpx.WSGITransport(app), base_url="http://shop", headers=HEADERS) as client:
        with pytest.raises(ConfigurationError, match="POST /orders"):
            client.post("/orders")
        assert len(rows(path)) == (1 if ending == "COMMIT" else 0)


def test_a_handler_may_use_savepoints_of_its_own(shop: tuple[Path, Once]) -> None:
    path, once = shop
    handler = Handler()
    handler.ending = "SAVEPOINT theirs"
    routes = [Route("POST", "/orders", joined=lambda: transaction(path))]
    app = WsgiIdempotency(handler, once=once, principal=from_header("x-user"), routes=routes)
    with httpx.Client(transport=httpx.WSGITransport(app), base_url="http://shop", headers=HEADERS) as client:
        assert [client.post("/orders").json() for _ in range(2)] == [{"run": 1}] * 2
        assert len(rows(path)) == 1


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_handler_that_ends_sqlalchemys_transaction_is_told(ending: str, shop: tuple[Path, Once]) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    path, once = shop
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")

    def ends(environ: Any, start_response: Any) -> list[bytes]:
        connection = environ["umavez"].connection
        connection.execute(sqlalchemy.text("INSERT INTO orders VALUES ('one')"))
        getattr(connection, ending)()
        start_response("201 Created", [])
        return [b"done"]

    routes = [Route("POST", "/orders", joined=engine.begin)]
    app = WsgiIdempotency(ends, once=once, principal=from_header("x-user"), routes=routes)
    with httpx.Client(transport=httpx.WSGITransport(app), base_url="http://shop", headers=HEADERS) as client:
        with pytest.raises(ConfigurationError, match="leave commit and rollback to joined="):
            client.post("/orders")
        assert len(rows(path)) == (1 if ending == "commit" else 0)
        if ending == "commit":
            again = client.post("/orders")
            assert (again.text, again.headers["idempotent-replayed"]) == ("done", "true")
            assert len(rows(path)) == 1
        else:
            with pytest.raises(ConfigurationError, match="leave commit and rollback to joined="):
                client.post("/orders")  # nothing stands, so it runs again
    engine.dispose()


@pytest.mark.postgres
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_handler_that_ends_sqlalchemys_awaited_transaction_is_told(postgres_url: str, ending: str) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    asyncio_of = pytest.importorskip("sqlalchemy.ext.asyncio")
    runs = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        runs.append(1)
        connection = scope["umavez"].connection
        await connection.execute(sqlalchemy.text("INSERT INTO http_ended_orders VALUES ('one')"))
        await getattr(connection, ending)()
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async def talk() -> None:
        engine = asyncio_of.create_async_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
        once = AsyncOnce(postgres_url, scope=f"shop alchemy {ending}")
        await once.migrate()
        async with engine.begin() as connection:
            await connection.execute(sqlalchemy.text("DROP TABLE IF EXISTS http_ended_orders"))
            await connection.execute(sqlalchemy.text("CREATE TABLE http_ended_orders (name TEXT)"))
        routes = [Route("POST", "/orders", joined=engine.begin)]
        shell = AsgiIdempotency(app, once=once, principal=from_header("x-user"), routes=routes)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(shell), base_url="http://shop") as client:
            with pytest.raises(ConfigurationError, match="leave commit and rollback to joined="):
                await client.post("/orders", headers=HEADERS)
            if ending == "commit":
                assert (await client.post("/orders", headers=HEADERS)).headers["idempotent-replayed"] == "true"
        async with engine.begin() as connection:
            count = await connection.scalar(sqlalchemy.text("SELECT count(*) FROM http_ended_orders"))
        assert (count, len(runs)) == (1 if ending == "commit" else 0, 1)
        await engine.dispose()
        await once.close()

    asyncio.run(talk())


@pytest.mark.postgres
@pytest.mark.parametrize("then", ["nothing", "a statement"])
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_handler_that_ends_its_transaction_on_postgres_is_told(postgres_url: str, ending: str, then: str) -> None:
    import psycopg

    @asynccontextmanager
    async def connected() -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            yield connection

    async def app(scope: Any, receive: Any, send: Any) -> None:
        connection = scope["umavez"].connection
        await connection.execute("INSERT INTO http_ended_orders VALUES ('one')")
        await getattr(connection, ending)()
        if then != "nothing":
            await connection.execute("SELECT 1")
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async def talk() -> None:
        once = AsyncOnce(postgres_url, scope=f"shop {ending} {then}")
        await once.migrate()
        async with connected() as connection:
            await connection.execute("DROP TABLE IF EXISTS http_ended_orders")
            await connection.execute("CREATE TABLE http_ended_orders (name TEXT)")
        routes = [Route("POST", "/orders", joined=connected)]
        shell = AsgiIdempotency(app, once=once, principal=from_header("x-user"), routes=routes)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(shell), base_url="http://shop") as client:
            with pytest.raises(ConfigurationError, match="leave commit and rollback to joined="):
                await client.post("/orders", headers=HEADERS)
            if ending == "commit":
                assert (await client.post("/orders", headers=HEADERS)).headers["idempotent-replayed"] == "true"
        async with connected() as connection:
            cursor = await connection.execute("SELECT count(*) FROM http_ended_orders")
            assert await cursor.fetchone() == (1 if ending == "commit" else 0,)
        await once.close()

    asyncio.run(talk())


@pytest.mark.postgres
def test_joined_over_asgi_on_postgres_with_rivals(postgres_url: str) -> None:
    import psycopg

    @asynccontextmanager
    async def connected() -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            yield connection

    runs = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        runs.append(1)
        connection = scope["state"]["umavez"].connection
        await connection.execute("INSERT INTO http_joined_orders VALUES ('one')")
        await asyncio.sleep(0.05)
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async def talk() -> None:
        once = AsyncOnce(postgres_url, scope="shop")
        await once.migrate()
        async with connected() as connection:
            await connection.execute("CREATE TABLE http_joined_orders (name TEXT)")
        routes = [Route("POST", "/orders", joined=connected, wait=10)]
        shell = AsgiIdempotency(app, once=once, principal=from_header("x-user"), routes=routes)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(shell), base_url="http://shop") as client:
            answers = await asyncio.gather(*[client.post("/orders", headers=HEADERS) for _ in range(5)])
        assert {(answer.status_code, answer.content) for answer in answers} == {(201, b"done")}
        async with connected() as connection:
            cursor = await connection.execute("SELECT count(*) FROM http_joined_orders")
            assert await cursor.fetchone() == (1,)
        assert len(runs) == 1
        await once.close()

    asyncio.run(talk())


@pytest.mark.mariadb
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_handler_that_ends_its_transaction_on_mariadb_is_told(mariadb_url: str, ending: str) -> None:
    import pymysql

    where = urlsplit(mariadb_url)
    place = {"host": where.hostname, "port": where.port, "user": where.username, "database": where.path[1:]}

    @contextmanager
    def connected() -> Iterator[Any]:
        with pymysql.connect(**place) as connection:
            connection.begin()
            yield connection
            connection.commit()

    def ends(environ: Any, start_response: Any) -> list[bytes]:
        connection = environ["umavez"].connection
        connection.cursor().execute("INSERT INTO http_ended_orders VALUES ('one')")
        getattr(connection, ending)()
        start_response("201 Created", [])
        return [b"done"]

    with Once(mariadb_url, scope=f"shop {ending}") as once, connected() as connection:
        once.migrate()
        connection.cursor().execute("CREATE OR REPLACE TABLE http_ended_orders (name TEXT)")
        app = WsgiIdempotency(
            ends, once=once, principal=from_header("x-user"), routes=[Route("POST", "/orders", joined=connected)]
        )
        with (
            httpx.Client(transport=httpx.WSGITransport(app), base_url="http://shop", headers=HEADERS) as client,
            pytest.raises(ConfigurationError, match="leave commit and rollback to joined="),
        ):
            client.post("/orders")


@pytest.mark.mariadb
def test_an_awaited_mariadb_transaction_is_told_apart_from_the_next(mariadb_url: str) -> None:
    import asyncmy

    where = urlsplit(mariadb_url)

    async def talk() -> list[bool]:
        connection = await asyncmy.connect(
            host=where.hostname, port=where.port, user=where.username, database=where.path[1:]
        )
        seen = []
        for ending in (None, connection.commit, connection.rollback):
            await connection.begin()
            mark = await mark_of(connection)
            if ending is not None:
                await ending()
            seen.append(await is_ended(mark))
        connection.close()
        return seen

    assert asyncio.run(talk()) == [False, True, True]
