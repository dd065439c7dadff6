# Written by tools/sync.py from src/umavez/_async/once.py: change that, then run `make format`.
"""Once: the engine, for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from umavez._sync.admission import Admission, Entered
from umavez._sync.attempt import Attempt, drive
from umavez._sync.observed import observed
from umavez._sync.operation import Operation, operation_of
from umavez.concurrency.waiting import awaited
from umavez.core.encoding.codec import Codec, JsonCodec
from umavez.core.policy import Answer, NotHappened
from umavez.core.protocol import Intent
from umavez.core.record import Query, Record, Status, span_of, status_of
from umavez.core.resolution import resolve
from umavez.core.telling.events import PastEvent
from umavez.engine.binding import Binder, refuse_misfit
from umavez.engine.blocks import block
from umavez.engine.declaration import ARGUMENTS, Plan, Plans, codec_given, refuse_uncallable, resolution_of
from umavez.engine.insistence import while_the_lease_lives
from umavez.engine.observing import Observers
from umavez.engine.options import Declaration, JoinedOptions, Options, refuse_awaited
from umavez.engine.outcome import Observer, Outcome
from umavez.engine.stamps import STAMPS
from umavez.errors import ConfigurationError
from umavez.sql.joining import driver_connection
from umavez.stores import Chronicle, Store, open_store, store_given

P = ParamSpec("P")
T = TypeVar("T")


class Once:
    """Makes operations safe to retry: each runs once, and a repeat gets the same outcome.

    `store` is a URL (memory:, sqlite:///…, postgresql://…, mariadb://…, redis://…) or a Store.
    `scope` says whose operations these are; keys of different scopes never meet.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        scope: str,
        codec: Codec | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        self._observe = Observers(observers)
        opened = open_store(store) if isinstance(store, str) else store_given(store)
        self.store: Store = observed(opened, self._observe)
        self.url = store if isinstance(store, str) else None
        """Where the store is, if it was named so; it may hold a password."""
        self.scope = scope
        self.codec: Codec = JsonCodec() if codec is None else codec_given(codec)
        self.plans = Plans(scope, self.codec, refuse_awaited)
        self._admission = Admission(self.store, self._observe)

    def operation(
        self,
        name: str,
        *,
        key: Callable[..., object],
        fingerprint: Any = ARGUMENTS,
        process_instance: Any = None,
        activity: Any = None,
        **options: Unpack[Declaration],
    ) -> Callable[[Callable[P, T]], Operation[P, T]]:
        """Declare a function as an operation. `key` gets the arguments it names and gives the key's value.

        `options` are those of Policy, and codec=, replay=, reference=. Raises NotDeclared without unknown=, and
        ConfigurationError for a function of the other kind (`def` here is Once's, `async def` Once's), and for
        another function than the one that has this name.
        """
        plan = self.plans.planned(name, options)

        def decorate(function: Callable[P, T]) -> Operation[P, T]:
            refuse_misfit(name, function)
            binder = Binder(
                plan, function, key=key, fingerprint=fingerprint, process_instance=process_instance, activity=activity
            )
            self.plans.bind(plan, function)
            return operation_of(self, plan, binder, function)

        return decorate

    def run(
        self,
        operation: str,
        *,
        key: object,
        call: Callable[[], T],
        fingerprint: Any = None,
        process_instance: str | None = None,
        activity: str | None = None,
        scope: str | None = None,
        **options: Unpack[Options],
    ) -> Outcome[T]:
        """Run `call` once for `key`. `fingerprint` is what the request means, to notice a key used for another.

        Raises ConfigurationError where `call` gave what stands for work still to be done; its outcome is unknown then.
        """
        if not callable(call):
            refuse_uncallable(operation, call)
        plan = self.plans.of(operation, options)
        return self.perform(plan, plan.intent(key, fingerprint, process_instance, activity, scope), call, (), {})

    def perform(
        self,
        plan: Plan,
        intent: Intent,
        call: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Outcome[T]:
        """Carry out a declared operation once; the path that every other way in takes."""
        entered = self._admission.enter(plan, intent)
        if type(entered) is Record:
            value = plan.stored(entered) if plan.replay is None else self._shown(plan, entered)
            return tuple.__new__(Outcome, (value, True, entered.attempt, entered.key))  # see core/drafts.py
        if type(entered) is Outcome:
            return entered
        attempt = entered
        self._admission.begin(attempt)
        try:
            value = awaited(call(*args, **kwargs))
            if attempt.done:
                return Outcome(value, False, attempt.number, attempt.key)
            return attempt.succeed(value)
        except BaseException as error:  # a cancelled or interrupted attempt is recorded too, then goes on its way
            attempt.fail_quietly(error)
            raise
        finally:
            self._admission.end(attempt)

    @block
    def attempt(
        self,
        operation: str,
        *,
        key: object,
        fingerprint: Any = None,
        process_instance: str | None = None,
        activity: str | None = None,
        scope: str | None = None,
        connection: Any = None,
        **options: Unpack[Options],
    ) -> Iterator[Attempt]:
        """A block that is the operation: it settles with succeed() or refuse(), or with None when it just ends.

        A block cannot be skipped: begin it with `if attempt.replayed:`. One that was replayed and did not look raises
        ReplayIgnored at its end. Where the effect is one call, `run` leaves nothing to forget. With `connection` the
        claim is part of the caller's own transaction there, with whatever else must stand before the effect; commit
        it first. Rolled back, there was no claim, and what the block writes of its end raises ClaimLost. A rival is not
        waited for in there, whatever wait= says.
        """
        plan = self.plans.of(operation, options)
        intent = plan.intent(key, fingerprint, process_instance, activity, scope)
        store = None if connection is None else self.store.joined(driver_connection(connection))
        attempt = self._attempt_of(plan, intent, self._admission.enter(plan, intent, store))
        if store is not None:
            attempt.go_apart(self.store, while_the_lease_lives)
        if attempt.is_replay:
            yield attempt
            attempt.refuse_ignored_replay()
            return
        self._admission.begin(attempt)
        try:
            yield attempt
            if not attempt.done:
                attempt.succeed(None)
        except BaseException as error:  # as in perform
            attempt.fail_quietly(error)
            raise
        finally:
            self._admission.end(attempt)

    @block
    def joined(
        self,
        connection: Any,
        operation: str,
        *,
        key: object,
        fingerprint: Any = None,
        process_instance: str | None = None,
        activity: str | None = None,
        scope: str | None = None,
        wait: float = 10.0,
        **options: Unpack[JoinedOptions],
    ) -> Iterator[Attempt]:
        """A block inside the caller's own transaction: claim, effect and outcome commit or roll back together.

        The caller commits. A rival with the same key waits up to `wait` seconds, then replays or gets
        OperationInProgress; an attempt that runs apart is not waited for. An error leaves the block as it is: roll
        back. So does ReplayIgnored, at the end of a replayed block that did not look at `attempt.replayed`. What
        earlier attempts left unknown is treated as the operation was declared, else as unknown= says; without either
        it is held.
        """
        plan = self.plans.joined(operation, options)
        intent = plan.intent(key, fingerprint, process_instance, activity, scope)
        store = self.store.joined(driver_connection(connection), wait)
        entered = self._admission.enter(plan, intent, store)
        attempt = self._attempt_of(plan, intent, entered)
        if attempt.is_replay:
            yield attempt
            attempt.refuse_ignored_replay()
            return
        self._admission.begin(attempt)
        try:
            yield attempt
            if not attempt.done:
                attempt.succeed(None)
        finally:
            self._admission.end(attempt)

    def _attempt_of(self, plan: Plan, intent: Intent, entered: Entered) -> Attempt:
        if isinstance(entered, Attempt):
            return entered
        attempt = Attempt(self.store, plan, intent.key, None, self._observe, replayed=True)
        match entered:
            case Record():
                attempt.number, attempt.fence = entered.attempt, entered.fence
                attempt.outcome = self._shown(plan, entered)
            case Outcome():
                attempt.number, attempt.outcome = entered.attempt, entered.value
        return attempt

    def _shown(self, plan: Plan, record: Record) -> Any:
        """What a replay gives: the value kept, or what replay= makes of it now."""
        value = plan.stored(record)
        return value if plan.replay is None else awaited(plan.replay(value))

    def get(self, operation: str, key: object, *, scope: str | None = None) -> Record | None:
        """The record of one key, or None."""
        plan = self.plans.any(operation)
        return (self.store.read(plan.key(key, scope))).current

    def history(self, operation: str, key: object, *, scope: str | None = None) -> list[PastEvent]:
        """What happened to one key beside the clean path, the oldest first; nothing where the store keeps no events."""
        store, plan = self.store, self.plans.any(operation)
        return store.history(plan.key(key, scope)) if isinstance(store, Chronicle) else []

    def find(
        self,
        *,
        operation: str | None = None,
        key: str | None = None,
        process_instance: str | None = None,
        status: Status | str | None = None,
        older_than: float | None = None,
        lapsed: bool = False,
        every_scope: bool = False,
        limit: int = 100,
        after: Record | None = None,
        newest_first: bool = False,
        newer_than: float | None = None,
        digest: str | None = None,
    ) -> list[Record]:
        """The records that match, oldest first. `older_than` and `newer_than` are in seconds since creation.

        `lapsed`: holder gone. `digest` is what a key's digest begins with, in hexadecimal digits, as logs print it.
        `after` is the last record of the page before: give it to get the next page. Raises ConfigurationError for a
        limit, a status or a span that is none.
        """
        return self.store.find(
            Query(
                None if every_scope else self.scope,
                operation,
                key,
                process_instance,
                status_of(status),
                span_of(older_than),
                lapsed,
                limit,
                None if after is None else after.position,
                newest_first,
                span_of(newer_than),
                digest,
            )
        )

    def resolve(
        self,
        operation: str,
        key: object,
        answer: Answer,
        *,
        by: str,
        reason: str,
        scope: str | None = None,
        override: bool = False,
        expected: str | None = None,
        forgotten: bool = False,
        connection: Any = None,
    ) -> None:
        """Close a record by decision: Happened(value) settles it, NotHappened() frees its key; both leave evidence.

        `forgotten`: also where there is no record, because the database was restored to an earlier moment.

        `expected` is the stamp of the record that was looked at: where another stands by now, RecordChanged is raised
        and nothing is written. With `connection` the decision is part of the caller's own transaction there.
        Raises NoSuchRecord, OperationInProgress while it runs, AlreadySettled unless `override`, and NotStorable for
        a value that a repeat could not be answered with.
        """
        plan = self.plans.any(operation)
        name = plan.key(key, scope)
        resolution = resolution_of(plan, name, answer, by, reason)
        store = self.store if connection is None else self.store.joined(driver_connection(connection))
        made = STAMPS.owner() if forgotten else None
        flow = resolve(
            name, resolution, plan.keep_ms, STAMPS.owner(), override=override, expected=expected, forgotten=made
        )
        drive(flow, store)
        self._observe("released" if resolution.settled is None else "resolved", name, 0)

    def release(
        self,
        operation: str,
        key: object,
        *,
        by: str,
        reason: str,
        scope: str | None = None,
        override: bool = False,
        expected: str | None = None,
        connection: Any = None,
    ) -> None:
        """Free a key, so that the operation may run again; see resolve."""
        self.resolve(
            operation,
            key,
            NotHappened(),
            by=by,
            reason=reason,
            scope=scope,
            override=override,
            expected=expected,
            connection=connection,
        )

    def sweep(self, *, older_than: float = 0.0, batch: int = 1000, limit: int | None = None) -> int:
        """Delete expired records in batches, at most `limit`; returns how many. What runs or is unknown stays."""
        if batch < 1:
            raise ConfigurationError("A sweep needs a batch of at least 1: by less it never comes to an end.")
        swept = 0
        while limit is None or swept < limit:
            size = batch if limit is None else min(batch, limit - swept)
            gone = self.store.sweep(size, int(older_than * 1000))
            swept += gone
            if gone < size:
                break
        return swept

    def migrate(self) -> str:
        """Create or upgrade the store's tables; safe to repeat."""
        return self.store.migrate()

    def close(self) -> None:
        """Stop the heartbeat and give the store's connections back."""
        self._admission.heartbeats.close()
        self._admission.returns.close()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def observers(self) -> Observers:
        """Who is told of what this engine does."""
        return self._observe
