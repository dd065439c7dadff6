"""How soon a duplicate that waits in the same process goes on after the first call has completed."""

from __future__ import annotations

import asyncio
import threading
import time

from bench.engine.load import RESULT
from umavez import AsyncOnce, Once

WAITERS = 4
"""Duplicates of each key."""

SETTLING = 0.03
"""Seconds that the first call takes after its duplicates came: they are asleep by then."""


def threads(url: str, rounds: int) -> list[float]:
    """Milliseconds from the end of the first call to the end of each duplicate."""
    with Once(url, scope="wake") as once:
        once.migrate()
        return [late for number in range(rounds) for late in _round(once, f"{time.time_ns()}-{number}")]


def _round(once: Once, key: str) -> list[float]:
    inside, ended, done = threading.Event(), list[float](), list[float]()

    def slow() -> object:
        inside.set()
        time.sleep(SETTLING)
        return RESULT

    def holder() -> None:
        once.run("wake", key=key, call=slow, unknown="rerun")
        done.append(time.perf_counter())

    def duplicate() -> None:
        outcome = once.run("wake", key=key, call=slow, unknown="rerun", wait=10.0)
        assert outcome.replayed
        ended.append(time.perf_counter())

    first = threading.Thread(target=holder)
    first.start()
    inside.wait()
    others = [threading.Thread(target=duplicate) for _ in range(WAITERS)]
    for thread in others:
        thread.start()
    for thread in (first, *others):
        thread.join()
    return [max(end - done[0], 0.0) * 1000 for end in ended]


async def tasks(url: str, rounds: int) -> list[float]:
    """The same with tasks."""
    async with AsyncOnce(url, scope="wake") as once:
        await once.migrate()
        found: list[float] = []
        for number in range(rounds):
            found += await _awaited_round(once, f"{time.time_ns()}-{number}")
        return found


async def _awaited_round(once: AsyncOnce, key: str) -> list[float]:
    inside = asyncio.Event()

    async def slow() -> object:
        inside.set()
        await asyncio.sleep(SETTLING)
        return RESULT

    async def holder() -> float:
        await once.run("wake", key=key, call=slow, unknown="rerun")
        return time.perf_counter()

    async def duplicate() -> float:
        outcome = await once.run("wake", key=key, call=slow, unknown="rerun", wait=10.0)
        assert outcome.replayed
        return time.perf_counter()

    first = asyncio.create_task(holder())
    await inside.wait()
    ended = await asyncio.gather(*(duplicate() for _ in range(WAITERS)))
    done = await first
    return [max(end - done, 0.0) * 1000 for end in ended]
