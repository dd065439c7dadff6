"""The protocol through many thousand schedules; and the proof that the explorer would notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from umavez._async import admission, attempt
from umavez.core import protocol
from umavez.core.asking import Rerun
from umavez.core.flow import Stale, Swap, SwapFlow, SwapReply
from umavez.core.protocol import Claim, Take
from umavez.core.record import Draft, Record, Status
from umavez.engine.declaration import Plan
from umavez.stores.memory import MemoryStore
from umavez.testing import broken
from umavez.testing.explorer import Schedule, ScheduleFailed, explore

SCHEDULES = 20_000
ENOUGH = 4_000
"""Schedules within which a seeded bug must show."""

RARE = (
    "taken over",
    "doubtful",
    "lost answer",
    "sweep during claim",
    "swept",
    "mismatched",
    "exhausted",
    "lost",
    "late swap",
    "repeated swap",
    "death",
    "fenced off",
    "replayed",
    "refused",
    "failed",
    "busy",
    "succeeded",
)


@pytest.mark.slow
def test_no_schedule_breaks_an_invariant_and_every_rare_path_is_taken() -> None:
    seen = explore(range(SCHEDULES))

    missing = [path for path in RARE if not seen[path]]
    assert not missing, f"never happened in {SCHEDULES} schedules: {missing}"


def test_a_schedule_repeats_exactly() -> None:
    first, again = Schedule(7), Schedule(7)

    first.run()
    again.run()

    assert first.seen == again.seen
    assert first.history.fences == again.history.fences
    assert _records(first) == _records(again)


def _records(schedule: Schedule) -> list[Record]:
    """What stands in the end, but for the stamps, which no two runs share."""
    found = [schedule.store.read(key).current for key in schedule.history.fences]
    return [record._replace(stamp="") for record in found if record is not None]


def change_by_key_alone(claim: Claim, draft: Draft, reply: SwapReply) -> SwapFlow[Claim]:
    """The rest of a change that takes whatever stamp stands there for its own."""
    while isinstance(reply, Stale) and reply.current is not None:
        reply = yield Swap(reply.current.stamp, draft)
    return Claim(draft, claim.fence, reply.now)


def judged_without_mismatch(original: Callable[..., Any]) -> Callable[..., Any]:
    """Replay is said before mismatch."""

    def judge(record: Record, intent: Any, policy: Any, now: int) -> Any:
        if record.settled is not None and not record.is_expired(now):
            return protocol.Replay(record)
        return original(record, intent, policy, now)

    return judge


def held_as_rerun(record: Record, policy: Any) -> Any:
    """Whatever is in doubt is run again."""
    return Take(record.attempt + 1, record) if record.can_retry(policy.max_retries) else protocol.Exhausted(record)


class SweepsTheLapsed(MemoryStore):
    """Deletes claims whose lease is over, as if nobody could have done anything."""

    def sweep(self, limit: int, older_than: int = 0) -> int:
        now = self._clock.now()
        lapsed = [digest for digest, record in self._records.items() if record.lapsed(now)]
        for digest in lapsed:
            del self._records[digest]
        return super().sweep(limit, older_than) + len(lapsed)


class Mutant:
    """One seeded bug: what to plant, and which invariants may notice."""

    def __init__(self, name: str, plant: Callable[[pytest.MonkeyPatch], Any], *noticed_by: str) -> None:
        self.name = name
        self.plant = plant
        self.noticed_by = noticed_by


def _rule(name: str, replacement: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(protocol, name, replacement)


def _shell(name: str, replacement: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(attempt, name, replacement)


def _answer(consequence: Rerun) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(admission, "consequence", lambda *_: consequence)


def _question(fence: int) -> Callable[[pytest.MonkeyPatch], None]:
    asked = Plan.question
    return lambda patch: patch.setattr(Plan, "question", lambda plan, record, _: asked(plan, record, fence))


def _method(name: str, replacement: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(Record, name, replacement)


def _early(record: Record, now: int) -> bool:
    """A worker whose own clock is seven seconds fast."""
    return record.status is Status.PENDING and (record.lease_until or 0) <= now + 7000


MUTANTS = (
    Mutant("a change goes by the key alone", _shell("changed", change_by_key_alone), "I3", "I4", "lease"),
    Mutant("replay is said before mismatch", _rule("judge", judged_without_mismatch(protocol.judge)), "I6"),
    Mutant("nothing is a mismatch", _rule("same_meaning", lambda *_: True), "I6"),
    Mutant("what is held is run again", _rule("_judge_doubtful", held_as_rerun), "I1"),
    Mutant("a lease is judged by the worker's clock", _method("lapsed", _early), "lease"),
    Mutant("retries are not counted", _method("can_retry", lambda *_: True), "retries"),
    Mutant("nothing expires", _method("is_expired", lambda *_: False), "I3"),
    Mutant("whatever the far side says, it is run again", _answer(Rerun("")), "I1"),
    Mutant("the far side is not told who asks", _question(fence=0), "I1"),
    Mutant("an owner takes any claim for its own", _rule("_earlier_write", lambda *_: True), "I3", "I4", "lease"),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_seeded_bug_in_the_protocol_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)

    with pytest.raises(ScheduleFailed, match=r"schedule [0-9]+ breaks") as caught:
        explore(range(ENOUGH))

    assert caught.value.violation.invariant in mutant.noticed_by


@pytest.mark.parametrize(
    "store",
    [
        broken.IgnoresTheStamp,
        broken.HidesALostSwap,
        broken.ForgetsTheFenceAtSweep,
        broken.KeepsTheFenceOnTakeover,
        broken.JoinsKeyParts,
        SweepsTheLapsed,
    ],
)
def test_a_broken_store_is_caught(store: type[MemoryStore]) -> None:
    with pytest.raises(ScheduleFailed):
        explore(range(ENOUGH), store)


def test_a_failing_seed_fails_again_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[0].plant(monkeypatch)
    with pytest.raises(ScheduleFailed) as caught:
        explore(range(ENOUGH))

    with pytest.raises(type(caught.value.violation), match=str(caught.value.violation)[:2]):
        Schedule(caught.value.seed).run()


def test_the_protocol_is_unharmed_after_the_seeded_bugs() -> None:
    """The bugs above are planted in the real module; here it must be sound again."""
    assert explore(range(300))["succeeded"]
