"""Calls in threads: every caller gets its own answer, and what was begun is finished."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from umavez.concurrency.threads import ThreadPool
from umavez.errors import Crowded


@pytest.fixture
def threads() -> Iterator[ThreadPool]:
    made = ThreadPool(4, "test")
    yield made
    made.close()


def run(act: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """What `act` returns; a caller that is never answered fails the test instead of holding it up."""

    async def bounded() -> Any:
        async with asyncio.timeout(10):
            return await act()

    return asyncio.run(bounded())


def test_each_of_many_callers_gets_its_own_answer(threads: ThreadPool) -> None:
    async def act() -> list[int]:
        return list(await asyncio.gather(*(threads.run(lambda n: n * 2, number) for number in range(2000))))

    assert run(act) == [number * 2 for number in range(2000)]


def test_the_loop_is_woken_again_for_what_is_settled_later(threads: ThreadPool) -> None:
    async def act() -> list[int]:
        return [await threads.run(lambda n: n * 2, number) for number in range(200)]

    assert run(act) == [number * 2 for number in range(200)]


def test_an_error_reaches_its_caller_and_nobody_else(threads: ThreadPool) -> None:
    def case(number: int) -> int:
        if number % 2:
            raise KeyError(number)
        return number

    async def act() -> list[Any]:
        return list(await asyncio.gather(*(threads.run(case, n) for n in range(100)), return_exceptions=True))

    answers = run(act)

    assert answers[::2] == list(range(0, 100, 2))
    assert [error.args for error in answers[1::2]] == [(number,) for number in range(1, 100, 2)]


def test_a_stray_stop_iteration_is_an_error_not_a_caller_left_waiting(threads: ThreadPool) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        run(lambda: threads.run(next, iter(())))


def test_a_case_whose_caller_went_away_runs_to_its_end(threads: ThreadPool) -> None:
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def case() -> None:
        begun.set()
        go.wait(30)
        ended.set()

    async def act() -> int:
        caller = asyncio.create_task(threads.run(case))
        await asyncio.to_thread(begun.wait, 30)
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        assert caller.cancelled()
        go.set()
        assert await asyncio.to_thread(ended.wait, 30)
        return await threads.run(lambda: 7)

    assert run(act) == 7


def test_closing_waits_for_what_was_begun() -> None:
    threads, done = ThreadPool(1, "test"), []

    async def act() -> None:
        callers = [asyncio.create_task(threads.run(done.append, number)) for number in range(50)]
        await asyncio.sleep(0)
        await asyncio.to_thread(threads.close)
        await asyncio.gather(*callers)

    run(act)

    assert done == list(range(50))


def test_closing_does_not_wait_for_a_call_that_never_ends() -> None:
    threads, begun, go = ThreadPool(1, "test"), threading.Event(), threading.Event()

    def case() -> None:
        begun.set()
        go.wait(60)

    async def act() -> None:
        caller = asyncio.create_task(threads.run(case))
        await asyncio.to_thread(begun.wait, 30)
        await asyncio.to_thread(threads.close, 0.05)
        assert not caller.done(), "it was left, not ended"
        go.set()
        await caller

    run(act)


def test_another_loop_is_answered_after_one_that_ended_in_the_middle_of_a_call(threads: ThreadPool) -> None:
    begun, go = threading.Event(), threading.Event()

    def case() -> None:
        begun.set()
        go.wait(30)

    async def leave() -> None:
        caller = asyncio.create_task(threads.run(case))
        await asyncio.to_thread(begun.wait, 30)
        caller.cancel()

    asyncio.run(leave())
    go.set()  # the call ends now, and its loop is closed

    assert [run(lambda: threads.run(lambda: 7)) for _ in range(3)] == [7, 7, 7]


def test_closed_threads_are_started_anew_by_the_next_call() -> None:
    threads = ThreadPool(2, "test")
    assert run(lambda: threads.run(lambda: 1)) == 1
    threads.close()

    assert run(lambda: threads.run(lambda: 2)) == 2
    threads.close()


def test_threads_that_nobody_can_call_any_more_end() -> None:
    held = [ThreadPool(3, "forgotten")]
    run(lambda: held[0].run(int))
    alive = [thread for thread in threading.enumerate() if thread.name.startswith("forgotten")]
    assert len(alive) == 3

    held.clear()
    gc.collect()
    for thread in alive:
        thread.join(10)

    assert not any(thread.is_alive() for thread in alive)


def test_a_call_too_many_is_refused_at_once_and_the_others_are_answered() -> None:
    threads, go = ThreadPool(2, "test", waiting=3), threading.Event()

    async def act() -> list[Any]:
        callers = [asyncio.create_task(threads.run(go.wait, 30)) for _ in range(9)]
        await asyncio.sleep(0)
        refused = [caller for caller in callers if caller.done()]
        assert len(refused) == 4
        go.set()
        answers = list(await asyncio.gather(*callers, return_exceptions=True))
        assert await threads.run(lambda: 7) == 7
        return answers

    answers = run(act)

    assert answers[:5] == [True] * 5
    assert {type(answer) for answer in answers[5:]} == {Crowded}
    threads.close()


def test_a_call_that_waited_for_too_long_is_given_up_and_never_run() -> None:
    threads, go, ran = ThreadPool(1, "test", patience=0.05), threading.Event(), []

    async def act() -> None:
        first = asyncio.create_task(threads.run(go.wait, 30))
        await asyncio.sleep(0)
        with pytest.raises(Crowded):
            await threads.run(ran.append, "too late")
        go.set()
        assert await first
        await threads.run(ran.append, "in time")

    run(act)
    threads.close()

    assert ran == ["in time"]


def test_a_call_that_was_begun_is_not_given_up() -> None:
    threads, begun, go = ThreadPool(1, "test", patience=0.05), threading.Event(), threading.Event()

    def case() -> str:
        begun.set()
        go.wait(30)
        return "done"

    async def act() -> str:
        first = asyncio.create_task(threads.run(lambda: None))
        second = asyncio.create_task(threads.run(case))  # with a timer: the thread was not free
        await first
        await asyncio.to_thread(begun.wait, 30)
        await asyncio.sleep(0.2)
        go.set()
        return await second

    assert run(act) == "done"
    threads.close()


def test_those_whose_caller_went_away_while_they_waited_still_count_until_they_have_run() -> None:
    threads, go, ran = ThreadPool(1, "test", waiting=1), threading.Event(), []
    second_ran = threading.Event()

    def second() -> None:
        ran.append(2)
        second_ran.set()

    async def act() -> None:
        first = asyncio.create_task(threads.run(go.wait, 30))
        left = asyncio.create_task(threads.run(second))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        with pytest.raises(Crowded):
            await threads.run(ran.append, 3)
        go.set()
        await first
        await asyncio.to_thread(second_ran.wait, 30)
        await asyncio.sleep(0.05)
        await threads.run(ran.append, 4)

    run(act)
    threads.close()

    assert ran == [2, 4]
