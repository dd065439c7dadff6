"""For every flow and for the engine: the N-th call to the store fails, for every N, before or after its work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from umavez import (
    AsyncOnce,
    CannotTell,
    Happened,
    NotHappened,
    Once,
    OperationInProgress,
    OutcomeUnknown,
    StoreError,
)
from umavez._sync.attempt import Attempt
from umavez.core import protocol
from umavez.core.encoding.codec import JsonCodec
from umavez.core.flow import Swap
from umavez.core.key import Key
from umavez.core.protocol import (
    Asking,
    Granted,
    Intent,
    admit,
)
from umavez.core.record import Draft, Record, Settled, Status
from umavez.core.resolution import Resolution, resolve
from umavez.engine.declaration import Plan
from umavez.engine.insistence import not_at_all
from umavez.engine.observing import Observers
from umavez.engine.outcome import downstream_key
from umavez.errors import ClaimLost, StoreUnavailable, StoreUncertain
from umavez.stores import Store
from umavez.stores.memory import AsyncMemoryStore, MemoryStore
from umavez.testing import ManualClock
from umavez.testing.faults import (
    AsyncFailAfter,
    AsyncFailBefore,
    AsyncStall,
    FailAfter,
    FailBefore,
    Stall,
    Tapped,
)
from umavez.testing.harness import ASK, HOLD, RERUN
from umavez.testing.worker import twice_at_once

KEY = Key("shop", "charge", "42")
FAULTS = [FailBefore, FailAfter]
DONE = Settled(True, "1")

CHANGES: dict[str, Callable[[Attempt], None]] = {
    "renew": lambda attempt: attempt.renew(),
    "checkpoint": lambda attempt: attempt.checkpoint("1"),
    "succeed": lambda attempt: attempt.succeed(1) and None,
    "fail": lambda attempt: attempt.fail(ValueError("no")),
    "give up": lambda attempt: attempt.give_up("no answer"),
    "rerun": lambda attempt: attempt.rerun("never done"),
    "free": lambda attempt: attempt.free("never done"),
}


def held(store: Store, *, insists: bool, by: Store | None = None) -> Attempt:
    """An attempt that was let in through `store` and goes on through `by`; `insists`: it sends what failed again."""
    granted = drive(admit(Intent(KEY), RERUN, "o"), store)
    assert isinstance(granted, Granted)
    plan = Plan(KEY.scope, KEY.operation, RERUN, JsonCodec())
    return Attempt(by or store, plan, KEY, granted.claim, Observers(), False, twice_at_once if insists else not_at_all)


def drive(flow: Any, store: Store) -> Any:
    """What `flow` returns when each of its commands goes to `store` once."""
    command = next(flow)
    try:
        while True:
            call = store.swap if isinstance(command, Swap) else store.read
            command = flow.send(call(*command))
    except StopIteration as end:
        return end.value


def every(fault: type[Tapped]) -> Iterator[tuple[MemoryStore, Tapped, ManualClock]]:
    """A store for each call that can fail, until a run has fewer calls than that."""
    for nth in count(1):
        clock = ManualClock()
        store = MemoryStore(clock)
        faulty = fault(store, nth)
        yield store, faulty, clock
        if not faulty.struck:
            assert nth > 1, "nothing was called at all"
            return


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("change", [change for change in CHANGES if change != "renew"])
def test_a_change_whose_call_failed_is_sent_again_under_its_stamp(fault: type[Tapped], change: str) -> None:
    for store, faulty, _ in every(fault):
        CHANGES[change](held(store, insists=True, by=faulty))

        after = store.read(KEY).current
        assert after is not None
        assert after.stamp == "o/1"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("change", CHANGES)
def test_an_attempt_whose_change_failed_still_holds_its_claim(fault: type[Tapped], change: str) -> None:
    for store, faulty, _ in every(fault):
        attempt = held(store, insists=False, by=faulty)

        try:
            CHANGES[change](attempt)
        except StoreError:
            before = store.read(KEY).current
            assert before is not None
            attempt.succeed(2)

        after = store.read(KEY).current
        assert after is not None
        assert after.stamp.partition("/")[0] == "o"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("before", ["nothing", "lapsed", "failed", "unknown", "settled"])
@pytest.mark.parametrize("policy", [RERUN, HOLD, ASK], ids=["rerun", "hold", "ask"])
def test_an_admission_asked_again_after_a_lost_answer_never_grants_what_must_be_asked_or_held(
    fault: type[Tapped], before: str, policy: Any
) -> None:
    """Under its old stamp: either what a first answer would have said, or something more careful."""
    for store, faulty, clock in every(fault):
        _prepared(store, clock, before)
        undisturbed = MemoryStore(clock)
        undisturbed._records = dict(store._records)
        expected = drive(admit(Intent(KEY), policy, "new"), undisturbed)

        try:
            verdict = drive(admit(Intent(KEY), policy, "new"), faulty)
        except StoreError:
            verdict = drive(admit(Intent(KEY), policy, "new"), store)

        if isinstance(verdict, Granted | Asking):
            assert type(verdict) is type(expected)
            current = store.read(KEY).current
            assert current is not None
            assert verdict.claim.draft.stamp == current.stamp == "new"
            assert verdict.claim.draft.attempt == current.attempt
            assert verdict.claim.draft.progress == current.progress


def test_a_takeover_taken_for_a_first_claim_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine never asks again under an old stamp; leases and tokens do, and the explorer has neither."""
    monkeypatch.setattr(protocol, "_wrote", lambda *_, **__: True)

    with pytest.raises(AssertionError):
        test_an_admission_asked_again_after_a_lost_answer_never_grants_what_must_be_asked_or_held(
            FailAfter, "lapsed", HOLD
        )


def _prepared(store: MemoryStore, clock: ManualClock, before: str) -> None:
    if before == "nothing":
        return
    attempt = held(store, insists=False)
    if before == "failed":
        attempt.fail(ValueError("no"))
    elif before == "unknown":
        attempt.give_up("no answer")
    elif before == "settled":
        attempt.succeed(1)
    clock.advance(31)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_resolution_whose_call_failed_can_be_repeated(fault: type[Tapped]) -> None:
    decision = Resolution(DONE, "ana", "seen")
    for store, faulty, clock in every(fault):
        _prepared(store, clock, "unknown")

        try:
            drive(resolve(KEY, decision, 1000, "human"), faulty)
        except StoreUnavailable:
            drive(resolve(KEY, decision, 1000, "human"), store)
        except StoreUncertain:
            drive(
                resolve(KEY, decision, 1000, "human"),
                store,
            ) if _doubted(store) else None

        record = store.read(KEY).current
        assert record is not None
        assert record.settled == DONE


def _doubted(store: MemoryStore) -> bool:
    record = store.read(KEY).current
    return record is not None and record.status is Status.UNKNOWN


def _far_side(ledger: list[str]) -> Callable[[Any], Any]:
    return lambda _: Happened(1) if ledger else NotHappened()


POLICIES: dict[str, Callable[[list[str]], Any]] = {
    "rerun": lambda _: "rerun",
    "hold": lambda _: "hold",
    "ask": _far_side,
    "ask nobody": lambda _: lambda _: CannotTell("no answer"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("before", ["nothing", "lapsed", "failed", "unknown"])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_engine_survives_the_failure_of_any_call(fault: type[Tapped], before: str, policy: str) -> None:
    for store, faulty, clock in every(fault):
        _prepared(store, clock, before)
        # The attempt before left its effect behind, where it may have had one.
        ledger = [downstream_key(KEY, "")] if before in {"lapsed", "unknown"} else []
        answers = [_charged(faulty, ledger, policy)]
        _check(answers[0], store, ledger)
        for _ in range(3):
            clock.advance(31)
            answers.append(_charged(store, ledger, policy))
            _check(answers[-1], store, ledger)

        where = f"call {faulty._nth} of {faulty.calls}"
        assert not isinstance(answers[1], OperationInProgress), f"{where}: stuck beyond the lease"
        assert len(set(ledger)) <= 1, where
        if policy != "rerun":
            assert len(ledger) <= 1, f"{where}: an effect repeated under {policy}"
        assert str(answers[2]) == str(answers[3]), f"{where}: the answer is not final: {answers}"


def _charged(store: Store, ledger: list[str], policy: str) -> Any:
    """What one caller gets, be it a value or an error."""
    once = Once(store, scope="shop")
    unknown = POLICIES[policy](ledger)
    try:
        with once.attempt("charge", key="42", unknown=unknown, heartbeat=False) as attempt:
            if not attempt.replayed:
                attempt.checkpoint("half")
                ledger.append(attempt.downstream_key())
                attempt.succeed(len(ledger))
        return attempt.outcome
    except Exception as error:  # noqa: BLE001 (every answer is judged)
        return error


def _check(answer: Any, store: MemoryStore, ledger: list[str]) -> None:
    record: Record | None = store.read(KEY).current
    if isinstance(answer, int):
        assert record is not None
        assert record.settled == Settled(True, str(answer)), "success was answered and is not settled"
        assert ledger, "success was answered and nothing happened"


def test_a_stalled_owner_wakes_up_overtaken_and_changes_nothing() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    stall = Stall(store, 2)
    ended: list[BaseException] = []

    def slow() -> None:
        try:
            held(stall, insists=True).succeed("slow")
        except ClaimLost as lost:
            ended.append(lost)

    thread = threading.Thread(target=slow)
    thread.start()
    assert stall.stalled.wait(10)
    clock.advance(31)
    quick = Once(store, scope="shop").run("charge", key="42", call=lambda: "quick", unknown="rerun")
    assert (quick.replayed, quick.attempt) == (False, 2)
    stall.release()
    thread.join(10)

    assert len(ended) == 1
    record = store.read(KEY).current
    assert record is not None
    assert record.settled == Settled(True, '"quick"')


def test_the_async_wrappers_do_the_same() -> None:
    async def story() -> None:
        clock = ManualClock()
        store = AsyncMemoryStore(clock)
        draft = _draft("a")
        with pytest.raises(StoreUnavailable):
            await AsyncFailBefore(store, 1).swap(None, draft)
        assert (await store.read(KEY)).current is None
        with pytest.raises(StoreUncertain):
            await AsyncFailAfter(store, 1).swap(None, draft)
        assert (await store.read(KEY)).current is not None
        stall = AsyncStall(store, 1)
        task = asyncio.create_task(stall.swap("a", _draft("b")))
        await asyncio.wait_for(stall.stalled.wait(), 10)
        assert (await store.swap("a", _draft("c"))).now
        stall.release()
        assert (await task).current.stamp == "c"  # type: ignore[union-attr]

    asyncio.run(story())


def _draft(stamp: str) -> Any:
    return Draft(KEY, stamp, Status.PENDING, True, 1, 30_000)


def test_the_async_engine_holds_what_is_unknown_though_the_answer_to_the_doubt_is_lost() -> None:
    async def story(nth: int) -> list[str]:
        clock = ManualClock()
        store = AsyncMemoryStore(clock)
        _prepared(store._store, clock, "lapsed")
        ledger = ["the first attempt's"]

        async def charge() -> None:
            ledger.append("again")

        for engine in (AsyncFailAfter(store, nth), store):
            once = AsyncOnce(engine, scope="shop")
            with pytest.raises(OutcomeUnknown):
                await once.run("charge", key="42", call=charge, unknown="hold")
            await once.close()
        return ledger

    for nth in (1, 2, 3):
        assert asyncio.run(story(nth)) == ["the first attempt's"]
