"""Reconciliation: asks the far side about outcomes that nobody knows. `aio_reconcile.py` is its twin for tasks.

Reconciler(once).run()            # one pass
Reconciler(once).serve(stop)      # a pass a minute, until `stop` is set
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from umavez.admission import answer_of
from umavez.attempt import Attempt, drive
from umavez.core.drafts import failing
from umavez.core.policy import CannotTell, Happened
from umavez.core.protocol import Asking
from umavez.core.reconciliation import Pace, Report, fairly, inquire, standing
from umavez.core.record import Query, Record, Status
from umavez.errors import ClaimLost, StoreError
from umavez.once import Once
from umavez.outcome import Question
from umavez.plan import Plan, message
from umavez.stamps import STAMPS
from umavez.stores import Store

BUDGET = 100
"""Questions in one run, over all scopes."""
WINDOW = 10_000
"""How many unknown records of one operation are looked at in one run."""


class Reconciler:
    """Asks about UNKNOWN and lapsed records of operations whose unknown= is a callable; several may run side by side.

    `reruns` maps an operation to a callable that gets the Question and runs it again where it had not happened;
    without one the key is freed and the next caller runs it. Operations that hold are only counted.
    """

    def __init__(
        self,
        once: Once,
        *,
        pace: Pace | None = None,
        budget: int = BUDGET,
        per_scope: int | None = None,
        window: int = WINDOW,
        reruns: Mapping[str, Callable[[Question], Any]] | None = None,
    ) -> None:
        self._once = once
        self._store: Store = once.store
        self._pace = Pace() if pace is None else pace
        self._budget = budget
        self._per_scope = per_scope
        self._window = window
        self._reruns = dict(reruns or {})
        self._admission = once._admission  # noqa: SLF001  # the same engine, seen by another module
        self._observe = once._observe  # noqa: SLF001  # the same

    def run(self) -> Report:
        """One pass. A store that fails raises StoreError; whatever one record's own code raises is counted."""
        report = Report()
        due = self._due(report)
        for record in fairly(due, self._budget, self._per_scope):
            try:
                report.count(self._settled(record, report))
            except ClaimLost:
                report.count("busy")
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001  # one record's trouble must not keep the others waiting
                report.count("failed")
                report.errors.append(f"{record.key.operation}: {message(error)}")
        report.oldest_unknown = self.oldest_unknown()
        return report

    def serve(self, stop: threading.Event, every: float = 60.0, told: Callable[[Report], None] | None = None) -> None:
        """A pass every `every` seconds until `stop` is set; `told` gets each report. A failed store is tried later."""
        while not stop.is_set():
            try:
                report = self.run()
            except StoreError as error:
                report = Report(failed=1, errors=[message(error)])
            if told is not None:
                told(report)
            _wait(stop, every)

    def oldest_unknown(self) -> float | None:
        """Seconds since the oldest unknown outcome's operation began, over all scopes; None when there is none."""
        found = self._store.find(Query(status=Status.UNKNOWN, limit=1))
        if not found:
            return None
        now = (self._store.read(found[0].key)).now
        return max(now - found[0].created_at, 0) / 1000

    def _due(self, report: Report) -> list[Record]:
        due: list[Record] = []
        for operation, plan in self._once.plans.declarations.items():
            records = self._store.find(Query(operation=operation, status=Status.UNKNOWN, limit=self._window))
            if plan.policy.asks:
                records += self._store.find(Query(operation=operation, lapsed=True, limit=self._window))
            if not records:
                continue
            now = (self._store.read(records[0].key)).now
            for record in records:
                where = standing(record, now, self._pace) if plan.policy.asks else "held"
                if where == "due":
                    due.append(record)
                elif where != "busy":
                    report.count(where)
        return due

    def _settled(self, record: Record, report: Report) -> str:
        """Ask about one record; in one word, what came of it."""
        seen = self._store.read(record.key)
        where = standing(seen.current, seen.now, self._pace)
        if where != "due" or seen.current is None:
            # Another reconciler was here since the list was made.
            return "busy" if where == "waiting" else where
        plan = self._once.plans.declarations[record.key.operation]
        asking = drive(inquire(seen.current, plan.policy, STAMPS.owner()), self._store)
        if asking is None:
            return "busy"
        report.count("asked")
        return self._asked(plan, asking)

    def _asked(self, plan: Plan, asking: Asking) -> str:
        doubtful = asking.doubtful
        inquiry = Inquiry(self._store, plan, doubtful.key, asking.claim, self._observe)
        self._admission.heart.begin(inquiry)
        try:
            answer = answer_of(plan, doubtful)
        finally:
            self._admission.heart.end(inquiry)
        self._observe("asked", doubtful.key, doubtful.attempt)
        if isinstance(answer, Happened):
            inquiry.adopt(answer.value, "the far side has it")
            return "adopted"
        if isinstance(answer, CannotTell):
            inquiry.give_up(answer.reason or "the far side could not tell")
            return "left"
        return self._not_happened(plan, inquiry, doubtful)

    def _not_happened(self, plan: Plan, inquiry: Inquiry, doubtful: Record) -> str:
        if not doubtful.can_retry(plan.policy.max_retries):
            inquiry.free("the far side never did it, and no retry is left")
            return "exhausted"
        again = self._reruns.get(plan.operation)
        if again is None:
            inquiry.free("the far side never did it")
            return "freed"
        inquiry.rerun("the far side never did it")
        self._admission.begin(inquiry)
        try:
            value = again(plan.question(doubtful))
            inquiry.succeed(value)
        except BaseException as error:  # a cancelled or interrupted attempt is recorded too, then goes on its way
            inquiry.fail_quietly(error)
            raise
        finally:
            self._admission.end(inquiry)
        return "reran"


class Inquiry(Attempt):
    """The claim of a reconciler while it asks."""

    def free(self, reason: str) -> None:
        """Free the key: it never happened. Counts no attempt, for none was made. Raises ClaimLost."""
        words = (reason, self.plan.keep_ms, self._noted("not happened", reason))
        self._write(failing, words, "failed")


def _wait(stop: threading.Event, seconds: float) -> None:
    stop.wait(seconds)
