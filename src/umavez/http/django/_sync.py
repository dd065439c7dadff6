# Written by tools/sync.py from src/umavez/http/django/_async.py: change that, then run `make format`.
"""A keyed request of Django, from its arrival to its response, for threads."""

from __future__ import annotations

from typing import Any

from umavez._sync.once import Once
from umavez.core.protocol import Intent
from umavez.engine.current import CURRENT
from umavez.errors import UmavezError
from umavez.http._sync import Watch, record, run_joined
from umavez.http.contract.exchange import Exchange
from umavez.http.contract.failures import note_failure
from umavez.http.contract.handler import Over
from umavez.http.contract.problem import Problem
from umavez.http.contract.route import Route
from umavez.http.contract.status import asked_key, policy_answer, status_answer
from umavez.http.django.capture import View, answer_of, marked, response_of
from umavez.http.django.reading import Incoming
from umavez.http.django.waiting import check_server, settled, to_the_end, whole


def answer(once: Once, exchange: Exchange, request: Any, get_response: Any) -> Any:
    """The response to one request; those that keys do not concern go to the view as they are."""
    incoming = Incoming(exchange, request)
    route = incoming.route()
    if route is None:
        return _document(once, exchange, incoming) or get_response(request)
    check_server(request)
    principal = settled(exchange.principal(request))
    if principal is None or principal == "":
        exchange.tell(route.operation, "unprotected")
        return marked(get_response(request), b"no-principal")
    whose = exchange.scopes.of(principal)
    try:
        value = incoming.key(route)
        exchange.enter(whose)
    except Problem as problem:
        return response_of(exchange.refusal(problem, route.operation))
    return to_the_end(_keyed(once, exchange, route, incoming, whose, value, get_response))


def _keyed(
    once: Once, exchange: Exchange, route: Route, incoming: Incoming, whose: str, value: str, get_response: Any
) -> Any:
    try:
        intent = incoming.intent(route, whose, value)
        return _run(once, exchange, route, intent, incoming.request, get_response)
    except Problem as problem:
        return response_of(exchange.refusal(problem, route.operation))
    finally:
        # Here, not where the caller waits: one that goes away must not make room for more while this runs.
        exchange.leave(whose)


def _run(once: Once, exchange: Exchange, route: Route, intent: Intent, request: Any, get_response: Any) -> Any:
    """The request from its claim to its response."""
    view = View(get_response, request, exchange, route)
    watch = Watch(route.operation)
    try:
        if view.contract.joined is not None:
            return _joined(once, view, watch, route, intent)
        outcome = once.perform(route.plan, intent, _call, (view,), {})
        return response_of(exchange.replay(outcome.value, route.operation))
    except Over:
        watch.check()
        return view.response
    except (UmavezError, Problem) as error:
        if view.runs_open(error):
            note_failure(error, intent.key, "run without protection")
            exchange.tell(route.operation, "unprotected")
            return marked(get_response(request), b"store-outage")
        note_failure(error, intent.key, "refused")
        watch.check()
        return view.refused(error)


def _call(view: View) -> Any:
    attempt: Any = CURRENT.get()  # the engine calls this inside an attempt
    view.under(attempt)
    response = view.view(view.request)
    whole = not response.streaming
    view.told(response, record(attempt, view.exchange, view.contract, answer_of(response), whole=whole))
    raise Over


def _joined(once: Once, view: View, watch: Watch, route: Route, intent: Intent) -> Any:
    def run(attempt: Any, connection: Any) -> list[Any]:
        view.under(attempt, connection)
        response = view.view(view.request)
        return view.kept(response, whole(response))

    attempt = run_joined(once, route, intent, watch, run)
    if view.response is None:
        return response_of(view.exchange.replay(attempt.outcome, route.operation))
    view.exchange.tell(route.operation, "first")
    return view.response


def _document(once: Once, exchange: Exchange, incoming: Incoming) -> Any:
    """The policy document, or what became of a key; None where the request asks for neither."""
    place = incoming.document()
    if place is None or place == "policy":
        return None if place is None else response_of(policy_answer(exchange))
    try:
        principal = settled(exchange.principal(incoming.request))
        route, key = asked_key(exchange, principal, incoming.sent(), incoming.query(), incoming.within)
        return response_of(status_answer(route, once.store.read(key)))
    except (Problem, UmavezError) as error:
        return response_of(exchange.refusal(error))
