"""How long a message takes from its commit to its handler, when nothing else is to be done.

python -m bench.messaging_latency [--messages 200] [--seed 1]

Each message waits until the one before it is marked, and a moment longer, so that everybody is asleep when it comes.
Beside each way stands the bare one on the same servers in the same run: to publish and be delivered for RabbitMQ; to
insert, notify and delete for the database alone.                    (p50 <= 15 ms, or <= 3 x the bare one: see TARGET)

claim: commit to the claimed message in the relay's hands. confirm: from there to the broker's confirm. delivery: commit
to the handler. mark: commit to the row marked as done.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import sqlite3
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

import aio_pika
import psycopg

from bench.messaging import BODY, servers
from umavez.messaging import Broker, Consumer, ConsumerSettings, Database, LocalBroker, Message, Outbox, Relay
from umavez.messaging.broker import Answer, Subscription
from umavez.messaging.rabbitmq import RabbitBroker, Topology
from umavez.messaging.rabbitmq.topology import declare_exchange, declare_queues

TARGET = 15.0, 3.0
"""Milliseconds, and how many times the bare way: one of the two must hold, since the machine may be slow itself."""
Times = dict[str, list[float]]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(f"N={given.messages}, seed {given.seed}; milliseconds, p50 / p95")
    with servers() as (store, rabbit), tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/messages.db"
        asyncio.run(compare(store, rabbit, file, given.messages, random.Random(given.seed)))


async def compare(store: str, rabbit: str, file: str, many: int, chance: random.Random) -> None:
    """Each way against its bare one, in turn."""
    topology = Topology(f"bench-{secrets.token_hex(4)}")
    await Database(f"sqlite:///{file}?journal=delete").migrate()
    postgres, sqlite = psycopg.connect(store), sqlite3.connect(file, check_same_thread=False)
    with closing(postgres), closing(sqlite):
        url = f"sqlite:///{file}?journal=delete"
        bare = await bare_rabbit(rabbit, topology, many, chance)
        told("RabbitMQ, PostgreSQL", bare, await ours(store, rabbit, topology, postgres, many, chance))
        bare = await bare_postgres(store, many, chance)
        told("local, PostgreSQL", bare, await ours(store, "", topology, postgres, many, chance))
        bare = await bare_sqlite(file, many, chance)
        told("local, SQLite", bare, await ours(url, "", topology, sqlite, many, chance))


def told(way: str, bare: Sequence[float], times: Times) -> None:
    """Print one way."""
    p50, beside = statistics.median(times["delivery"]), statistics.median(bare)
    kept = p50 <= TARGET[0] or p50 <= TARGET[1] * beside
    parts = ", ".join(f"{part} {_shown(found)}" for part, found in times.items())
    print(f"{way}: {parts}; bare {_shown(bare)}: {p50 / beside:.1f} x {'' if kept else '(TARGET MISSED)'}", flush=True)


def _shown(found: Sequence[float]) -> str:
    return f"{statistics.median(found):.1f} / {statistics.quantiles(found, n=20)[-1]:.1f}"


class Stamped:
    """A broker that notes when it was given a message and when it had confirmed it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.given = self.confirmed = 0.0

    async def publish(self, messages: Sequence[Message]) -> Sequence[Answer]:
        """As the broker's."""
        self.given = time.perf_counter()
        answers = await self._broker.publish(messages)
        self.confirmed = time.perf_counter()
        return answers

    async def subscribe(self, subscriber: str, topics: Sequence[str], *, prefetch: int = 20) -> Subscription:
        """As the broker's."""
        return await self._broker.subscribe(subscriber, topics, prefetch=prefetch)

    async def close(self) -> None:
        """As the broker's."""
        await self._broker.close()


async def ours(url: str, rabbit: str, topology: Topology, connection: Any, many: int, chance: random.Random) -> Times:
    """Relay and consumer as they come, in this process; messages are appended by a thread, as a server would."""
    database = Database(url)
    plain: Broker = RabbitBroker(rabbit, topology=topology, parking=database) if rabbit else LocalBroker(database)
    broker, delivered, stop = Stamped(plain), asyncio.Queue[float](), asyncio.Event()

    async def handle(_: Message) -> None:
        delivered.put_nowait(time.perf_counter())

    def append(number: int) -> float:
        Outbox().append(connection, Message("t", BODY % number))
        connection.commit()
        return time.perf_counter()

    relay = Relay(database, broker)
    consumer = Consumer(broker, "sink", ["t"], handle, ConsumerSettings())
    tasks = [asyncio.create_task(part.run(stop)) for part in (consumer, relay)]
    times: Times = {"claim": [], "confirm": [], "delivery": [], "mark": []}
    await asyncio.sleep(1)
    for number in range(many + 10):
        before = relay.published
        committed = await asyncio.to_thread(append, number)
        arrived = await asyncio.wait_for(delivered.get(), 30)
        while relay.published == before:  # noqa: ASYNC110 - a count, seen from outside
            await asyncio.sleep(0.0005)
        if number >= 10:  # the first ones open connections
            parts = (broker.given - committed, broker.confirmed - broker.given, arrived - committed)
            for part, seconds in zip(times, (*parts, time.perf_counter() - committed), strict=True):
                times[part].append(seconds * 1000)
        await asyncio.sleep(chance.uniform(0.005, 0.4))
    stop.set()
    await asyncio.gather(*tasks)
    await broker.close()
    await database.close()
    return times


async def bare_rabbit(url: str, topology: Topology, many: int, chance: random.Random) -> list[float]:
    """A persistent message to a quorum queue, and its arrival on another connection."""
    sender, receiver = await aio_pika.connect(url), await aio_pika.connect(url)
    channel = await sender.channel(publisher_confirms=True)
    queue = await declare_queues(channel, topology, "bare", ["bare"], (3, 10))
    exchange = await declare_exchange(channel, topology)
    there = await (await receiver.channel()).get_queue(queue.name)
    arrived = asyncio.Queue[float]()

    async def came(message: Any) -> None:
        arrived.put_nowait(time.perf_counter())
        await message.ack()

    await there.consume(came)

    async def send(number: int) -> float:
        message = aio_pika.Message((BODY % number).encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        began = time.perf_counter()
        await exchange.publish(message, "bare", mandatory=True)
        return began

    times = await repeated(send, arrived, many, chance)
    await channel.queue_delete(queue.name)
    await channel.queue_delete(topology.dead_queue("bare"))
    await sender.close()
    await receiver.close()
    return times


async def bare_postgres(url: str, many: int, chance: random.Random) -> list[float]:
    """A row and a notification, and its deletion by whoever was notified."""
    arrived = asyncio.Queue[float]()
    with closing(psycopg.connect(url)) as connection:
        connection.execute("CREATE TABLE bare (body text)")
        connection.commit()

        def write(number: int) -> float:
            connection.execute("INSERT INTO bare VALUES (%s)", (BODY % number,))
            connection.execute("NOTIFY bare")
            connection.commit()
            return time.perf_counter()

        async with listening(url, arrived):
            return await repeated(lambda number: asyncio.to_thread(write, number), arrived, many, chance)


@asynccontextmanager
async def listening(url: str, arrived: asyncio.Queue[float]) -> AsyncIterator[None]:
    """A task that deletes what it is notified of."""
    ready = asyncio.Event()

    async def listen() -> None:
        async with (
            await psycopg.AsyncConnection.connect(url, autocommit=True) as ears,
            await psycopg.AsyncConnection.connect(url, autocommit=True) as hands,
        ):
            await ears.execute("LISTEN bare")
            ready.set()
            async for _ in ears.notifies():
                await hands.execute("DELETE FROM bare RETURNING body")
                arrived.put_nowait(time.perf_counter())

    task = asyncio.create_task(listen())
    await ready.wait()
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def bare_sqlite(file: str, many: int, chance: random.Random) -> list[float]:
    """A row, and its deletion by whoever is told of the commit."""
    arrived = asyncio.Queue[float]()
    with (
        closing(sqlite3.connect(file, check_same_thread=False)) as writer,
        closing(sqlite3.connect(file, check_same_thread=False)) as hands,
    ):
        writer.execute("CREATE TABLE bare (body TEXT)")
        writer.execute("PRAGMA synchronous = FULL")

        def write(number: int) -> float:
            writer.execute("INSERT INTO bare VALUES (?)", (BODY % number,))
            writer.commit()
            return time.perf_counter()

        def take() -> float:
            hands.execute("DELETE FROM bare")
            hands.commit()
            return time.perf_counter()

        async def send(number: int) -> float:
            committed = await asyncio.to_thread(write, number)
            arrived.put_nowait(await asyncio.to_thread(take))
            return committed

        return await repeated(send, arrived, many, chance)


async def repeated(
    send: Callable[[int], Awaitable[float]], arrived: asyncio.Queue[float], many: int, chance: random.Random
) -> list[float]:
    """Milliseconds from what `send` returns to what arrives, one at a time."""
    times = []
    for number in range(many + 10):
        began = await send(number)
        times.append((await asyncio.wait_for(arrived.get(), 30) - began) * 1000)
        await asyncio.sleep(chance.uniform(0.005, 0.05))
    return times[10:]


if __name__ == "__main__":
    main()
