"""Pools: so many connections and no more, one caller each, whatever happens to those who wait."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

from umavez.concurrency.pool import AsyncPool, Pool
from umavez.errors import StoreUnavailable


class Connection:
    """Counts how often it was closed, and how."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    def drop(self) -> None:
        self.ends.append("drop")

    def close(self) -> None:
        self.ends.append("close")


class AsyncConnection(Connection):
    async def close(self) -> None:  # type: ignore[override]  # as a connection that is awaited
        self.ends.append("close")


def test_a_connection_is_used_again_and_another_is_made_only_when_it_is_out() -> None:
    pool = Pool(Connection, 2, 30.0)
    first = pool.take()
    pool.give_back(first)

    again, other = pool.take(), pool.take()

    assert again is first
    assert other is not first
    pool.give_back(other)
    pool.give_back(again)


def test_whoever_comes_when_all_are_out_waits_for_one_or_is_turned_away() -> None:
    pool = Pool(Connection, 1, 0.01)
    taken = pool.take()
    with pytest.raises(StoreUnavailable, match=r"busy with other looks for 0\.01 s") as caught:
        pool.take()
    assert caught.value.waited

    patient = Pool(Connection, 1, 30.0)
    taken = patient.take()
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(patient.take()))
    thread.start()
    patient.give_back(taken)
    thread.join(30)
    assert got == [taken]


def test_closing_spares_who_is_at_work_and_drops_the_connection_afterwards() -> None:
    pool = Pool(Connection, 2, 30.0)
    idle, busy = pool.take(), pool.take()
    pool.give_back(idle)

    pool.close()
    assert (idle.ends, busy.ends) == (["close"], [])
    pool.give_back(busy)
    assert busy.ends == ["drop"]

    fresh = [pool.take(), pool.take()]  # both turns came back
    assert idle not in fresh
    assert busy not in fresh


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_has_every_turn_and_touches_nothing_of_its_parent() -> None:
    pool = Pool(Connection, 2, 0.5)
    idle, busy = pool.take(), pool.take()
    pool.give_back(idle)

    child = os.fork()
    if not child:
        fresh = [pool.take(), pool.take()]
        pool.give_back(busy)  # as a thread that was copied in the middle would
        untouched = idle not in fresh and busy not in fresh and not idle.ends + busy.ends
        os._exit(0 if untouched else 1)
    assert os.waitpid(child, 0)[1] == 0
    pool.give_back(busy)
    assert pool.take() is busy


def test_tasks_wait_in_turn_or_are_turned_away() -> None:
    async def story() -> None:
        pool = AsyncPool(AsyncConnection, 1, 0.01)
        taken = await pool.take()
        with pytest.raises(StoreUnavailable, match=r"busy with other looks for 0\.01 s"):
            await asyncio.wait_for(pool.take(), 30)

        patient = AsyncPool(AsyncConnection, 1, 30.0)
        taken = await patient.take()
        waiting = asyncio.create_task(patient.take())
        cancelled = asyncio.create_task(patient.take())
        await asyncio.sleep(0)
        cancelled.cancel()
        patient.give_back(taken)
        assert await waiting is taken

    asyncio.run(story())


def test_closing_spares_the_task_at_work() -> None:
    async def story() -> tuple[list[str], list[str], int]:
        pool = AsyncPool(AsyncConnection, 2, 30.0)
        idle, busy = await pool.take(), await pool.take()
        pool.give_back(idle)
        await pool.close()
        pool.give_back(busy)
        fresh = {await pool.take(), await pool.take()}
        return idle.ends, busy.ends, len(fresh - {idle, busy})

    assert asyncio.run(story()) == (["close"], ["drop"], 2)


def test_a_loop_that_is_over_takes_its_turns_and_what_was_lent_with_it() -> None:
    pool = AsyncPool(AsyncConnection, 1, 0.01)
    lent = asyncio.run(pool.take())

    other = asyncio.run(pool.take())
    assert other is not lent
    assert lent.ends == ["drop"]

    async def crowded() -> None:
        await pool.take()
        pool.give_back(lent)  # late, from a coroutine that was torn down: it makes no room here
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(pool.take(), 30)

    asyncio.run(crowded())


def test_what_a_loop_of_another_thread_has_lent_is_left_to_it() -> None:
    pool = AsyncPool(AsyncConnection, 1, 30.0)
    lent, gate = threading.Event(), threading.Event()

    async def work() -> None:
        connection = await pool.take()
        lent.set()
        await asyncio.to_thread(gate.wait, 10)
        assert connection.ends == []
        pool.give_back(connection)

    other = threading.Thread(target=asyncio.run, args=(work(),))
    other.start()
    assert lent.wait(10)
    with pytest.raises(StoreUnavailable, match="another thread"):
        asyncio.run(pool.take())
    gate.set()
    other.join(10)
    assert asyncio.run(pool.take()).ends == []
