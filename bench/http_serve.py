"""The apps that `bench.http_wrk` serves with uvicorn: one route, bare or behind a shell, as SUBJECT and STORE say."""

from __future__ import annotations

import asyncio
import os
from typing import Any

ANSWER = b'{"id":"c-1","order":"o-17","amount":1999,"status":"paid"}'
START = {
    "type": "http.response.start",
    "status": 201,
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))],
}


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Reads its body, answers JSON."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        continue
    await send(START)
    await send({"type": "http.response.body", "body": ANSWER})


def app() -> Any:
    """The app under measurement."""
    return {"bare": lambda _: bare, "umavez": _umavez, "fastidempotent": _fastidempotent, "snok": _snok}[
        os.environ["SUBJECT"]
    ](os.environ["STORE"])


def _umavez(store: str) -> Any:
    from umavez import AsyncOnce  # noqa: PLC0415 - each subject brings its own imports
    from umavez.http import ANONYMOUS  # noqa: PLC0415
    from umavez.http.asgi import Idempotency  # noqa: PLC0415

    return Idempotency(bare, once=AsyncOnce(store, scope="bench"), principal=ANONYMOUS, unknown="rerun")


def _fastidempotent(store: str) -> Any:
    from fastidempotent import IdempotencyMiddleware  # noqa: PLC0415

    if store.startswith("redis"):
        from fastidempotent.backends.redis import RedisBackend  # noqa: PLC0415

        return IdempotencyMiddleware(bare, backend=RedisBackend(url=store))
    from fastidempotent.backends.postgres import PostgresBackend  # noqa: PLC0415

    backend = PostgresBackend(url=store.replace("postgresql:", "postgresql+asyncpg:"), pool_size=20)
    return _prepared(IdempotencyMiddleware(bare, backend=backend), backend.init)


def _prepared(inner: Any, prepare: Any) -> Any:
    """`inner`, once `prepare` has made its table."""
    lock = asyncio.Lock()
    ready: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if not ready:
            async with lock:
                if not ready:
                    await prepare()
                    ready.append(True)
        await inner(scope, receive, send)

    return app


def _snok(store: str) -> Any:
    from idempotency_header_middleware import IdempotencyHeaderMiddleware  # noqa: PLC0415
    from idempotency_header_middleware.backends import RedisBackend  # noqa: PLC0415
    from redis.asyncio import from_url  # noqa: PLC0415

    return IdempotencyHeaderMiddleware(app=bare, backend=RedisBackend(redis=from_url(store)))
