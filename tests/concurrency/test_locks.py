"""AsyncLock: one task at a time, in order, whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from umavez.concurrency.locks import AsyncLock


def test_tasks_go_one_at_a_time_in_the_order_they_came() -> None:
    inside: list[int] = []
    done: list[int] = []

    async def visit(lock: AsyncLock, number: int) -> None:
        async with lock:
            inside.append(number)
            assert inside == [number]
            await asyncio.sleep(0)
            inside.remove(number)
            done.append(number)

    async def main() -> None:
        lock = AsyncLock()
        await asyncio.gather(*(visit(lock, number) for number in range(20)))

    asyncio.run(main())
    assert done == list(range(20))


def test_an_error_inside_lets_the_next_in() -> None:
    async def main() -> bool:
        lock = AsyncLock()
        with pytest.raises(ZeroDivisionError):
            async with lock:
                raise ZeroDivisionError
        async with asyncio.timeout(1), lock:
            return True

    assert asyncio.run(main())


@pytest.mark.parametrize("handed", [False, True], ids=["still waiting", "just handed the lock"])
def test_a_cancelled_task_gives_its_turn_to_the_next(handed: bool) -> None:
    async def hold(lock: AsyncLock, until: asyncio.Event) -> None:
        async with lock:
            await until.wait()
        if handed:
            # Between the lock's being handed over and the next task's looking at it.
            tasks[0].cancel()

    async def enter(lock: AsyncLock) -> str:
        async with lock:
            return "in"

    tasks: list[asyncio.Task[str]] = []

    async def main() -> str:
        lock, until = AsyncLock(), asyncio.Event()
        holder = asyncio.create_task(hold(lock, until))
        await asyncio.sleep(0)
        tasks.extend(asyncio.create_task(enter(lock)) for _ in range(2))
        await asyncio.sleep(0)
        if not handed:
            tasks[0].cancel()
        until.set()
        await holder
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        return await asyncio.wait_for(tasks[1], 1)

    assert asyncio.run(main()) == "in"
