"""Reconciliation: asks the far side about outcomes that nobody knows. See `umavez.reconcile`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from umavez._async.attempt import AsyncAttempt, drive
from umavez._async.once import AsyncOnce
from umavez._async.paging import async_pages
from umavez.concurrency.aside import AsyncAside, Late, async_side_by_side
from umavez.concurrency.waiting import async_wait
from umavez.core.asking import Adopt, Exhaust, GiveUp, Rerun
from umavez.core.protocol import Asking
from umavez.core.reconciliation import Pace, Report, askable, fairly, inquire, standing
from umavez.core.record import Query, Record, Status
from umavez.engine.declaration import Plan, message
from umavez.engine.outcome import Question
from umavez.engine.stamps import STAMPS
from umavez.errors import ClaimLost, ConfigurationError, StoreError
from umavez.stores import AsyncStore

BUDGET = 100
"""Questions in one run, over all scopes."""
WINDOW = 10_000
"""How many unknown records of one operation are looked at in one run."""
PATIENCE = 30.0
"""Seconds that one question may take."""
AT_ONCE = 4
"""Questions under way at the same time."""


class AsyncReconciler:
    """Asks about UNKNOWN and lapsed records of operations whose unknown= is a callable; several may run side by side.

    `reruns` maps an operation to a callable that gets the Question and runs it again where it had not happened;
    without one the key is freed and the next caller runs it. Operations that hold are only counted.

    A question without an answer after `patience` seconds is given up: its record stays unknown and its claim is given
    back. `at_once` questions run side by side; once so many of one operation had no answer in time, the others of that
    operation wait for a later run (`silent`), so that a far side that hangs keeps nobody else waiting.
    """

    def __init__(
        self,
        once: AsyncOnce,
        *,
        pace: Pace | None = None,
        budget: int = BUDGET,
        per_scope: int | None = None,
        window: int = WINDOW,
        patience: float = PATIENCE,
        at_once: int = AT_ONCE,
        reruns: Mapping[str, Callable[[Question], Any]] | None = None,
    ) -> None:
        self._once = once
        self._store: AsyncStore = once.store
        self._pace = Pace() if pace is None else pace
        self._budget = budget
        self._per_scope = per_scope
        self._window = window
        self._patience = patience
        self._at_once = at_once
        self._asides: dict[str, AsyncAside] = {}
        self._reruns = dict(reruns or {})
        self._admission = once._admission  # noqa: SLF001  # the same engine, seen by another module
        self._observe = once.observers

    async def run(self, stop: asyncio.Event | None = None) -> Report:
        """One pass; `stop` ends it early, without waiting for answers.

        A store that fails raises StoreError; whatever one record's own code raises is counted.
        """
        report = Report()
        due = list(fairly(await self._due(report), self._budget, self._per_scope))
        for record in due:
            self._asides.setdefault(record.key.operation, AsyncAside()).renew()
        for part in await async_side_by_side(self._at_once, [partial(self._reported, record, stop) for record in due]):
            report.add(part)
        report.oldest_unknown = await self.oldest_unknown()
        return report

    async def ask(self, record: Record) -> str:
        """Ask about exactly this record now, whatever the pace says; in a word of Report, what came of it.

        "busy": it has changed since it was read, and nothing was asked. Raises ConfigurationError where the operation's
        unknown= is no callable, StoreError, and whatever the operation's own code raises.
        """
        plan = self._once.plans.declarations.get(record.key.operation)
        if plan is None or not plan.policy.asks:
            raise ConfigurationError(
                f"{record.key.operation} is not declared here with unknown=<callable>; there is nobody to ask."
            )
        seen = await self._store.read(record.key)
        if not askable(record, seen.now):
            return "busy"
        self._asides.setdefault(record.key.operation, AsyncAside()).renew()
        asking = await drive(inquire(record, plan.policy, STAMPS.owner()), self._store)
        try:
            return "busy" if asking is None else await self._asked(plan, asking, None)
        except ClaimLost:
            return "busy"

    async def _reported(self, record: Record, stop: asyncio.Event | None) -> Report:
        """What became of one record. Each job counts for itself: nothing is shared between them."""
        report = Report()
        if stop is not None and stop.is_set():
            return report
        try:
            report.count(await self._settled(record, report, stop))
        except ClaimLost:
            report.count("busy")
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  # one record's trouble must not keep the others waiting
            report.count("failed")
            report.errors.append(f"{record.key.operation}: {message(error)}")
        return report

    async def serve(
        self, stop: asyncio.Event, every: float = 60.0, told: Callable[[Report], None] | None = None
    ) -> None:
        """A pass every `every` seconds until `stop` is set; `told` gets each report. A failed store is tried later.

        `stop` waits for no answer: what was being asked about stays unknown, and its claim is given back.
        """
        while not stop.is_set():
            try:
                report = await self.run(stop)
            except StoreError as error:
                report = Report(failed=1, errors=[message(error)])
            if told is not None:
                told(report)
            await async_wait(stop, every)

    async def oldest_unknown(self) -> float | None:
        """Seconds since the oldest unknown outcome's operation began, over all scopes; None when there is none."""
        found = await self._store.find(Query(status=Status.UNKNOWN, limit=1))
        if not found:
            return None
        now = (await self._store.read(found[0].key)).now
        return max(now - found[0].created_at, 0) / 1000

    async def _due(self, report: Report) -> list[Record]:
        due: list[Record] = []
        # As they are now: more may be declared while the store is asked.
        for operation, plan in list(self._once.plans.declarations.items()):
            unknown = Query(operation=operation, status=Status.UNKNOWN, limit=self._window)
            if plan.policy.asks:
                due += await self._due_among(unknown, report)
                due += await self._due_among(replace(unknown, status=None, lapsed=True), report)
            else:
                report.held += len(await self._store.find(unknown))
        return due

    async def _due_among(self, query: Query, report: Report) -> list[Record]:
        """A window's worth of records that may be asked about now; those that wait for later hide none behind them."""
        due: list[Record] = []
        async for records in async_pages(self._store, query):
            now = (await self._store.read(records[0].key)).now
            for record in records:
                where = standing(record, now, self._pace)
                if where == "due":
                    due.append(record)
                elif where != "busy":
                    report.count(where)
            if len(due) >= self._window:
                break
        return due

    async def _settled(self, record: Record, report: Report, stop: asyncio.Event | None) -> str:
        """Ask about one record; in one word, what came of it."""
        operation = record.key.operation
        if self._asides[operation].full(self._at_once):
            return "silent"
        seen = await self._store.read(record.key)
        where = standing(seen.current, seen.now, self._pace)
        if where != "due" or seen.current is None:
            # Another reconciler was here since the list was made.
            return "busy" if where == "waiting" else where
        plan = self._once.plans.declarations[operation]
        asking = await drive(inquire(seen.current, plan.policy, STAMPS.owner()), self._store)
        if asking is None:
            return "busy"
        report.count("asked")
        return await self._asked(plan, asking, stop)

    async def _asked(self, plan: Plan, asking: Asking, stop: asyncio.Event | None) -> str:
        doubtful = asking.doubtful
        inquiry = AsyncAttempt(self._store, plan, doubtful.key, asking.claim, self._observe)
        match await self._admission.ask(doubtful, inquiry, self._asides[plan.operation], self._patience, stop):
            case Adopt(value, evidence):
                await inquiry.adopt(value, evidence)
                return "adopted"
            case GiveUp(evidence):
                await inquiry.give_up(evidence, doubtful.status)
                return "left"
            case Exhaust(evidence):
                await inquiry.free(evidence)
                return "exhausted"
            case Rerun(evidence):
                return await self._not_happened(plan, inquiry, doubtful, evidence, stop)

    async def _not_happened(
        self, plan: Plan, inquiry: AsyncAttempt, doubtful: Record, evidence: str, stop: asyncio.Event | None
    ) -> str:
        again = self._reruns.get(plan.operation)
        if again is None:
            await inquiry.free(evidence)
            return "freed"
        await inquiry.rerun(evidence)
        question = plan.question(doubtful, inquiry.fence)
        try:
            # Never ended from here: an effect that may still happen keeps its claim as long as it runs.
            await self._asides[plan.operation].call(
                self._patience, lambda: self._ran(again, question, inquiry), stop, end=False
            )
        except Late:
            return "running"
        return "reran"

    async def _ran(self, again: Callable[[Question], Any], question: Question, inquiry: AsyncAttempt) -> None:
        self._admission.begin(inquiry)
        try:
            value = await again(question)
            await inquiry.succeed(value)
        except BaseException as error:  # a cancelled or interrupted attempt is recorded too, then goes on its way
            await inquiry.fail_quietly(error)
            raise
        finally:
            self._admission.end(inquiry)
