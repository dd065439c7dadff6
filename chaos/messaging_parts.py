"""What the chaos of messages is made of: a ledger without a unique constraint, workers, and steps to die at."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Sequence
from contextlib import asynccontextmanager, closing
from typing import Any
from urllib.parse import urlsplit

from chaos import given
from umavez import AsyncOnce
from umavez.messaging import (
    AsyncInbox,
    Backoff,
    Broker,
    Consumer,
    ConsumerSettings,
    Database,
    LocalBroker,
    Message,
    Relay,
    RelaySettings,
)
from umavez.messaging.stopping import stop_on_signals
from umavez.sql.connection import async_close

TOPIC = "chaos"
CONSUMER = "ledger"
LEASE = 0.5
"""Seconds: short, so that what a killed process held is soon taken over."""

PATIENT = Backoff(first=0.05, cap=0.5, limit=1_000_000)
"""Kills raise the attempts of innocent messages; none may die of it here."""


def connect(url: str) -> Any:
    """A sync connection that opens transactions by itself."""
    if url.startswith("sqlite"):
        return sqlite3.connect(url[len("sqlite:///") :].partition("?")[0], timeout=30)
    if url.startswith("postgres"):
        import psycopg  # noqa: PLC0415 - only where it is asked for

        return psycopg.connect(url)
    import pymysql  # noqa: PLC0415 - only where it is asked for

    return pymysql.connect(**_mariadb(url))


async def connect_async(url: str) -> Any:
    """The same, awaited."""
    if url.startswith("sqlite"):
        import aiosqlite  # noqa: PLC0415 - only where it is asked for

        return await aiosqlite.connect(url[len("sqlite:///") :].partition("?")[0], timeout=30)
    if url.startswith("postgres"):
        import psycopg  # noqa: PLC0415 - only where it is asked for

        return await psycopg.AsyncConnection.connect(url)
    import asyncmy  # noqa: PLC0415 - only where it is asked for

    return await asyncmy.connect(**_mariadb(url))


def _mariadb(url: str) -> dict[str, Any]:
    split = urlsplit(url)
    return {
        "host": split.hostname,
        "port": split.port or 3306,
        "user": split.username or "root",
        "password": split.password or "",
        "database": split.path.lstrip("/"),
    }


def prepare(url: str) -> None:
    """The tables of the engine, of messaging and the ledger, all empty."""

    async def tables() -> None:
        database = Database(url)
        await database.migrate()
        await database.close()
        once = AsyncOnce(url, scope="chaos")
        await once.migrate()
        await once.close()

    asyncio.run(tables())
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        for text in (
            "DROP TABLE IF EXISTS ledger",
            "CREATE TABLE ledger (message VARCHAR(99))",
            "DELETE FROM umavez_outbox",
            "DELETE FROM umavez_deliveries",
        ):
            cursor.execute(text)
        connection.commit()


def rows(url: str, text: str) -> list[tuple[Any, ...]]:
    """What a query gives."""
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute(text)
        return list(cursor.fetchall())


def waiting(url: str) -> int:
    """Messages and deliveries that are not done."""
    return sum(
        int(rows(url, f"SELECT count(*) FROM {table} WHERE state <> 'DONE'")[0][0])
        for table in ("umavez_outbox", "umavez_deliveries")
    )


def effects(url: str) -> tuple[int, int]:
    """How many effects there were, and of how many messages."""
    ((total, distinct),) = rows(url, "SELECT count(*), count(DISTINCT message) FROM ledger")
    return int(total), int(distinct)


class Steps:
    """Counts the steps of a process and kills it, as the kernel would, at the chosen one."""

    def __init__(self, fatal: int = 0) -> None:
        self.fatal = fatal
        self.taken = 0

    def step(self) -> None:
        """One step further."""
        self.taken += 1
        if self.taken == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)


class SteppingDatabase(Database):
    """A database before and after each of whose transactions a process may die."""

    steps = Steps()

    async def run(self, flow: Any, *, atomic: bool = True) -> Any:
        """See Database.run."""
        self.steps.step()
        result = await super().run(flow, atomic=atomic)
        self.steps.step()
        return result


class SteppingBroker:
    """A broker before, amid and after each of whose publications a process may die."""

    def __init__(self, broker: Broker, steps: Steps) -> None:
        self._broker = broker
        self._steps = steps
        self.subscribe = broker.subscribe
        self.close = broker.close

    async def publish(self, messages: Sequence[Message]) -> Sequence[str | None]:
        """See Broker.publish."""
        half = len(messages) // 2
        self._steps.step()
        first = list(await self._broker.publish(messages[:half])) if half else []
        self._steps.step()
        second = list(await self._broker.publish(messages[half:]))
        self._steps.step()
        return first + second


def broker_of(url: str | None, database: Database) -> Any:
    """The broker at `url`, or the local one."""
    if url is None:
        return LocalBroker(database, lease=LEASE, poll=0.02)
    from umavez.messaging.rabbitmq import RabbitBroker  # noqa: PLC0415 - only where it is asked for

    return RabbitBroker(url, parking=database, watch=1.0)


class Ledger:
    """The handler: writes an effect and the inbox's mark in one transaction."""

    def __init__(self, url: str, steps: Steps) -> None:
        self._url = url
        self._steps = steps
        self._once = AsyncOnce(url, scope="chaos")
        self._inbox = AsyncInbox(self._once, CONSUMER)
        self._spare: list[Any] = []

    @asynccontextmanager
    async def _connection(self):
        connection = self._spare.pop() if self._spare else await connect_async(self._url)
        try:
            yield connection
        except BaseException:
            await async_close(connection)
            raise
        self._spare.append(connection)

    async def handle(self, message: Message) -> None:
        """One effect for one message."""
        async with self._connection() as connection:

            async def effect(message: Message) -> None:
                cursor = connection.cursor()
                cursor = await cursor if hasattr(cursor, "__await__") else cursor
                await cursor.execute(f"INSERT INTO ledger VALUES ('{message.id}')")

            self._steps.step()
            await self._inbox.handle(connection, message, effect)
            self._steps.step()
            await connection.commit()
            self._steps.step()

    async def close(self) -> None:
        """Close what is open."""
        for connection in self._spare:
            await async_close(connection)
        await self._once.close()


def relay_and_consumer(
    url: str, broker_url: str | None, database: Database, steps: Steps, *, usual: bool = False
) -> tuple[Any, ...]:
    """A relay, a consumer, and what they work with; `usual`: with the settings that everybody gets."""
    broker = broker_of(broker_url, database)
    parallel = 1 if url.startswith("sqlite") else 8
    if usual:
        sending, taking = RelaySettings(), ConsumerSettings()
    else:
        batch = 500 if broker_url else 50
        sending = RelaySettings(batch=batch, lease=LEASE * 4, poll=0.02, backoff=PATIENT, clean_every=3600)
        taking = ConsumerSettings(parallel=parallel, wait=0.1, backoff=PATIENT, renew=0.2)
    ledger = Ledger(url, steps)
    relay = Relay(database, SteppingBroker(broker, steps), sending)
    return relay, Consumer(broker, CONSUMER, [TOPIC], ledger.handle, taking), ledger, broker


async def work(role: str, url: str, broker_url: str | None, fatal: int = 0, *, usual: bool = False) -> None:
    """Be a relay, a consumer or both until SIGTERM; as both, until nothing waits."""
    steps = Steps(fatal)
    database = SteppingDatabase(url)
    database.steps = steps
    relay, consumer, ledger, broker = relay_and_consumer(url, broker_url, database, steps, usual=usual)
    stop = asyncio.Event()
    stop_on_signals(stop)
    parts = {"relay": [relay], "consumer": [consumer], "both": [relay, consumer]}[role]
    async with asyncio.TaskGroup() as tasks:
        for part in parts:
            tasks.create_task(part.run(stop))
        if role == "both":
            while waiting(url):  # noqa: ASYNC110 - rows of a database
                await asyncio.sleep(0.02)
            stop.set()
    await ledger.close()
    await broker.close()
    await database.close()


if __name__ == "__main__":
    # "usual": messages may die, as everybody's may.
    role, store, place, *usual_ = given(__doc__, "role", "url", "broker", "usual?")
    asyncio.run(work(role, store, place or None, usual=bool(usual_)))
