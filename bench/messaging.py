"""How fast messages move, against the bare client on the same servers.

python -m bench.messaging [--messages 20000] [--rounds 3]

relay:  outbox -> RabbitMQ with everything the relay does, against bare aio-pika with confirms in batches   (>= 0.7)
marks:  rows marked in groups against one by one                                                             (>= 20)
append: time of one statement, by number of messages
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial

import aio_pika
import psycopg

from tests.servers import KINDS, Found, Run
from umavez.messaging import Database, Message, Outbox, Relay, RelaySettings
from umavez.messaging.rabbitmq import RabbitBroker, Topology
from umavez.messaging.rabbitmq.topology import declare_exchange, declare_queues
from umavez.messaging.tables.backlog import Backlog
from umavez.sql.connection import Dialect

BATCH = 500
BODY = '{"order":"%d","amount":"10.00","currency":"BRL","note":"a body of about a hundred bytes, as events are"}'


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with servers() as (store, broker):
        print(asyncio.run(relay_against_bare(store, broker, given.messages, given.rounds)))
        print(asyncio.run(groups_against_singles(store, 2000)))
        print(append_by_size(store))


@contextmanager
def servers() -> Iterator[tuple[str, str]]:
    """A PostgreSQL database and a RabbitMQ virtual host of our own."""
    run = Run.begin()
    try:
        with ExitStack() as lent:
            urls = []
            for name in ("postgres", "rabbitmq"):
                server = run.server(KINDS[name])
                assert isinstance(server, Found), f"no {name}"
                urls.append(lent.enter_context(run.lend(KINDS[name], server)))
            with closing(psycopg.connect(urls[0])) as connection:
                Outbox().migrate(connection)
                connection.commit()
            yield urls[0], urls[1]
    finally:
        run.end()


def fill(store: str, many: int) -> None:
    """Messages that wait in the outbox."""
    with closing(psycopg.connect(store)) as connection:
        connection.execute("TRUNCATE umavez_outbox")
        for first in range(0, many, 5000):
            Outbox().append(
                connection, [Message("t", BODY % number) for number in range(first, min(many, first + 5000))]
            )
        connection.commit()
    with closing(psycopg.connect(store, autocommit=True)) as connection:
        connection.execute("VACUUM ANALYZE umavez_outbox")


async def relay_against_bare(store: str, broker_url: str, many: int, rounds: int) -> str:
    """Alternating rounds; the median of each."""
    topology = Topology(f"bench-{secrets.token_hex(4)}")
    connection = await aio_pika.connect(broker_url)
    channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
    queue = await declare_queues(channel, topology, "sink", ["t"], (3, 10))
    exchange = await declare_exchange(channel, topology)
    bare, relayed = [], []
    for _ in range(rounds):
        bare.append(many / await timed(bare_publishing(exchange, many)))
        await queue.purge()
        fill(store, many)
        relayed.append(many / await timed(relaying(store, broker_url, topology, many)))
        assert (await channel.declare_queue(queue.name, passive=True)).declaration_result.message_count == many
        await queue.purge()
    await channel.queue_delete(queue.name)
    await channel.queue_delete(topology.dead_queue("sink"))
    await connection.close()
    ratio = statistics.median(relayed) / statistics.median(bare)
    return (
        f"relay {statistics.median(relayed):,.0f}/s, bare aio-pika {statistics.median(bare):,.0f}/s"
        f" (N={many}, batches of {BATCH}, {rounds} rounds): {ratio:.2f} x (target 0.7)"
    )


async def timed(work: object) -> float:
    """Seconds that awaiting takes."""
    began = time.perf_counter()
    await work  # type: ignore[misc]  # an awaitable of any kind
    return time.perf_counter() - began


async def bare_publishing(exchange: aio_pika.abc.AbstractExchange, many: int) -> None:
    """What one writes by hand: a batch is sent, then its confirms are awaited."""
    for first in range(0, many, BATCH):
        await asyncio.gather(
            *(
                exchange.publish(
                    aio_pika.Message(
                        (BODY % number).encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT, message_id=str(number)
                    ),
                    "t",
                    mandatory=True,
                )
                for number in range(first, min(many, first + BATCH))
            )
        )


async def relaying(store: str, broker_url: str, topology: Topology, many: int) -> None:
    """The relay from claim to mark until nothing waits."""
    database, broker = Database(store), RabbitBroker(broker_url, topology=topology)
    relay = Relay(database, broker, RelaySettings(batch=BATCH))
    stop = asyncio.Event()
    task = asyncio.create_task(relay.run(stop))
    while relay.published < many:  # noqa: ASYNC110 - a count, seen from outside
        await asyncio.sleep(0.001)
    stop.set()
    await task
    await broker.close()
    await database.close()


async def groups_against_singles(store: str, many: int) -> str:
    """The same rows marked by one statement each, and by one per group."""
    database = Database(store)
    backlog = Backlog(Dialect.POSTGRES)

    async def claimed() -> list[int]:
        fill(store, many)
        return [row.seq for row in await database.run(lambda: backlog.claim(many, 600_000, "bench"))]

    async def marked(groups: Sequence[Sequence[int]]) -> None:
        for group in groups:
            await database.run(partial(backlog.done, group, "bench"), atomic=False)

    seqs = await claimed()
    single = many / await timed(marked([[seq] for seq in seqs]))
    seqs = await claimed()
    grouped = many / await timed(marked([seqs[first : first + BATCH] for first in range(0, many, BATCH)]))
    await database.close()
    return (
        f"marks {grouped:,.0f}/s in groups of {BATCH}, {single:,.0f}/s one by one: {grouped / single:.0f} x (target 20)"
    )


def append_by_size(store: str) -> str:
    """Milliseconds of a transaction that appends 1, 10, 100 and 1,000 messages; each is one statement."""
    told = []
    with closing(psycopg.connect(store)) as connection:
        for many in (1, 10, 100, 1000):
            times = []
            for _ in range(20):
                messages = [Message("t", BODY % number) for number in range(many)]
                began = time.perf_counter()
                Outbox().append(connection, messages)
                times.append(time.perf_counter() - began)
                connection.commit()
            told.append(f"{many}: {statistics.median(times) * 1000:.2f} ms")
    return f"append, one statement, by messages: {', '.join(told)}"


if __name__ == "__main__":
    main()
