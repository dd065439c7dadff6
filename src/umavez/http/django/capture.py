"""One run of a Django view under a key, and how its responses and our answers become each other."""

from __future__ import annotations

from typing import Any

from django.db import connections  # type: ignore[import-untyped]  # Django ships no types
from django.http import HttpResponse  # type: ignore[import-untyped]  # Django ships no types

from umavez.errors import ConfigurationError, StoreError, UmavezError
from umavez.http.contract.answer import Answer, NotFinal
from umavez.http.contract.exchange import Exchange, unprotected
from umavez.http.contract.handler import Keyed, Over
from umavez.http.contract.problem import Problem
from umavez.http.contract.route import Route


class View:
    """A view about to run under a key, and the response it gave. `response` is None until it has answered."""

    def __init__(self, view: Any, request: Any, exchange: Exchange, route: Route) -> None:
        self.view = view
        self.request = request
        self.exchange = exchange
        self.contract = route.contract
        self._operation = route.operation
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

    def kept(self, response: Any, body: bytes) -> list[Any]:
        """What a joined route keeps of the view's response. Raises Over for one that is no outcome, to roll back.

        Raises ConfigurationError where Django is to roll back what the response says was done.
        """
        answer = answer_of(response)._replace(body=body)
        self.told(response, answer)
        if _rolls_back(self.request.umavez.connection):
            if answer.status < 400:
                raise ConfigurationError(
                    f"The transaction of {self._operation} is to be rolled back, and its answer is {answer.status}: "
                    "answer with an error, or catch the database's error around an atomic() of its own."
                )
            self.exchange.tell(self._operation, "unfinished")
            raise Over
        try:
            return self.exchange.value(self.contract, answer)
        except NotFinal as error:
            self.exchange.tell(self._operation, "unfinished")
            raise Over from error

    def refused(self, error: UmavezError | Problem) -> Any:
        """The response to an error of the engine; raises what the view itself raised."""
        if self.started and self.response is None:
            raise error
        return response_of(self.exchange.refusal(error, self._operation))

    def runs_open(self, error: Exception) -> bool:
        """Whether the view is to run without protection."""
        return isinstance(error, StoreError) and not self.started and self.contract.outage == "open"


def _rolls_back(connection: Any) -> bool:
    """Whether Django has marked the transaction of `connection`, which then ends without a commit or a word."""
    return any(each.connection is connection and each.needs_rollback for each in connections.all(initialized_only=True))


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
