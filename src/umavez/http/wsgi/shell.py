"""The WSGI shell: Flask, Django under WSGI, and every other app that is called with environ and start_response.

app.wsgi_app = Idempotency(app.wsgi_app, once=Once(...), principal=lambda environ: ..., unknown="hold")
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from umavez._sync.once import Once
from umavez.core.protocol import Intent
from umavez.core.telling.origin import whence
from umavez.errors import StoreError, UmavezError
from umavez.http._sync import Watch, run_joined
from umavez.http.contract.answer import Answer
from umavez.http.contract.body import PIECE, Spool, declared_length, refuse_declared, refuse_incomplete
from umavez.http.contract.exchange import Exchange, current, entity_of, unprotected
from umavez.http.contract.failures import note_failure
from umavez.http.contract.handler import Over
from umavez.http.contract.problem import Problem
from umavez.http.contract.route import Route
from umavez.http.contract.status import asked_key, policy_answer, status_answer
from umavez.http.wsgi.capture import JoinedRun, Run, fetched, read_to_the_end

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Any, Any], Iterable[bytes]]


class Idempotency:
    """Middleware that makes keyed requests run once. `options` are those of Exchange and of its default contract."""

    def __init__(self, app: App, *, once: Once, principal: Any, **options: Any) -> None:
        self.app = app
        self.once = once
        told = once.observers.tellers()
        self.exchange = Exchange(once.plans, once.scope, principal=principal, told=told, **options)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request, or hand it to the app where keys do not concern it."""
        path = path_of(environ)
        method = environ["REQUEST_METHOD"]
        within = text_of(environ.get("SCRIPT_NAME", ""))
        route = self.exchange.find(method, path, within)
        if route is None:
            if (document := self.exchange.document(method, path, within)) is not None:
                return answered(start_response, self._document(document, within, environ))
            return self.app(environ, start_response)
        sent = environ.get("HTTP_IDEMPOTENCY_KEY")
        if sent is None and not route.contract.required:
            return self.app(environ, start_response)
        principal = self.exchange.principal(environ)
        if principal is None or principal == "":
            self.exchange.tell(route.operation, "unprotected")
            return self._unprotected(environ, start_response, "no-principal")
        try:
            return self._keyed(route, path, self.exchange.scopes.of(principal), environ, start_response)
        except Problem as problem:
            return answered(start_response, self.exchange.refusal(problem, route.operation))

    def _keyed(
        self, route: Route, path: str, whose: str, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        exchange = self.exchange
        sent = environ.get("HTTP_IDEMPOTENCY_KEY")
        value = exchange.key_format.key([] if sent is None else [sent])
        refuse_declared(environ.get("CONTENT_LENGTH"), route.contract.max_request)
        exchange.enter(whose)
        try:
            body = _body(route, environ)
            key = exchange.key(route, whose, path, value)
            query = environ.get("QUERY_STRING", "").encode("latin-1")
            origin = whence(environ.get("HTTP_TRACEPARENT"), environ.get("HTTP_X_REQUEST_ID"))
            intent = exchange.intent(route, key, path, query, environ.get("CONTENT_TYPE", ""), body, origin)
            try:
                answer = self._work(route, intent, environ, body, start_response)
            except BaseException:
                body.close()
                raise
            return read_to_the_end(answer, body)
        finally:
            exchange.leave(whose)

    def _work(
        self, route: Route, intent: Intent, environ: Environ, body: Spool, start_response: StartResponse
    ) -> Iterable[bytes]:
        """The request from its claim to its answer."""
        inside = {**environ, "wsgi.input": _input(body), "CONTENT_LENGTH": str(body.size)}
        if route.contract.joined is not None:
            return answered(start_response, self._joined(route, intent, inside))
        run = Run(self.app, self.exchange, route.contract, inside)
        try:
            outcome = self.once.perform(route.plan, intent, run, (), {})
            return answered(start_response, self._replay(route, outcome.value, environ))
        except Over:
            return run.deliver(start_response)
        except UmavezError as error:
            if run.started:
                raise
            if isinstance(error, StoreError) and route.contract.outage == "open":
                note_failure(error, intent.key, "run without protection")
                self.exchange.tell(route.operation, "unprotected")
                return self._unprotected(inside, start_response, "store-outage")
            note_failure(error, intent.key, "refused")
            return answered(start_response, self.exchange.refusal(error, route.operation))

    def _joined(self, route: Route, intent: Intent, inside: Environ) -> Answer:
        """The request inside one transaction: claim, effect and response commit together, then the answer goes out."""
        run = JoinedRun(self.app, self.exchange, route.contract, inside)
        watch = Watch(route.operation)
        try:
            attempt = run_joined(self.once, route, intent, watch, run)
            if run.answer is None:
                return self._replay(route, attempt.outcome, inside)
            self.exchange.tell(route.operation, "first")
            return run.answer
        except UmavezError as error:
            watch.check()
            if run.started and run.answer is None:
                raise
            note_failure(error, intent.key, "refused")
            return self.exchange.refusal(error, route.operation)
        except Over:
            watch.check()
            self.exchange.tell(route.operation, "unfinished")
            return run.answer  # type: ignore[return-value]  # only an answered run is over

    def _replay(self, route: Route, value: list[Any], environ: Environ) -> Answer:
        place = entity_of(value)
        if place is not None:
            self.exchange.tell(route.operation, "replayed")
            return current(value, fetched(self.app, environ, place))
        return self.exchange.replay(value, route.operation)

    def _unprotected(self, environ: Environ, start_response: StartResponse, why: str) -> Iterable[bytes]:
        name, value = (part.decode() for part in unprotected(why.encode()))

        def marked(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            return start_response(status, [*headers, (name, value)], *error)

        return self.app(environ, marked)

    def _document(self, document: str, within: str, environ: Environ) -> Answer:
        """The policy document, or what became of a key."""
        if document == "policy":
            return policy_answer(self.exchange)
        sent = environ.get("HTTP_IDEMPOTENCY_KEY")
        query = environ.get("QUERY_STRING", "").encode("latin-1")
        try:
            principal = self.exchange.principal(environ)
            route, key = asked_key(self.exchange, principal, [] if sent is None else [sent], query, within)
            return status_answer(route, self.once.store.read(key))
        except (Problem, UmavezError) as error:
            return self.exchange.refusal(error)


def path_of(environ: Environ) -> str:
    """The whole path as text."""
    return text_of(environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", ""))


def text_of(raw: str) -> str:
    """What WSGI gives of a path, whose bytes it dresses as latin-1, as text."""
    try:
        return raw if raw.isascii() else raw.encode("latin-1").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return raw  # a server that gives text instead


def answered(start_response: StartResponse, answer: Answer) -> list[bytes]:
    """Send a whole answer."""
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers]
    start_response(status_line(answer.status), headers)
    return [answer.body]


def status_line(status: int) -> str:
    """The status as WSGI writes it."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unnamed"


def _body(route: Route, environ: Environ) -> Spool:
    """The whole request body: as much as was declared, or until its end where the server marks that."""
    spool = Spool(route.contract.max_request, route.contract.memory)
    source = environ["wsgi.input"]
    left = declared_length(environ.get("CONTENT_LENGTH"))
    if left is None and not environ.get("wsgi.input_terminated"):
        return spool
    try:
        while left is None or left > 0:
            piece = source.read(PIECE if left is None else min(PIECE, left))
            if not piece:
                break
            spool.add(piece)
            left = None if left is None else left - len(piece)
        refuse_incomplete(environ.get("CONTENT_LENGTH"), spool.size)
    except BaseException:
        spool.close()
        raise
    return spool


def _input(body: Spool) -> Any:
    return body.file() or io.BytesIO(body.whole or b"")
