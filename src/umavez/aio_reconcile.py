"""Reconciliation for tasks. The twin of `reconcile.py`; see there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from umavez.aio import AsyncOnce
from umavez.aio_admission import answer_of
from umavez.aio_attempt import AsyncAttempt, drive
from umavez.core.drafts import failing
from umavez.core.policy import CannotTell, Happened
from umavez.core.protocol import Asking
from umavez.core.reconciliation import Pace, Report, fairly, inquire, standing
from umavez.core.record import Query, Record, Status
from umavez.errors import ClaimLost, StoreError
from umavez.outcome import Question
from umavez.plan import Plan, message
from umavez.stamps import STAMPS
from umavez.stores import AsyncStore

BUDGET = 100
"""Questions in one run, over all scopes."""
WINDOW = 10_000
"""How many unknown records of one operation are looked at in one run."""


class AsyncReconciler:
    """Asks about UNKNOWN and lapsed records of operations whose unknown= is a callable; several may run side by side.

    `reruns` maps an operation to a callable that gets the Question and runs it again where it had not happened;
    without one the key is freed and the next caller runs it. Operations that hold are only counted.
    """

    def __init__(
        self,
        once: AsyncOnce,
        *,
        pace: Pace | None = None,
        budget: int = BUDGET,
        per_scope: int | None = None,
        window: int = WINDOW,
        reruns: Mapping[str, Callable[[Question], Any]] | None = None,
    ) -> None:
        self._once = once
        self._store: AsyncStore = once.store
        self._pace = Pace() if pace is None else pace
        self._budget = budget
        self._per_scope = per_scope
        self._window = window
        self._reruns = dict(reruns or {})
        self._admission = once._admission  # noqa: SLF001  # the same engine, seen by another module
        self._observe = once._observe  # noqa: SLF001  # the same

    async def run(self) -> Report:
        """One pass. A store that fails raises StoreError; whatever one record's own code raises is counted."""
        report = Report()
        due = await self._due(report)
        for record in fairly(due, self._budget, self._per_scope):
            try:
                report.count(await self._settled(record, report))
            except ClaimLost:
                report.count("busy")
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001  # one record's trouble must not keep the others waiting
                report.count("failed")
                report.errors.append(f"{record.key.operation}: {message(error)}")
        report.oldest_unknown = await self.oldest_unknown()
        return report

    async def serve(
        self, stop: asyncio.Event, every: float = 60.0, told: Callable[[Report], None] | None = None
    ) -> None:
        """A pass every `every` seconds until `stop` is set; `told` gets each report. A failed store is tried later."""
        while not stop.is_set():
            try:
                report = await self.run()
            except StoreError as error:
                report = Report(failed=1, errors=[message(error)])
            if told is not None:
                told(report)
            await _wait(stop, every)

    async def oldest_unknown(self) -> float | None:
        """Seconds since the oldest unknown outcome's operation began, over all scopes; None when there is none."""
        found = await self._store.find(Query(status=Status.UNKNOWN, limit=1))
        if not found:
            return None
        now = (await self._store.read(found[0].key)).now
        return max(now - found[0].created_at, 0) / 1000

    async def _due(self, report: Report) -> list[Record]:
        due: list[Record] = []
        for operation, plan in self._once.plans.declarations.items():
            records = await self._store.find(Query(operation=operation, status=Status.UNKNOWN, limit=self._window))
            if plan.policy.asks:
                records += await self._store.find(Query(operation=operation, lapsed=True, limit=self._window))
            if not records:
                continue
            now = (await self._store.read(records[0].key)).now
            for record in records:
                where = standing(record, now, self._pace) if plan.policy.asks else "held"
                if where == "due":
                    due.append(record)
                elif where != "busy":
                    report.count(where)
        return due

    async def _settled(self, record: Record, report: Report) -> str:
        """Ask about one record; in one word, what came of it."""
        seen = await self._store.read(record.key)
        where = standing(seen.current, seen.now, self._pace)
        if where != "due" or seen.current is None:
            # Another reconciler was here since the list was made.
            return "busy" if where == "waiting" else where
        plan = self._once.plans.declarations[record.key.operation]
        asking = await drive(inquire(seen.current, plan.policy, STAMPS.owner()), self._store)
        if asking is None:
            return "busy"
        report.count("asked")
        return await self._asked(plan, asking)

    async def _asked(self, plan: Plan, asking: Asking) -> str:
        doubtful = asking.doubtful
        inquiry = AsyncInquiry(self._store, plan, doubtful.key, asking.claim, self._observe)
        self._admission.heart.begin(inquiry)
        try:
            answer = await answer_of(plan, doubtful)
        finally:
            self._admission.heart.end(inquiry)
        self._observe("asked", doubtful.key, doubtful.attempt)
        if isinstance(answer, Happened):
            await inquiry.adopt(answer.value, "the far side has it")
            return "adopted"
        if isinstance(answer, CannotTell):
            await inquiry.give_up(answer.reason or "the far side could not tell")
            return "left"
        return await self._not_happened(plan, inquiry, doubtful)

    async def _not_happened(self, plan: Plan, inquiry: AsyncInquiry, doubtful: Record) -> str:
        if not doubtful.can_retry(plan.policy.max_retries):
            await inquiry.free("the far side never did it, and no retry is left")
            return "exhausted"
        again = self._reruns.get(plan.operation)
        if again is None:
            await inquiry.free("the far side never did it")
            return "freed"
        await inquiry.rerun("the far side never did it")
        self._admission.begin(inquiry)
        try:
            value = await again(plan.question(doubtful))
            await inquiry.succeed(value)
        except BaseException as error:  # a cancelled or interrupted attempt is recorded too, then goes on its way
            await inquiry.fail_quietly(error)
            raise
        finally:
            self._admission.end(inquiry)
        return "reran"


class AsyncInquiry(AsyncAttempt):
    """The claim of a reconciler while it asks."""

    async def free(self, reason: str) -> None:
        """Free the key: it never happened. Counts no attempt, for none was made. Raises ClaimLost."""
        words = (reason, self.plan.keep_ms, self._noted("not happened", reason))
        await self._write(failing, words, "failed")


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
