"""The Django middleware, for views of either kind.

    # shop/idempotency.py
    Idempotency = middleware(once=Once("postgresql://…", scope="shop"), principal=user_id, unknown="hold")

    # settings.py: after AuthenticationMiddleware, so that the user is known before anything is replayed
    MIDDLEWARE = [..., "django.contrib.auth.middleware.AuthenticationMiddleware", "shop.idempotency.Idempotency"]

Bodies are bounded by DATA_UPLOAD_MAX_MEMORY_SIZE too; for larger uploads put the WSGI or ASGI shell around
Django's application instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.db import connections, transaction  # type: ignore[import-untyped]  # Django ships no types
from django.http import HttpRequest  # type: ignore[import-untyped]  # Django ships no types

from umavez._async.once import AsyncOnce
from umavez._sync.once import Once
from umavez.errors import ConfigurationError
from umavez.http.contract.exchange import Exchange
from umavez.http.contract.principal import Principal
from umavez.http.django._async import answer as async_answer
from umavez.http.django._sync import answer

GetResponse = Callable[[HttpRequest], Any]


def user_id(request: HttpRequest) -> Principal | Awaitable[Principal]:
    """The principal by Django's own authentication: the user's primary key, or None for nobody. To be awaited in tasks.

    There Django looks a user up by `auser` alone, and refuses to be asked otherwise.
    """
    asked = getattr(request, "auser", None)
    if asked is None or not _in_a_task():
        return _primary_key(getattr(request, "user", None))
    return _awaited_user_id(asked)


async def _awaited_user_id(asked: Callable[[], Awaitable[Any]]) -> Principal:
    return _primary_key(await asked())


def _primary_key(user: Any) -> Principal:
    return str(user.pk) if user is not None and user.is_authenticated else None


def _in_a_task() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def atomic(using: str = "default") -> Iterator[Any]:
    """For joined= : Django's transaction, which views write through as always; it commits with the response.

    For the middleware alone: Django closes a connection whose transaction was begun before the request reached it, as
    a shell around its application does.
    """
    with transaction.atomic(using=using):
        connection = connections[using]
        connection.ensure_connection()
        yield connection.connection


def middleware(
    *, once: Once | None = None, async_once: AsyncOnce | None = None, principal: Any, **options: Any
) -> type[Idempotency]:
    """A middleware class to name in MIDDLEWARE. `once` serves sync projects, `async_once` async ones.

    `principal` gets the request (see `user_id`); `options` are those of Exchange and of its default contract.
    """
    engine = once or async_once
    if engine is None:
        raise ConfigurationError("Give once= (sync), async_once= (async) or both.")
    exchange = Exchange(engine.plans, engine.scope, principal=principal, told=engine.observers.tellers(), **options)
    if any(route.contract.replay == "entity" for route in exchange.routes):
        raise ConfigurationError('replay="entity" needs the WSGI or ASGI shell around Django\'s application.')
    if once is not None and async_once is not None and once.scope != async_once.scope:
        raise ConfigurationError("once= and async_once= must have the same scope; else each would have its own keys.")
    members = {
        "exchange": exchange,
        "once": once,
        "async_once": async_once,
        "sync_capable": once is not None,
        "async_capable": async_once is not None,
    }
    return type("Idempotency", (Idempotency,), members)


class Idempotency:
    """Makes keyed requests run once; made by `middleware`."""

    exchange: Exchange
    once: Any
    async_once: Any
    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        self._asynchronous = iscoroutinefunction(get_response)
        if self._asynchronous:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """Answer one request, or hand it on where keys do not concern it."""
        if self._asynchronous:
            return async_answer(self.async_once, self.exchange, request, self.get_response)
        return answer(self.once, self.exchange, request, self.get_response)
