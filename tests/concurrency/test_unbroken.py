"""A cancelled task lets what it began come to its end."""

from __future__ import annotations

import asyncio

import pytest

from umavez.concurrency.unbroken import async_to_its_end
from umavez.sequences import AsyncUniqueNumbers


async def cancelled_midway(began: asyncio.Event, task: asyncio.Task[object]) -> None:
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_task_ends_when_its_work_is_done() -> None:
    async def main() -> list[str]:
        began, seen = asyncio.Event(), []

        async def work() -> None:
            began.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            seen.append("committed")
            raise ValueError("nobody waits for this")

        await cancelled_midway(began, asyncio.ensure_future(async_to_its_end(work())))
        return seen

    assert asyncio.run(main()) == ["committed"]


def test_what_is_not_cancelled_gets_its_result() -> None:
    async def work() -> int:
        return 7

    assert asyncio.run(async_to_its_end(work())) == 7


def test_a_block_of_numbers_is_committed_before_its_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> list[str]:
        began, seen = asyncio.Event(), []

        class Connection:
            async def commit(self) -> None:
                began.set()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                seen.append("committed")

            async def close(self) -> None:
                seen.append("closed")

        async def connect() -> Connection:
            return Connection()

        async def reserve(*_: object) -> range:
            return range(1, 9)

        monkeypatch.setattr("umavez.sequences._async.AsyncSequences.reserve", reserve)
        numbers = AsyncUniqueNumbers(connect, "loja", "notas")
        await cancelled_midway(began, asyncio.ensure_future(numbers.next_number()))
        return seen

    assert asyncio.run(main()) == ["committed", "closed"]
