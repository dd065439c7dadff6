"""Incoming: what a request of Django says about keys, read without waiting."""

from __future__ import annotations

from typing import NamedTuple

from django.core.exceptions import RequestDataTooBig  # type: ignore[import-untyped]  # Django ships no types
from django.http import HttpRequest, UnreadablePostError  # type: ignore[import-untyped]  # Django ships no types

from umavez.core.protocol import Intent
from umavez.core.telling.origin import whence
from umavez.http.contract.body import refuse_declared, refuse_incomplete
from umavez.http.contract.exchange import Exchange
from umavez.http.contract.problem import BODY_INCOMPLETE, BODY_TOO_LARGE, Problem
from umavez.http.contract.route import Route


class Incoming(NamedTuple):
    """A request, as the contract reads it."""

    exchange: Exchange
    request: HttpRequest

    @property
    def within(self) -> str:
        """Where the project is mounted."""
        whole: str = self.request.path
        return whole.removesuffix(self.request.path_info)

    def route(self) -> Route | None:
        """The route that makes this request a keyed one, or None."""
        route = self.exchange.find(self.request.method or "", self.request.path, self.within)
        if route is None or (not route.contract.required and "HTTP_IDEMPOTENCY_KEY" not in self.request.META):
            return None
        return route

    def sent(self) -> list[str]:
        """The keys that were sent: one or none, for Django joins repeated headers."""
        sent = self.request.META.get("HTTP_IDEMPOTENCY_KEY")
        return [] if sent is None else [sent]

    def query(self) -> bytes:
        """The query string as it came."""
        query: str = self.request.META.get("QUERY_STRING", "")
        return query.encode("latin-1")

    def key(self, route: Route) -> str:
        """The key. Raises Problem, also for a body that is declared to be too large."""
        value = self.exchange.key_format.key(self.sent())
        refuse_declared(self.request.META.get("CONTENT_LENGTH"), route.contract.max_request)
        return value

    def intent(self, route: Route, whose: str, value: str) -> Intent:
        """What the request asks for, its body read. Raises Problem."""
        request = self.request
        try:
            body = request.body
        except RequestDataTooBig as error:
            raise Problem(BODY_TOO_LARGE) from error
        except UnreadablePostError as error:
            raise Problem(BODY_INCOMPLETE) from error
        refuse_incomplete(request.META.get("CONTENT_LENGTH"), len(body))
        key = self.exchange.key(route, whose, request.path, value)
        media = request.META.get("CONTENT_TYPE", "")
        origin = whence(request.META.get("HTTP_TRACEPARENT"), request.META.get("HTTP_X_REQUEST_ID"))
        return self.exchange.intent(route, key, request.path, self.query(), media, body, origin)

    def document(self) -> str | None:
        """Which of the contract's documents is asked for: policy, status or none."""
        return self.exchange.document(self.request.method or "", self.request.path, self.within)
