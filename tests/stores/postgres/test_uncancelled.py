"""A commit that waits for a standby is never shown to others because whoever awaits it was cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from tests.servers import Private
from umavez import AsyncOnce, Once
from umavez.messaging import Database
from umavez.postgres import UncancelledConnection
from umavez.sql.flow import SqlFlow, Write

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
EFFECT = "INSERT INTO effects VALUES ('done')"


def cut_off(server: Private) -> str:
    """A primary whose synchronous standby never comes: what is committed from now on must not be seen."""
    with Once(server.url, scope="loja") as once:
        once.migrate()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE effects (what text)")
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        connection.execute("SELECT pg_reload_conf()")
        while connection.execute("SHOW synchronous_standby_names").fetchone() != ("nobody",):
            time.sleep(0.01)
    return server.url


async def committing(kind: type[psycopg.AsyncConnection[Any]], url: str) -> None:
    connection = await kind.connect(url)
    try:
        await connection.execute(EFFECT)
        await connection.commit()
    finally:
        await connection.close()


async def sending(url: str) -> None:
    def flow() -> SqlFlow[None]:
        yield Write(EFFECT)

    await Database(url).run(flow)


async def calling(url: str) -> None:
    async def call() -> int:
        return 1

    async with AsyncOnce(url, scope="loja") as once:
        await once.run("pay", key="k", call=call, unknown="hold")


async def cancelled(url: str, work: Callable[[], Awaitable[None]]) -> tuple[int, int]:
    """What others see after the task that awaits a commit was cancelled: effects, records."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as watcher:
        # Of itself only: commits of those who were cancelled before it go on waiting.
        before = await (await watcher.execute(WAITING)).fetchone()
        task = asyncio.ensure_future(work())
        while await (await watcher.execute(WAITING)).fetchone() == before:  # noqa: ASYNC110  # a server's state
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task], timeout=20)
        seen = "SELECT (SELECT count(*) FROM effects), (SELECT count(*) FROM idempotency_records)"
        found: Any = await (await watcher.execute(seen)).fetchone()
        return found


def test_a_cancelled_commit_is_seen_when_it_is_safe_or_never(private_server: Callable[[str], Private]) -> None:
    url = cut_off(private_server("postgres"))

    assert asyncio.run(cancelled(url, lambda: committing(UncancelledConnection, url))) == (0, 0)
    assert asyncio.run(cancelled(url, lambda: sending(url))) == (0, 0)
    assert asyncio.run(cancelled(url, lambda: calling(url))) == (0, 0)
    # The control: as psycopg is, others are shown what a failover would take back.
    assert asyncio.run(cancelled(url, lambda: committing(psycopg.AsyncConnection, url))) == (1, 0)


def test_waiting_for_a_silent_server_takes_no_processor_time(postgres_url: str) -> None:
    async def spent() -> float:
        connection = await UncancelledConnection.connect(postgres_url, autocommit=True)
        async with connection:
            before = time.thread_time()
            await connection.execute("SELECT pg_sleep(0.5)")
            return time.thread_time() - before

    # A loop without a pause takes all of the half second, unless others take the processor from it.
    assert asyncio.run(spent()) < 0.05
