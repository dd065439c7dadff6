"""Reconciliation without I/O: which unknown records are due to be asked about, in what order, and what was found."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields

from umavez.backoff import grown
from umavez.core.drafts import drafted
from umavez.core.flow import Swap, SwapFlow, Swapped
from umavez.core.policy import Policy
from umavez.core.protocol import Asking, Claim
from umavez.core.record import Instant, Millis, Record, Status
from umavez.core.telling import events

CANNOT_TELL = "cannot tell"
"""What `give_up` writes into the evidence for every question without an answer."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the far side is asked about one record: after `first` seconds, each time `factor` later, up to `cap`.

    `settle`: a far side may still be at work when it is first asked, and "not here" would be believed too soon; no
    question is asked about an attempt that ended less than so many seconds ago.
    `max_asks`: after so many questions without an answer it is left to a human.
    """

    first: float = 30.0
    factor: float = 2.0
    cap: float = 3600.0
    settle: float = 10.0
    max_asks: int = 50

    def wait(self, asked: int) -> Millis:
        """Milliseconds between the last write and the next question, after `asked` questions without an answer."""
        if asked == 0:
            return int(self.settle * 1000)
        return int(max(grown(asked, self.first, self.factor, self.cap), self.settle) * 1000)


@dataclass(slots=True)
class Report:
    """What one run did. `oldest_unknown` is in seconds, None when nothing is unknown; the rest are counts.

    adopted: it had happened. freed: it had not, and its key is free. reran: it had not, and was run here.
    left: nobody could tell. exhausted: it had not, and no retry is left. held: only a human may say.
    waiting: not due yet. tired: asked too often. busy: another reconciler or caller had it. failed: an error.
    silent: not asked, for others of its operation had no answer in time. running: rerun here, and not over yet.
    """

    asked: int = 0
    adopted: int = 0
    freed: int = 0
    reran: int = 0
    left: int = 0
    exhausted: int = 0
    held: int = 0
    waiting: int = 0
    tired: int = 0
    busy: int = 0
    failed: int = 0
    silent: int = 0
    running: int = 0
    oldest_unknown: float | None = None
    errors: list[str] = field(default_factory=list)

    def count(self, what: str) -> None:
        """One more of `what`."""
        setattr(self, what, getattr(self, what) + 1)

    def add(self, other: Report) -> None:
        """Count what `other` counted, too."""
        for each in fields(self):
            if each.name not in ("oldest_unknown", "errors"):
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        self.errors += other.errors


def asks_without_answer(record: Record) -> int:
    """How often the far side was asked about this attempt in vain."""
    entries = json.loads(record.evidence) if record.evidence else []
    return sum(entry.get("what") == CANNOT_TELL for entry in entries)


def askable(record: Record, now: Instant) -> bool:
    """Whether nobody knows how it ended, and nobody is at it: its outcome is unknown, or its lease has lapsed."""
    return record.settled is None and (record.status is Status.UNKNOWN or record.lapsed(now))


def standing(record: Record | None, now: Instant, pace: Pace) -> str:
    """Whether to ask about a record: "due", or why not ("waiting", "tired", "busy")."""
    if record is None or not askable(record, now):
        return "busy"
    asked = asks_without_answer(record)
    if asked >= pace.max_asks:
        return "tired"
    since = record.updated_at if record.status is Status.UNKNOWN else (record.lease_until or record.updated_at)
    return "due" if now - since >= pace.wait(asked) else "waiting"


def fairly(records: Iterable[Record], budget: int, per_scope: int | None) -> Iterator[Record]:
    """At most `budget` of the records, one of each scope in turn and at most `per_scope` of each.

    A tenant with ten thousand unknown outcomes must not keep the others from being asked about.
    """
    queues: dict[str, deque[Record]] = {}
    for record in records:
        queues.setdefault(record.key.scope, deque()).append(record)
    taken = 0
    for _ in range(budget if per_scope is None else min(per_scope, budget)):
        for scope in list(queues):
            if taken >= budget:
                return
            yield queues[scope].popleft()
            taken += 1
            if not queues[scope]:
                del queues[scope]
        if not queues:
            return


def inquire(record: Record, policy: Policy, stamp: str) -> SwapFlow[Asking | None]:
    """Claim exactly this record to ask about it; None when it changed meanwhile.

    Not by admission: had another reconciler freed the key since, that would grant a run which nobody wants here.
    """
    draft = drafted(record, stamp)._replace(
        status=Status.PENDING, claims=True, lease=policy.lease_ms, event=events.claimed(record, fresh=False)
    )
    reply = yield Swap(record.stamp, draft)
    if isinstance(reply, Swapped):
        return Asking(Claim(draft, reply.fence, reply.now), record)
    if reply.current is not None and reply.current.stamp == stamp:
        return Asking(Claim(draft, reply.current.fence, reply.now), record)
    return None
