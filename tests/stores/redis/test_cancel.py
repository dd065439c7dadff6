"""Nobody is ever given another caller's answer, whatever is cancelled or cut (research case S37)."""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
from typing import Any

import pytest

from tests.stores.redis.redis_drafts import claim
from umavez.core.flow import Stale
from umavez.errors import StoreUnavailable, StoreUncertain
from umavez.stores import open_async_store, open_store

KEYS = 50
CANCELS = 10_000


def test_ten_thousand_cancelled_tasks_leave_no_answer_to_a_stranger(redis_url: str) -> None:
    seed = secrets.randbits(32)
    cancelled, foreign, answered = asyncio.run(_cancel_at_random(redis_url, random.Random(seed)))
    assert cancelled == CANCELS
    assert foreign == 0, f"seed {seed}"
    assert answered > 1000


async def _cancel_at_random(url: str, chance: random.Random) -> tuple[int, int, int]:
    store: Any = open_async_store(f"{url}?prefix=cancel{secrets.token_hex(4)}")
    drafts = [claim(str(number), f"owner-{number}", fingerprint=f"print-{number}") for number in range(KEYS)]
    for draft in drafts:
        await store.swap(None, draft)
    cancelled = foreign = answered = 0
    while cancelled < CANCELS:
        numbers = [chance.randrange(KEYS) for _ in range(64)]
        tasks = [asyncio.create_task(_ask(store, drafts[number])) for number in numbers]
        doomed = chance.sample(range(64), min(48, CANCELS - cancelled))
        waits = chance.randrange(4)
        for _ in range(waits):
            await asyncio.sleep(0)  # 0: not begun; 1: not written; 2 and more: on the way, or answered
        cancelled += sum(tasks[place].cancel() for place in doomed)
        for number, result in zip(numbers, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
            if isinstance(result, asyncio.CancelledError):
                continue
            answered += 1
            foreign += result != (f"owner-{number}", f"print-{number}")
    wire = store._pipe._wire
    await store.close()
    assert wire.closed
    return cancelled, foreign, answered


async def _ask(store: Any, draft: Any) -> tuple[str, str]:
    """What the connection itself hands over, before the store's own check of the echo."""
    wire = store._pipe._wire
    command = store._dialogues.swaps.swapping(None, draft._replace(stamp="x"), b'"x"')
    value, _now = await wire.call(command)
    fields = store._dialogues._record(value, draft.key)
    return fields.stamp, fields.fingerprint


def test_threads_get_their_own_answers(redis_url: str) -> None:
    store = open_store(f"{redis_url}?prefix=threads{secrets.token_hex(4)}")
    wrong: list[object] = []

    def work(worker: int) -> None:
        for number in range(100):
            draft = claim(f"{worker}-{number}", f"s{worker}-{number}")
            store.swap(None, draft)
            again = store.swap(None, draft._replace(stamp="x"))
            if not isinstance(again, Stale) or again.current is None or again.current.stamp != draft.stamp:
                wrong.append(again)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    assert wrong == []


def test_an_answer_out_of_step_is_noticed_by_its_echo(redis_url: str) -> None:
    """One reply too few is put in line, so that everybody would get the answer of the one before."""

    async def main() -> list[object]:
        store: Any = open_async_store(f"{redis_url}?prefix=echo{secrets.token_hex(4)}")
        await store.migrate()
        loop = asyncio.get_running_loop()
        shifted = loop.create_future()
        answers = [asyncio.create_task(store.swap(None, claim(str(number), f"s{number}"))) for number in range(8)]
        loop.call_soon(lambda: store._pipe._wire._waiting.appendleft(shifted))
        await asyncio.sleep(0)
        results: list[object] = await asyncio.gather(*answers, return_exceptions=True)
        fresh = await store.swap(None, claim("after", "s"))
        await store.close()
        return [*results, fresh]

    *results, fresh = asyncio.run(main())
    assert all(isinstance(result, StoreUncertain) for result in results)
    assert not isinstance(fresh, Exception)


def test_a_reply_nobody_asked_for_is_not_given_to_a_command_that_was_not_sent(redis_url: str) -> None:
    async def main() -> None:
        store: Any = open_async_store(f"{redis_url}?prefix=surprise")
        await store.migrate()
        wire = store._pipe._wire
        wire._lone = False  # others are busy: the command waits for the end of the turn
        answer = wire.call(b"*1\r\n$4\r\nPING\r\n")
        wire.data_received(b"+SURPRISE\r\n")
        with pytest.raises(StoreUnavailable):
            await answer
        assert wire.closed
        await store.migrate()
        await store.close()

    asyncio.run(main())
