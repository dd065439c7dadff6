"""RabbitMQ: how queues are declared, dead letters, reconnecting, and a broker that is killed."""

from __future__ import annotations

import asyncio
import os
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aio_pika
import pamqp.encode
import pytest

from tests.messaging.places import place_of
from tests.servers import Private
from umavez.messaging import (
    Backoff,
    BrokerUnavailable,
    Consumer,
    ConsumerSettings,
    Database,
    Message,
    Outbox,
    Poison,
    Relay,
    RelaySettings,
)
from umavez.messaging.rabbitmq import RabbitBroker, Topology
from umavez.messaging.rabbitmq.topology import queue_arguments
from umavez.sql.flow import SqlFlow, Write

OUTAGE = Backoff(first=0.05, cap=0.2)
FORGETFUL = 8.0
"""Seconds. RabbitMQ 3.10 forgets a quorum queue, with what it confirmed, when it is killed right after declaring it."""


@pytest.fixture
def broker(rabbitmq_url: str, rabbitmq_prefix: str, runner: asyncio.Runner) -> Iterator[RabbitBroker]:
    broker = RabbitBroker(rabbitmq_url, topology=Topology(rabbitmq_prefix, delivery_limit=2), watch=0.2)
    yield broker
    runner.run(broker.close())


async def taken(subscription: Any, count: int = 1) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            found += await subscription.take(count - len(found), 0.2)
    return found


def test_queues_have_an_explicit_limit_and_dead_letters_that_are_not_lost() -> None:
    arguments = queue_arguments(Topology("p", delivery_limit=7), "mailer", (3, 10))
    assert arguments == {
        "x-queue-type": "quorum",
        "x-delivery-limit": 7,
        "x-dead-letter-exchange": "p.dead",
        "x-dead-letter-routing-key": "mailer",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    assert "x-dead-letter-strategy" not in queue_arguments(Topology("p"), "mailer", (3, 9))


@pytest.mark.parametrize("answers", [False, True])
def test_a_connection_that_was_not_opened_is_closed_all_the_same(
    runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """Or else whichever thread collects it begins a farewell that nobody awaits, and Python complains."""
    made: list[aio_pika.Connection] = []
    begin = aio_pika.Connection.__init__

    def noted(self: aio_pika.Connection, *given: Any, **named: Any) -> None:
        made.append(self)
        begin(self, *given, **named)

    monkeypatch.setattr(aio_pika.Connection, "__init__", noted)

    async def refused() -> None:
        async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        if not answers:
            server.close()
            await server.wait_closed()
        broker = RabbitBroker(f"amqp://guest@127.0.0.1:{port}/", answer=5.0)
        with pytest.raises(BrokerUnavailable):
            await broker.publish([Message("t", "{}")])
        await broker.close()
        server.close()

    runner.run(refused())
    assert made
    assert all(connection.is_closed for connection in made)


LARGE = int(os.environ.get("UMAVEZ_TEST_LARGE_MESSAGES", "24"))


def test_a_slow_answer_to_the_watchdog_is_no_absence(
    broker: RabbitBroker, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks every `watch` seconds and waits `answer` seconds, as behind large messages on a busy line."""

    async def work() -> None:
        subscription: Any = await broker.subscribe("patient", ["t"])
        channel = await subscription._connection.channel()
        declared = channel.declare_queue

        async def late(*words: Any, **named: Any) -> Any:
            await asyncio.sleep(0.5)
            return await declared(*words, **named)

        monkeypatch.setattr(channel, "declare_queue", late)
        await asyncio.sleep(0.25)
        assert await subscription.take(1, 0.05) == []
        await subscription.close()

    runner.run(work())


def test_large_messages_go_out_once_each(postgres_url: str, broker: RabbitBroker, runner: asyncio.Runner) -> None:
    """What is claimed together is bounded in bytes, so that its confirms come in time and nothing is sent again."""
    place = place_of(postgres_url)
    place.empty()
    with closing(place.connect()) as connection:
        for number in range(LARGE):
            Outbox().append(connection, Message("large", f'"{number:03}' + "x" * 5_000_000 + '"'))
            connection.commit()

    async def moved() -> list[str]:
        subscription = await broker.subscribe("reader", ["large"], prefetch=2)
        database = Database(postgres_url)
        relay, stop = Relay(database, broker, RelaySettings(batch=200)), asyncio.Event()
        running = asyncio.create_task(relay.run(stop))
        bodies: list[str] = []
        try:
            async with asyncio.timeout(60 + 4 * LARGE):
                while relay.published < LARGE or len(bodies) < LARGE:
                    for delivery in await subscription.take(2, 0.2):
                        bodies.append(delivery.message.body[1:4])
                        await subscription.finish([delivery])
            bodies += [delivery.message.body[1:4] for delivery in await subscription.take(2, 1.0)]
        finally:
            stop.set()
            await running
            await subscription.close()
            await database.close()
        return bodies

    assert sorted(runner.run(moved())) == [f"{number:03}" for number in range(LARGE)]


async def dead_letters(url: str, topology: Topology, subscriber: str) -> list[str]:
    import aio_pika

    async with await aio_pika.connect(url) as connection, connection.channel() as channel:
        queue = await channel.get_queue(topology.dead_queue(subscriber))
        bodies = []
        async with asyncio.timeout(10):
            while not bodies:
                incoming = await queue.get(fail=False, no_ack=True)
                if incoming is not None:
                    bodies.append(incoming.body.decode())
                else:
                    await asyncio.sleep(0.05)
        return bodies


def test_a_delivery_that_is_given_back_too_often_becomes_a_dead_letter(
    broker: RabbitBroker, rabbitmq_url: str, rabbitmq_prefix: str, runner: asyncio.Runner
) -> None:
    async def work() -> list[str]:
        subscription = await broker.subscribe("mailer", ["t"])
        await broker.publish([Message("t", '"poison"')])
        for _ in range(3):
            await subscription.give_back(await taken(subscription))
        found = await dead_letters(rabbitmq_url, Topology(rabbitmq_prefix), "mailer")
        await subscription.close()
        return found

    assert runner.run(work()) == ['"poison"']


def test_without_a_database_a_failure_goes_to_the_dead_letters_and_not_in_circles(
    broker: RabbitBroker, rabbitmq_url: str, rabbitmq_prefix: str, runner: asyncio.Runner
) -> None:
    async def work() -> list[str]:
        subscription = await broker.subscribe("mailer", ["t"])
        await broker.publish([Message("t", "1")])
        (delivery,) = await taken(subscription)
        await subscription.postpone(delivery, 1, "failed")
        found = await dead_letters(rabbitmq_url, Topology(rabbitmq_prefix), "mailer")
        await subscription.close()
        return found

    assert runner.run(work()) == ["1"]


def test_the_watchdog_notices_a_consumer_that_the_server_does_not_know(
    broker: RabbitBroker, runner: asyncio.Runner
) -> None:
    async def work() -> None:
        subscription: Any = await broker.subscribe("mailer", ["t"])
        await subscription._queue.cancel(subscription._consumer)  # as a faulty reconnect would leave it
        await asyncio.sleep(0.25)
        with pytest.raises(BrokerUnavailable, match="no consumer"):
            await subscription.take(1, 0.1)
        await subscription.close()

    runner.run(work())


def test_a_lost_acknowledgement_is_no_error_and_the_message_comes_again(
    broker: RabbitBroker, runner: asyncio.Runner
) -> None:
    async def work() -> None:
        subscription: Any = await broker.subscribe("mailer", ["t"])
        await broker.publish([Message("t", "1")])
        (delivery,) = await taken(subscription)
        await subscription._connection.close()
        await subscription.finish([delivery])
        with pytest.raises(BrokerUnavailable):
            await subscription.take(1, 0.1)
        again = await broker.subscribe("mailer", ["t"])
        (second,) = await taken(again)
        assert second.message.id == delivery.message.id
        await again.finish([second])
        await again.close()

    runner.run(work())


def test_a_broker_that_is_not_there_is_unavailable_and_its_password_is_not_told(runner: asyncio.Runner) -> None:
    broker = RabbitBroker("amqp://guest:secret@127.0.0.1:1/")
    with pytest.raises(BrokerUnavailable) as told:
        runner.run(broker.publish([Message("t", "1")]))
    assert "secret" not in str(told.value)


def database_of(tmp_path: Path, runner: asyncio.Runner) -> tuple[str, Database]:
    url = f"sqlite:///{tmp_path}/messages.db?journal=delete"
    database = Database(url)
    runner.run(database.migrate())
    return url, database


def test_failures_wait_in_the_database_and_poison_ends_there(
    rabbitmq_url: str, rabbitmq_prefix: str, tmp_path: Path, runner: asyncio.Runner, eventually: Callable[..., None]
) -> None:
    url, database = database_of(tmp_path, runner)
    broker = RabbitBroker(rabbitmq_url, topology=Topology(rabbitmq_prefix), parking=database)
    seen: Counter[str] = Counter()

    async def handle(message: Message) -> None:
        seen[message.body] += 1
        if message.body == "1" and seen["1"] < 3:
            raise ValueError("not yet")
        if message.body == "2":
            raise Poison("never")

    async def send() -> None:
        await (await broker.subscribe("mailer", ["t"])).close()
        await broker.publish([Message("t", str(number)) for number in range(3)])

    runner.run(send())
    consumer = Consumer(
        broker, "mailer", ["t"], handle, ConsumerSettings(wait=0.1, backoff=Backoff(first=0.01, cap=0.02))
    )
    look = "SELECT body, state, error FROM umavez_deliveries ORDER BY body"
    eventually(consumer.run, lambda: [row[1] for row in place_of(url).look(look)] == ["DONE", "DEAD"])
    assert dict(seen) == {"0": 1, "1": 3, "2": 1}
    assert place_of(url).look(look) == [("1", "DONE", None), ("2", "DEAD", "Poison: never")]
    runner.run(broker.close())
    runner.run(database.close())


@pytest.mark.slow
def test_a_broker_killed_under_load_loses_nothing(
    private_server: Callable[[str], Private], tmp_path: Path, runner: asyncio.Runner
) -> None:
    server = private_server("rabbitmq")
    url, database = database_of(tmp_path, runner)
    seen: Counter[str] = Counter()

    async def handle(message: Message) -> None:
        seen[message.id] += 1

    broker = RabbitBroker(server.url, parking=database, watch=0.5, answer=2)
    relay = Relay(database, broker, RelaySettings(batch=20, poll=0.02, outage=OUTAGE))
    consumer = Consumer(broker, "mailer", ["t"], handle, ConsumerSettings(wait=0.2, outage=OUTAGE))

    def append(many: int) -> None:
        with closing(place_of(url).connect()) as connection:
            Outbox().append(connection, [Message("t", str(number)) for number in range(many)])
            connection.commit()

    async def work() -> None:
        stop = asyncio.Event()
        tasks = [asyncio.create_task(part.run(stop)) for part in (relay, consumer)]
        await until(lambda: bool(seen))
        await asyncio.sleep(FORGETFUL)
        append(300)
        await until(lambda: len(seen) > 150)
        await asyncio.to_thread(server.kill)
        append(100)
        await asyncio.to_thread(server.restart)
        await until(lambda: len(seen) == 500)
        stop.set()
        await asyncio.gather(*tasks)
        await broker.close()
        await database.close()

    append(100)
    runner.run(work())
    assert place_of(url).look("SELECT count(*) FROM umavez_outbox WHERE state = 'DONE'") == [(500,)]


async def until(met: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not met():  # noqa: ASYNC110 - counts, seen from outside
            await asyncio.sleep(0.02)


@pytest.fixture
def parking(tmp_path: Path, runner: asyncio.Runner) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path}/parked.db?journal=delete")
    runner.run(database.migrate())
    yield database
    runner.run(database.close())


async def publish_foreign(broker: RabbitBroker, topic: str, body: bytes, name: str, headers: Any = None) -> None:
    channel = await broker._connection.channel()
    exchange = await channel.get_exchange(broker._topology.messages)
    with pytest.MonkeyPatch.context() as patched:
        written = pamqp.encode.encode_table_value
        patched.setattr(
            pamqp.encode,
            "encode_table_value",
            lambda value: value.written if isinstance(value, _Raw) else written(value),
        )
        await exchange.publish(aio_pika.Message(body, message_id=name, headers=headers), topic)


@pytest.mark.parametrize(
    ("body", "name", "reason"),
    [(b"\xff\xfe", "1", "not UTF-8"), (b"1", "ç", "ASCII"), (b"a\0b", "1", "NUL")],
    ids=["not text", "strange id", "NUL"],
)
def test_a_foreign_message_that_cannot_be_read_goes_to_the_dead_letters_with_its_reason(
    broker: RabbitBroker,
    rabbitmq_prefix: str,
    runner: asyncio.Runner,
    body: bytes,
    name: str,
    reason: str,
) -> None:
    async def work() -> None:
        topic = f"{rabbitmq_prefix}t"
        subscription = await broker.subscribe("mailer", [topic])
        await publish_foreign(broker, topic, body, name)
        await broker.publish([Message(topic, "2")])
        (good,) = await taken(subscription)
        assert good.message.body == "2"
        await subscription.finish([good])
        channel = await broker._connection.channel()
        dead = await (await channel.get_queue(broker._topology.dead_queue("mailer"))).get(timeout=5)
        assert (dead.body, reason in str(dead.headers["x-umavez-reason"])) == (body, True)
        await dead.ack()
        await subscription.close()

    runner.run(work())


@pytest.mark.parametrize(
    ("body", "value"),
    [(b"\xff", b"S\0\0\0\2\xff\xfe"), (b"1", b"S\0\0\0\2\xff\xfe"), (b"\xff", b"d" + struct.pack(">d", 1e300))],
    ids=["bytes", "bytes of a failure", "large number"],
)
def test_a_foreign_header_that_is_read_and_cannot_be_written_stops_nobody(
    broker: RabbitBroker, rabbitmq_prefix: str, runner: asyncio.Runner, body: bytes, value: bytes
) -> None:
    topic, handled = f"{rabbitmq_prefix}t", list[str]()

    async def handle(message: Message) -> None:
        if message.headers:
            raise Poison("no")
        handled.append(message.body)

    async def work() -> bytes:
        await (await broker.subscribe("mailer", [topic])).close()
        await publish_foreign(broker, topic, body, "1", {"n": _Raw(value)})
        await broker.publish([Message(topic, "2")])
        stop = asyncio.Event()
        running = asyncio.create_task(Consumer(broker, "mailer", [topic], handle).run(stop))
        channel = await broker._connection.channel()
        dead = await channel.get_queue(broker._topology.dead_queue("mailer"))
        async with asyncio.timeout(10):
            while not handled or (found := await dead.get(fail=False, no_ack=True)) is None:
                assert not running.done(), running.exception()
                await asyncio.sleep(0.05)
        stop.set()
        await running
        return found.body

    assert runner.run(work()) == body
    assert handled == ["2"]


def test_rows_that_were_claimed_are_handed_out_though_the_broker_goes_away(
    rabbitmq_url: str,
    rabbitmq_prefix: str,
    parking: Database,
    runner: asyncio.Runner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Let go, they would wait for a minute, and an attempt that nobody began would count."""
    topic = f"{rabbitmq_prefix}t"

    async def away(*_: object) -> None:
        raise BrokerUnavailable("gone")

    async def work() -> None:
        broker = RabbitBroker(rabbitmq_url, topology=Topology(rabbitmq_prefix), parking=parking)
        subscription: Any = await broker.subscribe("mailer", [topic])
        await broker.publish([Message(topic, "1")])
        (delivery,) = await taken(subscription)
        await subscription.postpone(delivery, 0.0, "not now")
        await publish_foreign(broker, topic, b"\xff", "2")
        async with asyncio.timeout(10):
            while not subscription._arrived:  # noqa: ASYNC110 - filled by the client
                await asyncio.sleep(0.01)
        monkeypatch.setattr(subscription, "_dead_letter", away)
        subscription._looked_at = 0.0
        (again,) = await subscription.take(5, 0.2)
        assert (again.message.body, again.attempts) == ("1", 2)
        with pytest.raises(BrokerUnavailable, match="gone"):
            await subscription.take(5, 0.2)
        monkeypatch.undo()
        await subscription.finish([again])
        await subscription.close()
        await broker.close()

    runner.run(work())


class _Raw(dict[str, Any]):
    """A value of a header as somebody else's client wrote it."""

    def __init__(self, written: bytes) -> None:
        self.written = written


def test_what_was_prefetched_beside_a_killer_is_not_counted_to_death(
    rabbitmq_url: str, rabbitmq_prefix: str, parking: Database, runner: asyncio.Runner
) -> None:
    topology = Topology(rabbitmq_prefix, delivery_limit=12)
    topic = f"{rabbitmq_prefix}t"

    async def work() -> None:
        broker = RabbitBroker(rabbitmq_url, topology=topology, parking=parking)
        await (await broker.subscribe("mailer", [topic])).close()
        await broker.publish([Message(topic, str(number)) for number in range(6)])
        for _ in range(8):  # a consumer that dies with everything it prefetched
            subscription = await broker.subscribe("mailer", [topic])
            async with asyncio.timeout(5):
                while not await subscription.take(1, 0.2):
                    pass
            await subscription._connection.close()
            await parking.run(_lapsed)
        subscription = await broker.subscribe("mailer", [topic])
        found = await taken(subscription, 6)
        assert sorted(delivery.message.body for delivery in found) == [str(number) for number in range(6)]
        attempts = sorted(delivery.attempts for delivery in found)
        assert sum(attempts) <= 8 + 6 + 6, f"attempts that nobody began were counted: {attempts}"
        await subscription.finish(found)
        await subscription.close()
        await broker.close()

    runner.run(work())


def _lapsed() -> SqlFlow[int]:
    return (yield Write("UPDATE umavez_deliveries SET due_at = 0"))


def test_the_order_of_an_aggregate_survives_parallel_handlers_and_a_failure(
    rabbitmq_url: str, rabbitmq_prefix: str, parking: Database, runner: asyncio.Runner, eventually: Callable[..., Any]
) -> None:
    topic = f"{rabbitmq_prefix}t"
    broker = RabbitBroker(rabbitmq_url, topology=Topology(rabbitmq_prefix), parking=parking)
    seen: list[tuple[int, int]] = []
    failed: set[int] = set()

    async def handle(message: Message) -> None:
        aggregate, number = message.payload
        await asyncio.sleep(0.004 * ((number * 7) % 3))
        if number == 5 and aggregate not in failed:
            failed.add(aggregate)
            raise ValueError("once")
        seen.append((aggregate, number))

    async def publish() -> None:
        await (await broker.subscribe("mailer", [topic])).close()
        await broker.publish(
            [Message(topic, f"[{number % 3},{number // 3}]", aggregate=str(number % 3)) for number in range(90)]
        )

    runner.run(publish())
    settings = ConsumerSettings(wait=0.05, backoff=Backoff(first=0.05, cap=0.1))
    consumer = Consumer(broker, "mailer", [topic], handle, settings)
    eventually(consumer.run, lambda: consumer.handled >= 90)
    for aggregate in range(3):
        assert [number for name, number in seen if name == aggregate] == list(range(30))
    runner.run(broker.close())
