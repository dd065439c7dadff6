"""An app that counts what it does, behind the ASGI shell, and a client for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from umavez import AsyncOnce
from umavez.http import from_header
from umavez.http.asgi import Idempotency


class Shop:
    """An ASGI app whose every run counts. `answer` is what it sends next; `before` is awaited while it runs."""

    def __init__(self) -> None:
        self.runs = 0
        self.bodies: list[bytes] = []
        self.status = 201
        self.headers: list[tuple[bytes, bytes]] = [(b"content-type", b"application/json")]
        self.chunks: list[bytes] | None = None
        self.error: Exception | None = None
        self.before: Callable[[], Awaitable[object]] | None = None
        self.after: Callable[[], Awaitable[object]] | None = None
        self.seen: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.runs += 1
        self.bodies.append(body)
        self.seen.append(scope.get("umavez"))
        number = self.runs
        if self.before is not None:
            await self.before()
        if self.error is not None:
            raise self.error
        chunks = [b'{"run": %d}' % number] if self.chunks is None else self.chunks
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        if self.after is not None:
            await self.after()


class Bench:
    """A shop behind the middleware."""

    def __init__(self, shop: Shop, once: AsyncOnce, **options: Any) -> None:
        self.shop = shop
        self.once = once
        options.setdefault("principal", from_header("x-user"))
        self.app = Idempotency(shop, once=once, **options)

    async def post(
        self, key: str | None = "k1", path: str = "/orders", user: str | None = "ana", **request: Any
    ) -> httpx.Response:
        return await self.ask("POST", path, key=key, user=user, **request)

    async def ask(
        self, method: str, path: str, *, key: str | None = None, user: str | None = "ana", **request: Any
    ) -> httpx.Response:
        headers = list(request.pop("headers", []))
        headers += [("x-user", user)] if user else []
        headers += [("idempotency-key", key)] if key is not None else []
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=request.pop("raises", True))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return await client.request(method, path, headers=headers, **request)


@asynccontextmanager
async def bench(store: Any = "memory:", **options: Any) -> AsyncIterator[Bench]:
    """A bench on `store`, migrated; closed afterwards."""
    once = AsyncOnce(store, scope="api")
    await once.migrate()
    try:
        yield Bench(Shop(), once, **options)
    finally:
        await once.close()


@pytest.fixture
def run() -> Callable[..., Any]:
    """Runs a test's coroutine."""
    return asyncio.run
