"""Peers as subjects, each through its simplest correct call. Runs in the peers' virtualenv.

Every import is inside `open`: one peer that is missing or broken must not take the others along. ASGI middleware is
called in process with a hand-made scope, without a server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import sys
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from bench.engine.load import RESULT
from bench.engine.subjects import Subject


def _redis(url: str, **options: Any) -> Any:
    return import_module("redis").Redis.from_url(url, max_connections=256, **options)


def _awaited_redis(url: str, **options: Any) -> Any:
    return import_module("redis.asyncio").Redis.from_url(url, max_connections=256, **options)


class Dbos(Subject):
    """A workflow, called by threads."""

    def open(self) -> None:
        if self.url.startswith("sqlite") and sqlite3.sqlite_version_info < (3, 42):
            raise RuntimeError(f"dbos needs SQLite 3.42, and this Python has {sqlite3.sqlite_version}")
        dbos = import_module("dbos")
        place = self.url.replace("postgresql://", "postgresql+psycopg://")
        size = max(20, self.callers + 4)
        dbos.DBOS(
            config={
                "name": "bench",
                "system_database_url": place,
                "log_level": "ERROR",
                "sys_db_pool_size": size,
                "max_executor_threads": size,
                "application_version": "1",
                "executor_id": "bench",
            }
        )
        self._dbos, self._named = dbos.DBOS, dbos.SetWorkflowID
        self._workflow = dbos.DBOS.workflow()(charge)
        dbos.DBOS.launch()

    def first(self, key: str) -> Any:
        with self._named(key):
            return self._workflow(key)

    def close(self) -> None:
        sys.stdout.flush()


def charge(key: str) -> dict[str, Any]:
    """The body of every sync peer."""
    assert key
    return RESULT


async def awaited_charge(key: str) -> dict[str, Any]:
    """The body of every async peer."""
    assert key
    return RESULT


class Powertools(Subject):
    """idempotent_function with the cache layer."""

    def open(self) -> None:
        os.environ.setdefault("POWERTOOLS_SERVICE_NAME", "bench")
        home = "aws_lambda_powertools.utilities.idempotency"
        module, cache = import_module(home), import_module(f"{home}.persistence.cache")
        layer = cache.CachePersistenceLayer(client=_redis(self.url, decode_responses=True))
        wrap = module.idempotent_function(
            data_keyword_argument="key", persistence_store=layer, config=module.IdempotencyConfig()
        )
        self._call = wrap(charge)

    def first(self, key: str) -> Any:
        return self._call(key=key)


class Idempotency(Subject):
    """The decorator of the package named idempotency."""

    def open(self) -> None:
        module, stores = import_module("idempotency"), import_module("idempotency.stores.redis")
        wrap = module.idempotent(ttl=86400, store=stores.RedisStore(_redis(self.url)), key=lambda key: key)
        self._call = wrap(charge)

    def first(self, key: str) -> Any:
        return self._call(key)


class Pyidempotent(Subject):
    """The decorator of pyidempotent, awaited."""

    awaited = True

    async def open(self) -> None:
        module, backends = import_module("pyidempotent"), import_module("pyidempotent.backends")
        backend = backends.RedisBackend(_awaited_redis(self.url))
        self._call = module.idempotent(backend=backend, key_extractor=lambda *words, **_: words[0])(awaited_charge)

    async def first(self, key: str) -> Any:
        return await self._call(key)

    async def replay(self, key: str) -> Any:
        return await self._call(key)

    async def close(self) -> None:
        """Nothing to do."""


class Middleware(Subject):
    """ASGI middleware around one Starlette route."""

    awaited = True

    async def open(self) -> None:
        routing, responses = import_module("starlette.routing"), import_module("starlette.responses")
        applications = import_module("starlette.applications")

        async def pay(_: Any) -> Any:
            return responses.JSONResponse(RESULT)

        route = routing.Route("/pay", pay, methods=["POST"])
        self._app = await self.wrapped(applications.Starlette(routes=[route]))

    async def wrapped(self, app: Any) -> Any:
        """The app inside the peer."""
        raise NotImplementedError

    async def first(self, key: str) -> None:
        seen: list[int] = []

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                seen.append(message["status"])

        await self._app(_scope(key), _Body(), send)
        if seen != [200]:
            raise RuntimeError(f"it answered {seen[0] if seen else 'nothing'} instead of 200")

    async def replay(self, key: str) -> None:
        await self.first(key)

    async def close(self) -> None:
        """Nothing to do."""


class _Body:
    """The request's body, once."""

    def __init__(self) -> None:
        self._sent = False

    async def __call__(self) -> dict[str, Any]:
        if self._sent:
            await asyncio.sleep(3600)
        self._sent = True
        return {"type": "http.request", "body": b'{"amount": 10}', "more_body": False}


def _scope(key: str) -> dict[str, Any]:
    headers = [(b"host", b"l"), (b"content-type", b"application/json"), (b"content-length", b"14")]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/pay",
        "raw_path": b"/pay",
        "root_path": "",
        "query_string": b"",
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
        "headers": [*headers, (b"idempotency-key", key.encode())],
    }


class Fastidempotent(Middleware):
    """fastidempotent on PostgreSQL, SQLite or Redis."""

    async def wrapped(self, app: Any) -> Any:
        module, middleware = import_module("fastidempotent"), import_module("fastidempotent.middleware")
        backend = self._backend(module)
        await backend.init()
        return middleware.IdempotencyMiddleware(app, backend=backend)

    def _backend(self, module: Any) -> Any:
        scheme, rest = self.url.split(":", 1)
        if scheme == "redis":
            return module.RedisBackend(url=self.url)
        if scheme == "sqlite":
            return module.SQLiteBackend(url=f"sqlite+aiosqlite:{rest}")
        return module.PostgresBackend(url=f"postgresql+asyncpg:{rest}", pool_size=max(5, self.callers))


class FastapiIdempotencyKey(Middleware):
    """fastapi-idempotency-key on SQLite or Redis."""

    async def wrapped(self, app: Any) -> Any:
        module = import_module("fastapi_idempotency_key")
        if self.url.startswith("redis"):
            backend = module.RedisBackend(redis=_awaited_redis(self.url))
        else:
            backend = module.SQLiteBackend(urlsplit(self.url).path)
        return module.IdempotencyMiddleware(app, backend=backend)


class Ichido(Middleware):
    """ichido on Redis."""

    async def wrapped(self, app: Any) -> Any:
        logging.getLogger("ichido").setLevel(logging.ERROR)
        middleware, storage = import_module("ichido.middleware"), import_module("ichido.storage")
        store = storage.RedisIdempotencyStore(_awaited_redis(self.url, decode_responses=True))
        return middleware.IchidoMiddleware(app, store=store)


SUBJECTS = {
    "dbos": Dbos,
    "aws-lambda-powertools": Powertools,
    "fastidempotent": Fastidempotent,
    "fastapi-idempotency-key": FastapiIdempotencyKey,
    "pyidempotent": Pyidempotent,
    "idempotency": Idempotency,
    "ichido": Ichido,
}
