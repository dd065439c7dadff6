"""The ASGI shell: pure ASGI, so that nothing between the server and the app cancels or reorders what runs.

    app = Idempotency(app, once=AsyncOnce(...), principal=lambda scope: scope["user"].id, unknown="hold")

Stand it inside the authentication: `principal` must see who was authenticated, and a replay must not come
before that check.
"""

from __future__ import annotations

from typing import Any

from umavez._async.once import AsyncOnce
from umavez.core.protocol import Intent
from umavez.core.telling.origin import MOST_REQUEST, whence
from umavez.engine.current import forget_ended
from umavez.errors import StoreError, UmavezError
from umavez.http._async import AsyncWatch, run_joined
from umavez.http.asgi.background import Detached
from umavez.http.asgi.capture import JoinedRun, Run
from umavez.http.asgi.message import App, Body, Receive, Scope, Send, body_source, fetched, send_answer, whole_body
from umavez.http.contract.answer import Answer
from umavez.http.contract.body import Spool, refuse_declared
from umavez.http.contract.exchange import Exchange, current, entity_of, unprotected
from umavez.http.contract.failures import note_failure
from umavez.http.contract.handler import ANSWERED, SEEN, Over
from umavez.http.contract.principal import Principal
from umavez.http.contract.problem import Problem
from umavez.http.contract.route import Route
from umavez.http.contract.status import asked_key, policy_answer, status_answer
from umavez.stores.memory import AsyncMemoryStore


class Idempotency:
    """Middleware that makes keyed requests run once. `options` are those of Exchange and of its default contract."""

    def __init__(self, app: App, *, once: AsyncOnce, principal: Any, **options: Any) -> None:
        self.app = app
        self.once = once
        told = once.observers.tellers()
        self.exchange = Exchange(once.plans, once.scope, principal=principal, told=told, **options)
        self._detached = Detached()
        in_memory = type(getattr(once.store, "plain", once.store)) is AsyncMemoryStore
        self._eager = frozenset(route for route in self.exchange.routes if in_memory and _admits_at_once(route))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it to the app where keys do not concern it."""
        forget_ended()
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        path: str = scope["path"]
        within: str = scope.get("root_path", "")
        route = self.exchange.find(scope["method"], path, within)
        if route is None:
            if (document := self.exchange.document(scope["method"], path, within)) is not None:
                return await self._document(document, within, scope, send)
            return await self.app(scope, receive, send)
        keys, media, length = _scanned(scope["headers"])
        if not keys and not route.contract.required:
            scope[SEEN] = None
            return await self.app(scope, receive, send)
        return await self._keyed(route, keys, media, length, scope, receive, send)

    async def _keyed(
        self,
        route: Route,
        keys: list[str],
        media: str,
        length: bytes | None,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        principal = self.exchange.principal(scope)
        if type(principal) is not str:
            principal = await _settled(principal)
        if principal is None or principal == "":
            self.exchange.tell(route.operation, "unprotected")
            return await self._unprotected(scope, receive, send, b"no-principal")
        try:
            value = self.exchange.key_format.key(keys)
            if length is not None:
                refuse_declared(length, route.contract.max_request)
            intended = await self._intended(route, self.exchange.scopes.of(principal), value, media, scope, receive)
        except Problem as problem:
            return await send_answer(send, self.exchange.refusal(problem, route.operation))
        if intended is None:
            return None
        eager = route in self._eager
        work = self._work(route, *intended, scope, receive, send, eager)
        answer = await (self._detached.finish_eagerly(work) if eager else self._detached.finish(work))
        if answer is not None:
            await send_answer(send, answer)
        return None

    async def _intended(
        self, route: Route, whose: str, value: str, media: str, scope: Scope, receive: Receive
    ) -> tuple[Intent, Body] | None:
        """What the request, now counted in, means to do once, and its body; None when the client has left."""
        exchange = self.exchange
        exchange.enter(whose)
        try:
            body = await whole_body(route.contract, receive)
            if body is not None:
                path, query = scope["path"], scope.get("query_string", b"")
                key = exchange.key(route, whose, path, value)
                return exchange.intent(route, key, path, query, media, body, _origin(scope["headers"])), body
        except BaseException:
            exchange.leave(whose)
            raise
        exchange.leave(whose)
        return None

    async def _work(
        self, route: Route, intent: Intent, body: Body, scope: Scope, receive: Receive, send: Send, eager: bool
    ) -> Answer | None:
        """The request from its claim to its end; the answer, unless the run has sent its own."""
        run: Run | None = None
        try:
            if route.contract.joined is not None:
                return await self._joined(route, intent, body, scope, receive, send)
            run = Run(self.app, self.exchange, route.contract, scope, body, receive, send, eager)
            outcome = await self.once.perform(route.plan, intent, run, (), {})
            return None if outcome.value is ANSWERED else await self._replay(route, outcome.value, scope)
        except Over:
            return None
        except (UmavezError, Problem) as error:
            if run is None or run.started:
                raise
            if isinstance(error, StoreError) and route.contract.outage == "open":
                note_failure(error, intent.key, "run without protection")
                self.exchange.tell(route.operation, "unprotected")
                await self._unprotected(scope, body_source(body, receive), send, b"store-outage")
                return None
            note_failure(error, intent.key, "refused")
            return self.exchange.refusal(error, route.operation)
        finally:
            # Here, not where the caller waits: one that goes away must not make room for more while this runs.
            self.exchange.leave(intent.key.scope)
            if type(body) is Spool:
                body.close()

    async def _joined(
        self, route: Route, intent: Intent, body: Body, scope: Scope, receive: Receive, send: Send
    ) -> Answer | None:
        """The request inside one transaction: claim, effect and response commit together, then the answer goes out."""
        run = JoinedRun(self.app, self.exchange, route.contract, scope, body, receive, send, eager=False)
        watch = AsyncWatch(route.operation)
        try:
            attempt = await run_joined(self.once, route, intent, watch, run)
            if run.answer is None:
                return await self._replay(route, attempt.outcome, scope)
            self.exchange.tell(route.operation, "first")
            return run.answer
        except (UmavezError, Problem) as error:
            watch.check()
            if run.started and run.answer is None:
                raise
            note_failure(error, intent.key, "refused")
            return self.exchange.refusal(error, route.operation)
        except Over:
            watch.check()
            self.exchange.tell(route.operation, "unfinished")
            return run.answer

    async def _replay(self, route: Route, value: list[Any], scope: Scope) -> Answer:
        place = entity_of(value)
        if place is not None:
            self.exchange.tell(route.operation, "replayed")
            return current(value, await fetched(self.app, scope, place))
        return self.exchange.replay(value, route.operation)

    async def _unprotected(self, scope: Scope, receive: Receive, send: Send, why: bytes) -> None:
        async def marked(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), unprotected(why)]}
            await send(message)

        scope[SEEN] = None
        await self.app(scope, receive, marked)

    async def _document(self, document: str, within: str, scope: Scope, send: Send) -> None:
        """The policy document, or what became of a key."""
        exchange = self.exchange
        if document == "policy":
            return await send_answer(send, policy_answer(exchange))
        keys = [value.decode("latin-1") for name, value in scope["headers"] if name == b"idempotency-key"]
        try:
            principal = await _settled(exchange.principal(scope))
            route, key = asked_key(exchange, principal, keys, scope.get("query_string", b""), within)
            answer = status_answer(route, await self.once.store.read(key))
        except (Problem, UmavezError) as error:
            answer = exchange.refusal(error)
        return await send_answer(send, answer)


def _admits_at_once(route: Route) -> bool:
    """Whether admission to `route` waits for nothing but the store: no rival, nobody asked, no transaction."""
    policy, contract = route.plan.policy, route.contract
    return not (policy.wait > 0 or policy.asks or contract.joined is not None or contract.replay == "entity")


_MOST = MOST_REQUEST + 1
"""Bytes of a header that are looked at: one more than can be kept, so that what is too long is seen to be."""


def _origin(headers: Any) -> str | None:
    """Where a request came from, as its headers say; of several of a name the first counts."""
    trace = request = None
    for name, value in headers:
        if name == b"traceparent" and trace is None:
            trace = value[:_MOST].decode("latin-1")
        elif name == b"x-request-id" and request is None:
            request = value[:_MOST].decode("latin-1")
    return None if trace is None and request is None else whence(trace, request)


async def _settled(principal: Any) -> Principal:
    """What a resolver gave, waited for where it has to be."""
    return await principal if hasattr(principal, "__await__") else principal  # type: ignore[no-any-return]  # checked by Scopes.of


def _scanned(headers: Any) -> tuple[list[str], str, bytes | None]:
    """The keys, the content type and the declared length, in one pass."""
    keys, media, length = [], "", None
    for name, value in headers:
        if name == b"idempotency-key":
            keys.append(value.decode("latin-1"))
        elif name == b"content-type":
            media = value.decode("latin-1")
        elif name == b"content-length":
            length = value
    return keys, media, length
