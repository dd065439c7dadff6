"""A repeat that asks the far side about an unknown outcome waits for the answer, but not for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from umavez import AsyncOnce, Happened, Once, OutcomeUnknown, Question, Status
from umavez._async import admission as async_admission
from umavez._sync import admission
from umavez.concurrency.heartbeat import AsyncHeartbeats
from umavez.reconcile import AsyncReconciler, Pace
from umavez.stores.memory import AsyncMemoryStore, MemoryStore

BOUND = 20.0
"""Seconds after which a far side that nobody left answers after all: a fault fails its test and does not hang it."""


class FarSide:
    """Never answers while a test runs; `asked` counts the questions."""

    def __init__(self) -> None:
        self.asked = 0
        self.over = threading.Event()
        self.answers = False

    def ask(self, _: Any) -> Happened:
        self.asked += 1
        if not self.answers:
            self.over.wait(BOUND)
        return Happened("late")

    async def ask_in_task(self, _: Any) -> Happened:
        self.asked += 1
        if not self.answers:
            await asyncio.sleep(BOUND)
        return Happened("late")


@pytest.fixture
def far() -> Iterator[FarSide]:
    made = FarSide()
    yield made
    made.over.set()


def boom() -> None:
    raise ConnectionError("the answer was lost")


def test_a_caller_does_not_wait_for_ever_for_a_far_side_that_hangs(far: FarSide) -> None:
    with Once(MemoryStore(), scope="shop") as once:
        options: Any = {"unknown": far.ask, "patience": 0.1}
        with pytest.raises(ConnectionError):
            once.run("pay", key="1", call=boom, **options)
        for asked in (1, 2):  # the claim was given back: the second asks anew, at once
            with pytest.raises(OutcomeUnknown, match=r"the far side did not answer within 0\.1 s") as told:
                once.run("pay", key="1", call=pytest.fail, **options)
            assert told.value.why == "the far side did not answer within 0.1 s"
            assert far.asked == asked
            record = once.get("pay", "1")
            assert record is not None
            assert record.status is Status.UNKNOWN
        far.answers = True
        assert once.run("pay", key="1", call=pytest.fail, **options).value == "late"


def test_a_task_does_not_wait_for_ever_for_a_far_side_that_hangs(far: FarSide) -> None:
    async def act() -> None:
        async with AsyncOnce(AsyncMemoryStore(), scope="shop") as once:
            options: Any = {"unknown": far.ask_in_task, "patience": 0.1}
            with pytest.raises(ConnectionError):
                await once.run("pay", key="1", call=_awaited(boom), **options)
            for asked in (1, 2):
                with pytest.raises(OutcomeUnknown, match=r"the far side did not answer within 0\.1 s"):
                    await once.run("pay", key="1", call=_awaited(pytest.fail), **options)
                assert far.asked == asked
                record = await once.get("pay", "1")
                assert record is not None
                assert record.status is Status.UNKNOWN
            far.answers = True
            assert (await once.run("pay", key="1", call=_awaited(pytest.fail), **options)).value == "late"

    asyncio.run(act())


def test_questions_left_behind_are_bounded(far: FarSide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MOST_OUT", 3)
    with Once(MemoryStore(), scope="shop") as once:
        options: Any = {"unknown": far.ask, "patience": 0.02}
        for number in range(5):
            with pytest.raises(ConnectionError):
                once.run("pay", key=number, call=boom, **options)
            with pytest.raises(OutcomeUnknown):
                once.run("pay", key=number, call=pytest.fail, **options)
        assert far.asked == 3
        with pytest.raises(OutcomeUnknown, match="not asked: 3 earlier questions"):
            once.run("pay", key=0, call=pytest.fail, **options)
        record = once.get("pay", 0)
        assert record is not None
        assert record.status is Status.UNKNOWN


def test_questions_that_do_not_let_themselves_be_ended_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_admission, "MOST_OUT", 3)
    over, asked = asyncio.Event(), [0]

    async def stubborn(_: Any) -> None:
        asked[0] += 1
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue

    async def act() -> None:
        async with AsyncOnce(AsyncMemoryStore(), scope="shop") as once:
            options: Any = {"unknown": stubborn, "patience": 0.02}
            for number in range(5):
                with pytest.raises(ConnectionError):
                    await once.run("pay", key=number, call=_awaited(boom), **options)
                with pytest.raises(OutcomeUnknown):
                    await once.run("pay", key=number, call=_awaited(pytest.fail), **options)
            over.set()
            assert asked == [3]

    asyncio.run(act())


async def leaking(question: Question) -> Happened:
    """A far side whose client lets a cancellation of its own out, for some keys."""
    if question.key.value != "4":
        raise asyncio.CancelledError
    return Happened("paid")


def test_a_question_that_leaks_a_cancellation_ends_nobody_and_leaves_the_outcome_unknown() -> None:
    async def act() -> None:
        async with AsyncOnce(AsyncMemoryStore(), scope="shop") as once:
            for call in (_awaited(boom), _awaited(pytest.fail)):
                with pytest.raises((ConnectionError, OutcomeUnknown)):
                    await once.run("pay", key="1", call=call, unknown=leaking)
            record = await once.get("pay", "1")
            assert record is not None
            assert (record.status, record.error) == (
                Status.UNKNOWN,
                "the far side was not heard: it was cancelled from within before it had ended",
            )

    asyncio.run(act())


def test_questions_that_leak_cancellations_keep_no_other_record_from_being_asked_about() -> None:
    async def act() -> None:
        async with AsyncOnce(AsyncMemoryStore(), scope="shop") as once:

            @once.operation("pay", key=lambda number: number, unknown=leaking)
            async def pay(number: int) -> None:
                boom()

            for number in range(5):
                with pytest.raises(ConnectionError):
                    await pay(number)
            report = await AsyncReconciler(once, pace=Pace(settle=0.0), at_once=2).run()
            assert (report.asked, report.left, report.adopted) == (5, 4, 1)

    asyncio.run(act())


def test_closing_heartbeats_does_not_wait_for_a_beat_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umavez.concurrency.heartbeat.CLOSING", 0.05)

    async def act() -> None:
        over = asyncio.Event()

        async def stubborn() -> None:
            while not over.is_set():
                try:
                    await asyncio.wait_for(over.wait(), BOUND)
                except asyncio.CancelledError:
                    continue

        heartbeats = AsyncHeartbeats()
        heartbeats._task = asyncio.create_task(stubborn())  # a beat as another store may have it
        await asyncio.sleep(0)
        await heartbeats.close()
        assert not over.is_set()
        assert not heartbeats._task.done()
        over.set()
        await heartbeats._task

    asyncio.run(act())


def _awaited(call: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    async def coroutine() -> Any:
        return call()

    return coroutine
