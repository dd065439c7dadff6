"""The ASGI shell: pure ASGI, so that nothing between the server and the app cancels or reorders what runs.

    app = Idempotency(app, once=AsyncOnce(...), principal=lambda scope: scope["user"].id, unknown="hold")

Stand it inside the authentication: `principal` must see who was authenticated, and a replay must not come
before that check.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from umavez.aio import AsyncOnce
from umavez.core.key import Key
from umavez.core.protocol import Intent
from umavez.errors import StoreError, UmavezError
from umavez.http.answer import Answer
from umavez.http.asgi_run import JoinedRun, Run, body_source, fetched, send_answer
from umavez.http.detached import Detached
from umavez.http.exchange import Exchange, current, entity_of, unprotected
from umavez.http.keyed import Over, joined_arguments
from umavez.http.principal import Principal
from umavez.http.problem import Problem
from umavez.http.route import Route
from umavez.http.spool import Spool, refuse_declared
from umavez.http.status import asked_key, policy_answer, status_answer
from umavez.stores.memory import AsyncMemoryStore

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]


class Idempotency:
    """Middleware that makes keyed requests run once. `options` are those of Exchange and of its default contract."""

    def __init__(self, app: App, *, once: AsyncOnce, principal: Any, **options: Any) -> None:
        self.app = app
        self.once = once
        self.exchange = Exchange(once.plans, once.scope, principal=principal, **options)
        self._documents = self.exchange.documents
        self._documents_at = () if self._documents is None else (self._documents, f"{self._documents}/status")
        self._detached = Detached()
        self._in_memory = type(once.store) is AsyncMemoryStore

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it to the app where keys do not concern it."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        path: str = scope["path"]
        route = self.exchange.find(scope["method"], path)
        if route is None:
            if path in self._documents_at and scope["method"] == "GET":
                return await self._document(scope, send)
            return await self.app(scope, receive, send)
        keys, media, length = _scanned(scope["headers"])
        if not keys and not route.contract.required:
            return await self.app(scope, receive, send)
        return await self._keyed(route, keys, media, length, scope, receive, send)

    async def _keyed(
        self,
        route: Route,
        keys: list[bytes],
        media: bytes,
        length: bytes | None,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        exchange = self.exchange
        principal = await self._principal(scope)
        if principal is None or principal == "":
            return await self._unprotected(scope, receive, send, b"no-principal")
        whose = exchange.scopes.of(principal)
        try:
            value = exchange.key_format.key([key.decode("latin-1") for key in keys])
            if length is not None:
                refuse_declared(length, route.contract.max_request)
            exchange.enter(whose)
        except Problem as problem:
            return await send_answer(send, exchange.refusal(problem))
        try:
            body = await _body(route, receive)
            if body is None:
                return exchange.leave(whose)
            intent = self._intent(route, exchange.key(route, whose, scope["path"], value), scope, media, body)
        except Problem as problem:
            exchange.leave(whose)
            return await send_answer(send, exchange.refusal(problem))
        except BaseException:
            exchange.leave(whose)
            raise
        work = self._work(route, intent, scope, body, receive, send)
        finish = self._detached.finish_eagerly if self._eager(route) else self._detached.finish
        answer = await finish(work)
        if answer is not None:
            await send_answer(send, answer)
        return None

    def _intent(self, route: Route, key: Key, scope: Scope, media: bytes, body: bytes | Spool) -> Intent:
        path, query, kind = scope["path"], scope.get("query_string", b""), media.decode("latin-1")
        if isinstance(body, bytes):
            return self.exchange.intent(route, key, path, query, kind, body)
        return self.exchange.intent_of_spool(route, key, path, query, kind, body)

    async def _principal(self, scope: Scope) -> Principal:
        principal = self.exchange.principal(scope)
        if principal is None or type(principal) is str or not hasattr(principal, "__await__"):
            return principal  # type: ignore[no-any-return]  # checked by Scopes.of
        return await principal  # type: ignore[no-any-return]  # the same

    def _eager(self, route: Route) -> bool:
        """Whether admission to `route` never waits: a store in memory, no rival waited for, nobody asked."""
        policy, contract = route.plan.policy, route.contract
        waits = policy.wait > 0 or policy.asks or contract.joined is not None or contract.replay == "entity"
        return self._in_memory and not waits

    async def _work(
        self, route: Route, intent: Intent, scope: Scope, body: bytes | Spool, receive: Receive, send: Send
    ) -> Answer | None:
        """The request from its claim to its end; the answer, unless the run has sent its own."""
        try:
            if route.contract.joined is not None:
                return await self._joined(route, intent, scope, body, receive)
            return await self._performed(route, intent, scope, body, receive, send)
        finally:
            # Here, not where the caller waits: one that goes away must not make room for more while this runs.
            self.exchange.leave(intent.key.scope)
            if not isinstance(body, bytes):
                body.close()

    async def _performed(
        self, route: Route, intent: Intent, scope: Scope, body: bytes | Spool, receive: Receive, send: Send
    ) -> Answer | None:
        run = Run(self.app, self.exchange, route.contract, scope, body, receive, send, eager=self._eager(route))
        try:
            outcome = await self.once.perform(route.plan, intent, run, (), {})
            return await self._replay(outcome.value, scope)
        except Over:
            return None
        except (UmavezError, Problem) as error:
            if run.started:
                raise
            if isinstance(error, StoreError) and route.contract.outage == "open":
                await self._unprotected(scope, body_source(body, receive), send, b"store-outage")
                return None
            return self.exchange.refusal(error)

    async def _joined(
        self, route: Route, intent: Intent, scope: Scope, body: bytes | Spool, receive: Receive
    ) -> Answer | None:
        """The request inside one transaction: claim, effect and response commit together, then the answer goes out."""
        run = JoinedRun(self.app, self.exchange, route.contract, scope, body, receive)
        try:
            async with (
                route.contract.joined() as connection,  # type: ignore[misc]  # checked by the caller
                self.once.joined(connection, route.operation, **joined_arguments(route, intent)) as attempt,
            ):
                if not attempt.replayed:
                    await attempt.succeed(await run(attempt, connection))
            return run.answer or await self._replay(attempt.outcome, scope)
        except (UmavezError, Problem) as error:
            if run.started and run.answer is None:
                raise
            return self.exchange.refusal(error)
        except Over:
            return run.answer

    async def _replay(self, value: list[Any], scope: Scope) -> Answer:
        place = entity_of(value)
        if place is not None:
            return current(value, await fetched(self.app, scope, place))
        return self.exchange.replay(value)

    async def _unprotected(self, scope: Scope, receive: Receive, send: Send, why: bytes) -> None:
        async def marked(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), unprotected(why)]}
            await send(message)

        await self.app(scope, receive, marked)

    async def _document(self, scope: Scope, send: Send) -> None:
        """The policy document, or what became of a key."""
        exchange = self.exchange
        if scope["path"] == self._documents:
            return await send_answer(send, policy_answer(exchange))
        keys = [value.decode("latin-1") for name, value in scope["headers"] if name == b"idempotency-key"]
        try:
            principal = await self._principal(scope)
            route, key = asked_key(exchange, principal, keys, scope.get("query_string", b""))
            answer = status_answer(route, await self.once.store.read(key))
        except (Problem, UmavezError) as error:
            answer = exchange.refusal(error)
        return await send_answer(send, answer)


def _scanned(headers: Any) -> tuple[list[bytes], bytes, bytes | None]:
    """The keys, the content type and the declared length, in one pass."""
    keys, media, length = [], b"", None
    for name, value in headers:
        if name == b"idempotency-key":
            keys.append(value)
        elif name == b"content-type":
            media = value
        elif name == b"content-length":
            length = value
    return keys, media, length


async def _body(route: Route, receive: Receive) -> bytes | Spool | None:
    """The whole request body, or None when the client left before sending it: nothing has run then."""
    message = await receive()
    if message["type"] == "http.disconnect":
        return None
    chunk: bytes = message.get("body", b"")
    if not message.get("more_body") and len(chunk) <= route.contract.max_request:
        return chunk
    spool = Spool(route.contract.max_request, route.contract.memory)
    spool.add(chunk)
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            spool.close()
            return None
        spool.add(message.get("body", b""))
    return spool
