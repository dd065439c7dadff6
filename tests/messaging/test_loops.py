"""Relays, consumers and brokers that outlive their event loop or their process: workers of all kinds."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing

import pytest

from tests.messaging.places import Place
from umavez.messaging import (
    Broker,
    Consumer,
    ConsumerSettings,
    Database,
    LocalBroker,
    Message,
    Outbox,
    Relay,
    RelaySettings,
)
from umavez.messaging.inspection import Inspection

ROUNDS = 3


def in_a_process_of_its_own(*words: str, what: str = "main") -> None:
    """What a loop left in the middle complains when it is thrown away, and should."""
    code = f"import sys; from tests.messaging.test_loops import {what}; {what}(*sys.argv[1:])"
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert told.stdout.split() == ["went", "on"], told.stderr[-2000:]


def test_messages_go_on_in_the_next_loop(place: Place) -> None:
    in_a_process_of_its_own(place.url)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_rabbitmq_goes_on_in_the_next_loop(place: Place, rabbitmq_url: str, rabbitmq_prefix: str) -> None:
    in_a_process_of_its_own(place.url, rabbitmq_url, rabbitmq_prefix)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_asks_on_connections_of_its_own(place: Place) -> None:
    """On those of its parent each would be given the other's answers."""
    in_a_process_of_its_own(place.url, what="forked")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_publishes_on_a_connection_of_its_own(rabbitmq_url: str, rabbitmq_prefix: str) -> None:
    in_a_process_of_its_own("", rabbitmq_url, rabbitmq_prefix, what="publishing")


def publishing(_: str, rabbit: str, prefix: str) -> None:
    from umavez.messaging.rabbitmq import RabbitBroker, Topology

    broker = RabbitBroker(rabbit, topology=Topology(prefix))
    topic, bodies = f"{prefix}t", [str(number) for number in range(20)]

    async def publish(name: str) -> None:
        async with asyncio.timeout(20):
            for body in bodies:
                assert await broker.publish([Message(topic, name + body)]) == [None]

    async def work() -> None:
        subscription = await broker.subscribe("mailer", [topic])
        await publish("before")
        child = _in_a_child(lambda: asyncio.run(publish("child")))
        await publish("parent")
        came: list[str] = []
        async with asyncio.timeout(20):
            while len(came) < 60:
                some = await subscription.take(20, 0.2)
                came += [delivery.message.body for delivery in some]
                await subscription.finish(some)
        assert sorted(came) == sorted(name + body for name in ("before", "child", "parent") for body in bodies)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child failed"  # noqa: ASYNC222 - it is over
        await subscription.close()
        await broker.close()

    asyncio.run(work())
    sys.stdout.write("went on")


def _in_a_child(work: Callable[[], None]) -> int:
    """The number of a forked process that does `work`, and ends with 0 if it did."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            work()
        except BaseException:  # noqa: BLE001  # it goes no further than this child
            os._exit(1)
        os._exit(0)
    return child


def forked(url: str) -> None:
    database = Database(url)

    async def work() -> None:
        async with asyncio.timeout(20):
            for _ in range(50):
                assert await database.run(Inspection(database.dialect).lag) == (0, 0)

    asyncio.run(work())
    child = _in_a_child(lambda: asyncio.run(work()))
    asyncio.run(work())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child failed"
    asyncio.run(work())
    sys.stdout.write("went on")


def main(url: str, rabbit: str = "", prefix: str = "") -> None:
    place, database, handled = Place(url), Database(url), list[str]()
    topic = f"{prefix}t{secrets.token_hex(4)}"

    async def handle(message: Message) -> None:
        handled.append(message.body)

    broker = broker_of(database, rabbit, prefix)
    relay = Relay(database, broker, RelaySettings(poll=0.01))
    consumer = Consumer(broker, "mailer", [topic], handle, ConsumerSettings(wait=0.05))

    async def work(number: int) -> None:
        await (await broker.subscribe("mailer", [topic])).close()
        with closing(place.connect()) as connection:
            Outbox().append(connection, [Message(topic, str(number)) for _ in range(20)])
            connection.commit()
        stop = asyncio.Event()
        async with asyncio.timeout(15), asyncio.TaskGroup() as tasks:
            tasks.create_task(relay.run(stop))
            tasks.create_task(consumer.run(stop))
            while handled.count(str(number)) < 20:  # noqa: ASYNC110 - counts, seen from outside
                await asyncio.sleep(0.01)
            stop.set()

    for number in range(ROUNDS):
        asyncio.run(work(number))
    assert len(handled) == 20 * ROUNDS
    asyncio.run(database.close())
    asyncio.run(broker.close())
    sys.stdout.write("went on")


def broker_of(database: Database, rabbit: str, prefix: str) -> Broker:
    if not rabbit:
        return LocalBroker(database)
    from umavez.messaging.rabbitmq import RabbitBroker, Topology

    return RabbitBroker(rabbit, topology=Topology(prefix), parking=database)
