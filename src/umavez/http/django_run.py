"""One run of a Django view under a key: `run` for sync views and `arun`, its twin, for async ones."""

from __future__ import annotations

import asyncio
from typing import Any

from django.http import HttpResponse  # type: ignore[import-untyped]  # Django ships no types

from umavez.aio import AsyncOnce
from umavez.aio_attempt import CURRENT as ASYNC_CURRENT
from umavez.attempt import CURRENT
from umavez.core.protocol import Intent
from umavez.errors import StoreError, UmavezError
from umavez.http.answer import Answer, NotFinal
from umavez.http.asgi_run import recorded as async_recorded
from umavez.http.exchange import Exchange, unprotected
from umavez.http.keyed import Keyed, Over, joined_arguments
from umavez.http.problem import Problem
from umavez.http.route import Route
from umavez.http.transaction import Watch
from umavez.http.wsgi_run import recorded
from umavez.once import Once

_WORKING: set[asyncio.Task[Any]] = set()
"""A task that nothing refers to can be collected in the middle of its work."""


class View:
    """A view about to run under a key, and the response it gave. `response` is None until it has answered."""

    def __init__(self, view: Any, request: Any, exchange: Exchange, route: Route) -> None:
        self.view = view
        self.request = request
        self.exchange = exchange
        self.contract = route.contract
        self.watch = Watch(route.operation)
        self.started = False
        self.response: Any = None

    def under(self, attempt: Any, connection: Any = None) -> None:
        """The view starts: tell the request what it runs under."""
        self.started = True
        self.request.umavez = Keyed(attempt, connection)

    def told(self, response: Any, answer: Answer) -> None:
        """Keep the response that goes out: the view's own with `answer`'s marks, or a refusal in its place."""
        if answer.status != response.status_code:
            self.response = response_of(answer)
            return
        response["Cache-Control"] = "no-store"
        for name, value in answer.headers:
            if name == unprotected(b"")[0]:
                response[name.decode()] = value.decode()
        self.response = response

    def kept(self, response: Any) -> list[Any]:
        """What a joined route keeps. Raises Over for an answer that is no outcome, to roll back."""
        answer = answer_of(response)
        self.told(response, answer)
        try:
            return self.exchange.value(self.contract, answer)
        except NotFinal as error:
            raise Over from error

    def refused(self, error: UmavezError | Problem) -> Any:
        """The response to an error of the engine; raises what the view itself raised."""
        self.watch.check()
        if self.started and self.response is None:
            raise error
        return response_of(self.exchange.refusal(error))

    def runs_open(self, error: Exception) -> bool:
        """Whether the view is to run without protection."""
        return isinstance(error, StoreError) and not self.started and self.contract.outage == "open"


def run(once: Once, exchange: Exchange, route: Route, intent: Intent, request: Any, get_response: Any) -> Any:
    """The request from its claim to its response."""
    view = View(get_response, request, exchange, route)
    try:
        if view.contract.joined is not None:
            return _joined(once, view, route, intent)
        outcome = once.perform(route.plan, intent, _call, (view,), {})
        return response_of(exchange.replay(outcome.value))
    except Over:
        view.watch.check()
        return view.response
    except (UmavezError, Problem) as error:
        if view.runs_open(error):
            return marked(get_response(request), b"store-outage")
        return view.refused(error)


def _call(view: View) -> Any:
    attempt: Any = CURRENT.get()  # the engine calls this inside an attempt
    view.under(attempt)
    response = view.view(view.request)
    whole = not response.streaming
    view.told(response, recorded(attempt, view.exchange, view.contract, answer_of(response), whole=whole))
    raise Over


def _joined(once: Once, view: View, route: Route, intent: Intent) -> Any:
    with (
        view.contract.joined() as connection,  # type: ignore[misc]  # checked by the caller
        once.joined(connection, route.operation, **joined_arguments(route, intent)) as attempt,
    ):
        if not attempt.replayed:
            view.under(attempt, connection)
            with view.watch.over(connection):
                value = view.kept(view.view(view.request))
            if view.watch.parted:
                attempt.go_apart(once.store)
            attempt.succeed(value)
    view.watch.check()
    return view.response if view.response is not None else response_of(view.exchange.replay(attempt.outcome))


async def arun(
    once: AsyncOnce, exchange: Exchange, route: Route, intent: Intent, request: Any, get_response: Any
) -> Any:
    """The same in a task of its own: Django cancels the view of a client that has left."""
    task = asyncio.get_running_loop().create_task(_arun(once, exchange, route, intent, request, get_response))
    _WORKING.add(task)
    task.add_done_callback(_WORKING.discard)
    return await asyncio.shield(task)


async def _arun(
    once: AsyncOnce, exchange: Exchange, route: Route, intent: Intent, request: Any, get_response: Any
) -> Any:
    view = View(get_response, request, exchange, route)
    try:
        if view.contract.joined is not None:
            return await _ajoined(once, view, route, intent)
        outcome = await once.perform(route.plan, intent, _acall, (view,), {})
        return response_of(exchange.replay(outcome.value))
    except Over:
        view.watch.check()
        return view.response
    except (UmavezError, Problem) as error:
        if view.runs_open(error):
            return marked(await get_response(request), b"store-outage")
        return view.refused(error)


async def _acall(view: View) -> Any:
    attempt: Any = ASYNC_CURRENT.get()
    view.under(attempt)
    response = await view.view(view.request)
    whole = not response.streaming
    view.told(response, await async_recorded(attempt, view.exchange, view.contract, answer_of(response), whole=whole))
    raise Over


async def _ajoined(once: AsyncOnce, view: View, route: Route, intent: Intent) -> Any:
    async with (
        view.contract.joined() as connection,  # type: ignore[misc]  # checked by the caller
        once.joined(connection, route.operation, **joined_arguments(route, intent)) as attempt,
    ):
        if not attempt.replayed:
            view.under(attempt, connection)
            async with view.watch.aover(connection):
                value = view.kept(await view.view(view.request))
            if view.watch.parted:
                attempt.go_apart(once.store)
            await attempt.succeed(value)
    view.watch.check()
    return view.response if view.response is not None else response_of(view.exchange.replay(attempt.outcome))


def answer_of(response: Any) -> Answer:
    """A Django response as an answer; a streaming one without its body."""
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.items()]
    return Answer(response.status_code, headers, b"" if response.streaming else response.content)


def response_of(answer: Answer) -> HttpResponse:
    """An answer as Django sends it."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in answer.headers}
    headers.pop("content-length", None)
    return HttpResponse(answer.body, status=answer.status, headers=headers)


def marked(response: Any, why: bytes) -> Any:
    """The response with the mark that nothing protects it."""
    name, value = unprotected(why)
    response[name.decode()] = value.decode()
    return response
