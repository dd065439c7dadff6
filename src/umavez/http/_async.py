"""What every shell for tasks does with an answer: records what it means, in a transaction that it watches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from umavez._async.attempt import AsyncAttempt
from umavez._async.once import AsyncOnce
from umavez.core.protocol import Intent
from umavez.errors import ClaimLost, StoreError
from umavez.http.contract.answer import Answer, no_store
from umavez.http.contract.exchange import Exchange, not_kept, unfinished, unprotected
from umavez.http.contract.failures import note_failure
from umavez.http.contract.handler import Over, joined_arguments
from umavez.http.contract.route import Contract, Route
from umavez.http.transaction import (
    NAME,
    NUMBER,
    RELEASE,
    SAVEPOINT,
    Mark,
    TransactionEnded,
    async_fetched,
    kind_of,
)


async def record(
    attempt: AsyncAttempt, exchange: Exchange, contract: Contract, answer: Answer, *, whole: bool
) -> Answer:
    """Record what `answer` means; returns what the client is told. Without `whole` the body is not kept."""
    status, headers, body = answer
    operation = attempt.key.operation
    try:
        if not contract.is_final(status):
            await attempt.fail(unfinished(answer))
            exchange.tell(operation, "unfinished")
            return Answer(status, no_store(headers), body)
        await attempt.succeed(exchange.final_value(contract, answer) if whole else not_kept(answer, contract))
    except ClaimLost as lost:
        return exchange.refusal(lost, operation)
    except StoreError as error:
        note_failure(error, attempt.key, "answered but not recorded")
        # It happened. Told 503 the client would try again; told the truth it has no reason to.
        attempt.leave_unrecorded()
        exchange.tell(operation, "unprotected")
        return Answer(status, [*no_store(headers), unprotected(b"not-recorded")], body)
    exchange.tell(operation, "first")
    return Answer(status, no_store(headers), body)


class AsyncWatch:
    """Watches the transaction of one joined request. `check` raises TransactionEnded where the handler ended it.

    It is to be asked once all is over: where a handler has committed, the outcome is recorded all the same, so
    that a repeat is answered and has no second effect. `parted`: that has to be done apart from the connection, which
    may be back in its pool.
    """

    def __init__(self, operation: str) -> None:
        self._operation = operation
        self._ended = False
        self.parted = False

    def check(self) -> None:
        """Raise TransactionEnded, if so it was."""
        if self._ended:
            raise TransactionEnded(self._operation)

    @asynccontextmanager
    async def over(self, connection: Any) -> AsyncIterator[None]:
        """Around the handler, after the claim."""
        mark = await mark_of(connection)
        try:
            yield
        except Over:
            self._ended = await is_ended(mark)
            raise
        self._ended = await is_ended(mark)
        self.parted = self._ended and mark.kind == "object"


async def run_joined(
    once: AsyncOnce, route: Route, intent: Intent, watch: AsyncWatch, run: Callable[[Any, Any], Awaitable[list[Any]]]
) -> AsyncAttempt:
    """Run a handler in one transaction with its claim and its outcome; the attempt, once it is committed.

    `run` gets attempt and connection and gives what is kept; where the attempt is a replay it is not called. Raises
    Over where its answer is no outcome, after rolling back.
    """
    async with (
        route.contract.joined() as connection,  # type: ignore[misc]  # checked by the caller
        once.joined(connection, route.operation, **joined_arguments(route, intent)) as attempt,
    ):
        if not attempt.replayed:
            async with watch.over(connection):
                value = await run(attempt, connection)
            if watch.parted:
                attempt.go_apart(once.store)
            await attempt.succeed(value)
    watch.check()
    return attempt


async def mark_of(connection: Any) -> Mark:
    """Mark the transaction of `connection`, in which a claim was made just now."""
    kind, asked = kind_of(connection)
    if kind == "object":
        return Mark(kind, asked, asked.get_transaction())
    if kind is None:
        return Mark(None, None, None)
    return Mark(kind, connection, await async_fetched(connection, NUMBER if kind == "number" else SAVEPOINT))


async def is_ended(mark: Mark) -> bool:
    """Whether another transaction, or none, stands where `mark` was made."""
    kind, connection, value = mark
    if kind is None or kind == "object":
        return kind is not None and connection.get_transaction() is not value
    try:
        found = await async_fetched(connection, NUMBER if kind == "number" else RELEASE)
    except Exception as error:  # noqa: BLE001 - other trouble is told by what is recorded next
        return NAME in str(error)
    return bool(found != value)
