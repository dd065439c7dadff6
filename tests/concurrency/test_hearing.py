"""Hearing: whoever cancels a task amid a statement is heard, whatever the driver makes of it."""

from __future__ import annotations

import asyncio
import random

import pytest

from umavez.concurrency import hearing
from umavez.concurrency.hearing import async_heard
from umavez.core.key import Key
from umavez.stores import open_async_store

TASKS = 100
PATIENCE = 20.0


async def deaf(begun: asyncio.Event) -> str:
    """Waits as Python 3.11's wait_for does: a cancellation that comes with the result is swallowed."""
    begun.set()
    try:
        await asyncio.sleep(PATIENCE)
    except asyncio.CancelledError:
        return "done"
    raise AssertionError("nobody cancelled")


@pytest.mark.parametrize("swallows", [True, False], ids=["3.11", "later"])
def test_a_cancellation_that_was_swallowed_is_raised_after_all(monkeypatch: pytest.MonkeyPatch, swallows: bool) -> None:
    monkeypatch.setattr(hearing, "_SWALLOWS", swallows)

    async def main() -> bool:
        begun = asyncio.Event()
        task = asyncio.create_task(async_heard(deaf(begun)))
        await begun.wait()
        task.cancel()
        await asyncio.wait({task}, timeout=PATIENCE)
        return task.cancelled()

    assert asyncio.run(main()) is swallows


def test_a_cancellation_from_before_is_nobodys_business_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cleans up after a cancellation may still use the database."""
    monkeypatch.setattr(hearing, "_SWALLOWS", True)

    async def statement() -> int:
        await asyncio.sleep(0)
        return 1

    async def cleaning(begun: asyncio.Event) -> int:
        begun.set()
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            return await async_heard(statement())
        raise AssertionError("nobody cancelled")

    async def main() -> int:
        begun = asyncio.Event()
        task = asyncio.create_task(cleaning(begun))
        await begun.wait()
        task.cancel()
        return await task

    assert asyncio.run(main()) == 1


def test_a_task_that_is_cancelled_amid_its_statements_ends(mariadb_url: str) -> None:
    seed = random.randrange(10**9)
    chance = random.Random(seed)
    key = Key("shop", "charge", "A-17")

    async def main() -> int:
        store = open_async_store(mariadb_url)
        await store.migrate()

        async def endless() -> None:
            while True:
                await store.read(key)

        lost = 0
        for _ in range(TASKS):
            task = asyncio.create_task(endless())
            await asyncio.sleep(chance.random() * 0.004)
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            task.cancel()
            done, _ = await asyncio.wait({task}, timeout=1)
            lost += not done
            task.cancel()
            await asyncio.wait({task}, timeout=1)
        await store.close()
        return lost

    assert asyncio.run(main()) == 0, f"of {TASKS}, seed {seed}"
