"""The Django middleware, for views of either kind.

    # shop/idempotency.py
    Idempotency = middleware(once=Once("postgresql://…", scope="shop"), principal=user_id, unknown="hold")

    # settings.py: after AuthenticationMiddleware, so that the user is known before anything is replayed
    MIDDLEWARE = [..., "django.contrib.auth.middleware.AuthenticationMiddleware", "shop.idempotency.Idempotency"]

Bodies are bounded by DATA_UPLOAD_MAX_MEMORY_SIZE too; for larger uploads put the WSGI or ASGI shell around
Django's application instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import RequestDataTooBig  # type: ignore[import-untyped]  # Django ships no types
from django.db import connections, transaction  # type: ignore[import-untyped]  # Django ships no types
from django.http import HttpRequest, HttpResponse  # type: ignore[import-untyped]  # Django ships no types
from django.http.response import HttpResponseBase  # type: ignore[import-untyped]  # Django ships no types

from umavez.aio import AsyncOnce
from umavez.core.protocol import Intent
from umavez.errors import ConfigurationError
from umavez.http.django_run import arun, marked, response_of, run
from umavez.http.exchange import Exchange
from umavez.http.problem import BODY_TOO_LARGE, Problem
from umavez.http.route import Route
from umavez.http.spool import refuse_declared
from umavez.http.status import asked_key, policy_answer, status_answer
from umavez.once import Once

GetResponse = Callable[[HttpRequest], Any]


def user_id(request: HttpRequest) -> str | None:
    """The principal by Django's own authentication: the user's primary key, or None for nobody."""
    user = getattr(request, "user", None)
    return str(user.pk) if user is not None and user.is_authenticated else None


@contextmanager
def atomic(using: str = "default") -> Iterator[Any]:
    """For joined= : Django's transaction, which views write through as always; it commits with the response."""
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
    exchange = Exchange(engine.plans, engine.scope, principal=principal, **options)
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
        return self._acall(request) if self._asynchronous else self._call(request)

    def _call(self, request: HttpRequest) -> HttpResponseBase:
        route = self._route(request)
        if route is None:
            return self._document(request) or self.get_response(request)
        principal = self.exchange.principal(request)
        if principal is None or principal == "":
            return marked(self.get_response(request), b"no-principal")
        whose = self.exchange.scopes.of(principal)
        try:
            value = self._admitted(route, request)
            self.exchange.enter(whose)
        except Problem as problem:
            return response_of(self.exchange.refusal(problem))
        try:
            intent = self._intent(route, whose, value, request)
            return run(self.once, self.exchange, route, intent, request, self.get_response)
        except Problem as problem:
            return response_of(self.exchange.refusal(problem))
        finally:
            self.exchange.leave(whose)

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        route = self._route(request)
        if route is None:
            return await self._adocument(request) or await self.get_response(request)
        principal = await _settled(self.exchange.principal(request))
        if principal is None or principal == "":
            return marked(await self.get_response(request), b"no-principal")
        whose = self.exchange.scopes.of(principal)
        try:
            value = self._admitted(route, request)
            self.exchange.enter(whose)
        except Problem as problem:
            return response_of(self.exchange.refusal(problem))
        try:
            intent = self._intent(route, whose, value, request)
            return await arun(self.async_once, self.exchange, route, intent, request, self.get_response)
        except Problem as problem:
            return response_of(self.exchange.refusal(problem))
        finally:
            self.exchange.leave(whose)

    def _route(self, request: HttpRequest) -> Route | None:
        """The route that makes this request a keyed one, or None."""
        route = self.exchange.find(request.method or "", request.path)
        if route is None or (not route.contract.required and "HTTP_IDEMPOTENCY_KEY" not in request.META):
            return None
        return route

    def _admitted(self, route: Route, request: HttpRequest) -> str:
        value = self.exchange.key_format.key(_sent(request))
        refuse_declared(request.META.get("CONTENT_LENGTH"), route.contract.max_request)
        return value

    def _intent(self, route: Route, whose: str, value: str, request: HttpRequest) -> Intent:
        try:
            body = request.body
        except RequestDataTooBig as error:
            raise Problem(BODY_TOO_LARGE) from error
        key = self.exchange.key(route, whose, request.path, value)
        return self.exchange.intent(
            route, key, request.path, _query(request), request.META.get("CONTENT_TYPE", ""), body
        )

    def _document(self, request: HttpRequest) -> HttpResponse | None:
        place = self._documented(request)
        if place is None or place == "policy":
            return None if place is None else response_of(policy_answer(self.exchange))
        try:
            principal = self.exchange.principal(request)
            route, key = asked_key(self.exchange, principal, _sent(request), _query(request))
            return response_of(status_answer(route, self.once.store.read(key)))
        except Problem as problem:
            return response_of(self.exchange.refusal(problem))

    async def _adocument(self, request: HttpRequest) -> HttpResponse | None:
        place = self._documented(request)
        if place is None or place == "policy":
            return None if place is None else response_of(policy_answer(self.exchange))
        try:
            principal = await _settled(self.exchange.principal(request))
            route, key = asked_key(self.exchange, principal, _sent(request), _query(request))
            return response_of(status_answer(route, await self.async_once.store.read(key)))
        except Problem as problem:
            return response_of(self.exchange.refusal(problem))

    def _documented(self, request: HttpRequest) -> str | None:
        place = self.exchange.documents
        if place is None or request.method != "GET" or not request.path.startswith(place):
            return None
        return {place: "policy", f"{place}/status": "status"}.get(request.path)


async def _settled(principal: Any) -> Any:
    return await principal if hasattr(principal, "__await__") else principal


def _sent(request: HttpRequest) -> list[str]:
    sent = request.META.get("HTTP_IDEMPOTENCY_KEY")
    return [] if sent is None else [sent]


def _query(request: HttpRequest) -> bytes:
    query: str = request.META.get("QUERY_STRING", "")
    return query.encode("latin-1")
