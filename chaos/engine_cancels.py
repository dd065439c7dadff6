"""Cancel at every await: a task is cancelled at its N-th suspension, for every N, on every store.

Afterwards the engine must work, give nobody another's answer, leave no transaction open, and let the key come to its
end: done once where its effect was joined, and never done and forgotten.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable, Coroutine, Generator
from contextlib import closing
from typing import Any

from chaos import STORES, Report, Setting, Trial
from chaos.engine_ledger import connected, create, effects
from umavez import AsyncOnce
from umavez.errors import UmavezError

SCOPE = "chaos"
LEASE = 0.2
OPTIONS: dict[str, Any] = {"unknown": "rerun", "lease": LEASE, "max_retries": 100_000}
OPEN = {
    "postgres": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND state LIKE 'idle in transaction%' AND pid <> pg_backend_pid()",
    "mariadb": "SELECT count(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p"
    " ON p.id = t.trx_mysql_thread_id WHERE p.db = database() AND p.command = 'Sleep' AND p.id <> connection_id()",
}


class CancelledAt:
    """Awaits a coroutine and cancels the task around it at its `step`-th suspension. `steps` counts them."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], step: int) -> None:
        self._coroutine = coroutine
        self._step = step
        self.steps = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._coroutine.__await__()
        sent: Callable[[], Any] = lambda: inner.send(None)  # noqa: E731  # what to do next, said in one place
        while True:
            try:
                waited_for = sent()
            except StopIteration as done:
                return done.value
            self.steps += 1
            task = asyncio.current_task()
            if self.steps == self._step and task is not None:
                task.cancel()
            try:
                yield waited_for
                sent = lambda: inner.send(None)  # noqa: E731
            except BaseException as error:  # noqa: BLE001  # handed on to the coroutine, which decides
                sent = lambda error=error: inner.throw(error)  # noqa: E731


async def whole(once: AsyncOnce, key: str) -> str:
    """An operation with two suspensions of its own."""

    async def call() -> str:
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return f"value of {key}"

    return str((await once.run("cancel", key=key, call=call, **OPTIONS)).value)


async def block(once: AsyncOnce, key: str) -> str:
    """The same as a block, with a checkpoint and a nested operation inside."""
    async with once.attempt("cancel", key=key, **OPTIONS) as attempt:
        if attempt.replayed:
            return str(attempt.outcome)
        await attempt.checkpoint("begun")
        await whole(once, f"{key}-inner")
        await attempt.succeed(f"value of {key}")
    return f"value of {key}"


async def joined(once: AsyncOnce, url: str, key: str) -> str:
    """The same in a transaction of the caller's (PostgreSQL)."""
    import psycopg  # noqa: PLC0415  # only where PostgreSQL is

    # Not `async with connection`: cancelled inside its commit, psycopg's own block leaves the connection open.
    connection = await psycopg.AsyncConnection.connect(url)
    try:
        async with once.joined(connection, "joined", key=key) as attempt:
            if not attempt.replayed:
                await connection.execute("INSERT INTO chaos_ledger VALUES (%s, %s)", (key, "token"))
                await attempt.succeed(f"value of {key}")
        await connection.commit()
        return str(attempt.outcome)
    finally:
        await connection.close()


def run(setting: Setting) -> Report:
    """Every step of every kind of operation, then random moments of the loop until `count` cancels are done."""
    report = Report()
    if setting.backend == "postgres":
        create(setting.backend, setting.url)
    asyncio.run(_run(setting, report))
    if setting.backend == "postgres":
        for key, tokens in effects(setting.backend, setting.url).items():
            if len(tokens) != 1:
                report.blame(f"{key} was joined {len(tokens)} times")
    return report


async def _run(setting: Setting, report: Report) -> None:
    chance = random.Random(setting.seed)
    async with AsyncOnce(setting.url, scope=SCOPE) as once:
        await once.migrate()
        kinds: list[Callable[[str], Coroutine[Any, Any, str]]] = [
            lambda key: whole(once, key),
            lambda key: block(once, key),
        ]
        if setting.backend == "postgres":
            kinds.append(lambda key: joined(once, setting.url, key))
        for kind in kinds:
            await every_step(once, kind, setting, report)
        while report.done < setting.count:
            await some_moment(once, chance.choice(kinds), chance, setting, report)
            setting.advance(1)


async def every_step(
    once: AsyncOnce, kind: Callable[[str], Coroutine[Any, Any, str]], setting: Setting, report: Report
) -> None:
    """Cancel at the first suspension, the second, and so on, until the operation ends before it is cancelled."""
    for step in range(1, 10_000):
        key = secrets.token_hex(6)
        watched = CancelledAt(kind(key), step)
        ended = await outcome_of(asyncio.ensure_future(_awaited(watched)), key, report)
        await afterwards(once, kind, key, setting, report)
        if watched.steps < step and ended == "answered":
            report.sometimes["steps"] += step - 1
            return
        report.done += 1
        report.sometimes[f"{ended} though cancelled" if ended != "cancelled" else ended] += 1
        setting.advance(1)


async def some_moment(
    once: AsyncOnce,
    kind: Callable[[str], Coroutine[Any, Any, str]],
    chance: random.Random,
    setting: Setting,
    report: Report,
) -> None:
    """Cancel one of several tasks that share connections, at a random moment; the others must not notice."""
    keys = [secrets.token_hex(6) for _ in range(4)]
    tasks = [asyncio.ensure_future(kind(key)) for key in keys]
    await asyncio.sleep(chance.random() * 0.01)
    tasks[0].cancel()
    ended = [await outcome_of(task, key, report) for task, key in zip(tasks, keys, strict=True)]
    report.done += 1
    report.sometimes["cancelled"] += ended[0] == "cancelled"
    report.sometimes["neighbours answered"] += ended[1:].count("answered")
    if "cancelled" in ended[1:]:
        report.blame("a neighbour was cancelled instead")
    await afterwards(once, kind, keys[0], setting, report)


async def _awaited(watched: CancelledAt) -> Any:
    return await watched


async def outcome_of(task: asyncio.Future[Any], key: str, report: Report) -> str:
    """How a task ended, in a word; a wrong value is a violation."""
    try:
        value = await asyncio.wait_for(task, 30)
    except asyncio.CancelledError:
        return "cancelled"
    except TimeoutError:
        report.blame(f"{key} hangs after a cancel")
        return "hung"
    except UmavezError as error:
        report.sometimes[type(error).__name__] += 1
        return "failed"
    if value != f"value of {key}":
        report.blame(f"{key} was given {value!r}, which is another's")
    return "answered"


async def afterwards(
    once: AsyncOnce, kind: Callable[[str], Coroutine[Any, Any, str]], key: str, setting: Setting, report: Report
) -> None:
    """Another key works at once, the cancelled one comes to its end, and no transaction is left open."""
    other = secrets.token_hex(6)
    if await outcome_of(asyncio.ensure_future(whole(once, other)), other, report) != "answered":
        report.blame(f"the engine does not work after {key} was cancelled")
    for _ in range(40):
        if await outcome_of(asyncio.ensure_future(kind(key)), key, report) == "answered":
            break
        await asyncio.sleep(LEASE / 4)
    else:
        report.blame(f"{key} never came to its end after a cancel (I7)")
    if (left := await asyncio.to_thread(transactions, setting)) != 0:
        report.blame(f"{left} transactions are open after {key} was cancelled")


def transactions(setting: Setting) -> int:
    """Open transactions that do nothing, as the server or the file's lock tells."""
    if setting.backend == "redis":
        return 0
    with closing(connected(setting.backend, setting.url)) as connection, closing(connection.cursor()) as cursor:
        if setting.backend == "sqlite":
            cursor.execute("BEGIN IMMEDIATE")
            cursor.execute("ROLLBACK")
            return 0
        cursor.execute(OPEN[setting.backend])
        return int(cursor.fetchone()[0])


TRIALS = (Trial("cancels: at every await", run, STORES, short=40, long=5000, sometimes=("cancelled", "steps")),)
