"""Consumers and inboxes: each message takes effect once, failures wait in the database, poison is put aside."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing

import pytest

from tests.messaging.places import Place
from umavez import AsyncOnce, Once
from umavez.messaging import (
    AsyncInbox,
    Backoff,
    Consumer,
    ConsumerSettings,
    Database,
    Inbox,
    LocalBroker,
    Message,
    Poison,
)
from umavez.sql.connection import async_close

QUICK = ConsumerSettings(wait=0.05, backoff=Backoff(first=0.01, cap=0.02, limit=3))


@pytest.fixture
def clock() -> None:
    """These tests let real time pass: their pauses are milliseconds."""


@pytest.fixture
def database(place: Place, runner: asyncio.Runner):
    database = Database(place.url)
    yield database
    runner.run(database.close())


def deliver(database: Database, runner: asyncio.Runner, count: int) -> LocalBroker:
    async def work() -> LocalBroker:
        broker = LocalBroker(database, poll=0.02)
        await broker.subscribe("mailer", ["t"])
        await broker.publish([Message("t", str(number)) for number in range(count)])
        return broker

    return runner.run(work())


def states(place: Place) -> dict[str, int]:
    return dict(place.look("SELECT state, count(*) FROM umavez_deliveries GROUP BY state"))


def test_every_delivery_is_handled_and_marked_in_groups(
    place: Place, database: Database, runner: asyncio.Runner, eventually
) -> None:
    broker = deliver(database, runner, 40)
    seen: Counter[str] = Counter()

    async def handle(message: Message) -> None:
        seen[message.body] += 1

    consumer = Consumer(broker, "mailer", ["t"], handle, QUICK)
    eventually(consumer.run, lambda: consumer.handled == 40)
    assert (set(seen.values()), len(seen)) == ({1}, 40)
    assert states(place) == {"DONE": 40}


def test_a_failing_handler_is_tried_again_and_then_buried_with_its_reason(
    place: Place, database: Database, runner: asyncio.Runner, eventually
) -> None:
    broker = deliver(database, runner, 3)
    seen: Counter[str] = Counter()

    async def handle(message: Message) -> None:
        seen[message.body] += 1
        if message.body == "0":
            raise ValueError("always")
        if message.body == "1" and seen["1"] == 1:
            raise ValueError("once")

    consumer = Consumer(broker, "mailer", ["t"], handle, QUICK)
    eventually(consumer.run, lambda: consumer.handled == 2 and states(place).get("DEAD") == 1)
    assert dict(seen) == {"0": 3, "1": 2, "2": 1}
    assert place.look("SELECT error FROM umavez_deliveries WHERE state = 'DEAD'") == [("ValueError: always",)]


def test_an_error_that_cannot_be_shown_is_a_failure_like_any_other(
    place: Place, database: Database, runner: asyncio.Runner, eventually
) -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    broker = deliver(database, runner, 2)

    async def handle(message: Message) -> None:
        if message.body == "0":
            raise Unspeakable

    consumer = Consumer(broker, "mailer", ["t"], handle, QUICK)
    eventually(consumer.run, lambda: states(place) == {"DONE": 1, "DEAD": 1})
    ((reason,),) = place.look("SELECT error FROM umavez_deliveries WHERE state = 'DEAD'")
    assert reason == "Unspeakable: a Unspeakable that cannot be shown (RuntimeError)"


def test_poison_is_buried_at_once(place: Place, database: Database, runner: asyncio.Runner, eventually) -> None:
    broker = deliver(database, runner, 1)
    seen: list[str] = []

    async def handle(message: Message) -> None:
        seen.append(message.body)
        raise Poison("no such order")

    consumer = Consumer(broker, "mailer", ["t"], handle, QUICK)
    eventually(consumer.run, lambda: states(place) == {"DEAD": 1})
    assert seen == ["0"]


def test_a_delivery_that_killed_its_consumer_too_often_is_not_tried_again(
    place: Place, database: Database, runner: asyncio.Runner, eventually
) -> None:
    broker = deliver(database, runner, 1)
    with closing(place.connect()) as connection:
        place.run(connection, "UPDATE umavez_deliveries SET attempts = 3")
        connection.commit()

    async def handle(message: Message) -> None:
        raise AssertionError("handled")

    consumer = Consumer(broker, "mailer", ["t"], handle, QUICK)
    eventually(consumer.run, lambda: states(place) == {"DEAD": 1})
    ((reason,),) = place.look("SELECT error FROM umavez_deliveries")
    assert "without an answer" in reason


def test_a_stopping_consumer_lets_its_handlers_end(place: Place, database: Database, runner: asyncio.Runner) -> None:
    broker = deliver(database, runner, 1)

    async def work() -> None:
        stop = asyncio.Event()

        async def handle(message: Message) -> None:
            stop.set()
            await asyncio.sleep(0.1)

        await Consumer(broker, "mailer", ["t"], handle, QUICK).run(stop)

    runner.run(work())
    assert states(place) == {"DONE": 1}


def effects(place: Place) -> None:
    with closing(place.connect()) as connection:
        place.run(connection, "DROP TABLE IF EXISTS effects")
        place.run(connection, "CREATE TABLE effects (body VARCHAR(99))")
        connection.commit()


def count(place: Place) -> int:
    return int(place.look("SELECT count(*) FROM effects")[0][0])


def test_an_inbox_runs_the_effect_once_and_commits_it_with_the_mark(place: Place) -> None:
    effects(place)
    message = Message("t", "1")
    with closing(Once(place.url, scope="app")) as once, closing(place.connect()) as connection:
        once.migrate()
        inbox = Inbox(once, "mailer")

        def effect(message: Message) -> None:
            place.run(connection, "INSERT INTO effects VALUES (?)", message.body)

        assert inbox.handle(connection, message, effect)
        connection.rollback()
        assert count(place) == 0
        assert inbox.handle(connection, message, effect), "a rolled back mark counted"
        connection.commit()
        assert not inbox.handle(connection, message, effect)
        connection.commit()
        assert Inbox(once, "billing").handle(connection, message, effect), "consumers share a mark"
        connection.rollback()
    assert count(place) == 1


def test_an_awaited_inbox_does_the_same(place: Place, runner: asyncio.Runner) -> None:
    effects(place)
    message = Message("t", "1")

    async def work() -> list[bool]:
        once = AsyncOnce(place.url, scope="app")
        await once.migrate()
        connection = await place.connect_async()
        inbox = AsyncInbox(once, "mailer")

        async def effect(message: Message) -> None:
            cursor = connection.cursor()
            cursor = await cursor if hasattr(cursor, "__await__") else cursor
            await cursor.execute("INSERT INTO effects VALUES ('1')")

        told = []
        for _ in range(3):
            told.append(await inbox.handle(connection, message, effect))
            await connection.commit()
        await async_close(connection)
        await once.close()
        return told

    assert runner.run(work()) == [True, False, False]
    assert count(place) == 1


def test_an_inbox_without_a_transaction_runs_the_effect_once() -> None:
    once = Once("memory:", scope="app")
    seen: list[str] = []
    inbox = Inbox(once, "mailer")
    message = Message("t", "1")
    assert inbox.attempt(message, lambda m: seen.append(m.body), unknown="hold")
    assert not inbox.attempt(message, lambda m: seen.append(m.body), unknown="hold")
    assert seen == ["1"]


def test_the_deliveries_of_an_aggregate_are_handled_one_after_the_other(
    place: Place, database: Database, runner: asyncio.Runner, eventually
) -> None:
    async def publish() -> LocalBroker:
        broker = LocalBroker(database, poll=0.02)
        await broker.subscribe("mailer", ["t"])
        await broker.publish([Message("t", str(number), aggregate=str(number % 2)) for number in range(20)])
        return broker

    seen: list[int] = []

    async def handle(message: Message) -> None:
        await asyncio.sleep(0.01 if int(message.body) % 3 else 0)
        seen.append(int(message.body))
        if message.body == "4" and seen.count(4) == 1:
            raise ValueError("once")

    consumer = Consumer(runner.run(publish()), "mailer", ["t"], handle, QUICK)
    eventually(consumer.run, lambda: consumer.handled == 20)
    seen.remove(4)
    for rest in (0, 1):
        numbers = [number for number in seen if number % 2 == rest]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_stop_is_honoured_though_every_handler_hangs(
    place: Place, database: Database, runner: asyncio.Runner
) -> None:
    broker = deliver(database, runner, 5)

    async def handle(_: Message) -> None:
        await asyncio.sleep(3600)

    async def work() -> float:
        settings = ConsumerSettings(parallel=2, wait=0.05, drain=0.1)
        stop = asyncio.Event()
        consumer = Consumer(broker, "mailer", ["t"], handle, settings)
        task = asyncio.create_task(consumer.run(stop))
        while len(consumer._running) < 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        stop.set()
        async with asyncio.timeout(10):
            await task
        return asyncio.get_running_loop().time() - began

    assert runner.run(work()) < 5


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_handler_that_takes_too_long_has_failed(
    place: Place, database: Database, runner: asyncio.Runner, eventually
) -> None:
    broker = deliver(database, runner, 1)

    async def handle(_: Message) -> None:
        await asyncio.sleep(3600)

    settings = ConsumerSettings(timeout=0.05, wait=0.05, backoff=Backoff(first=0.01, cap=0.02, limit=2))
    eventually(Consumer(broker, "mailer", ["t"], handle, settings).run, lambda: states(place) == {"DEAD": 1})
    assert place.look("SELECT error FROM umavez_deliveries")[0][0].startswith("TimeoutError")


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize("leak", ["raised", "asked for"])
def test_a_cancellation_that_leaks_from_a_handler_is_a_failure_like_any_other(
    place: Place, database: Database, runner: asyncio.Runner, eventually, leak: str
) -> None:
    broker = deliver(database, runner, 30)
    seen: Counter[str] = Counter()

    async def handle(message: Message) -> None:
        seen[message.body] += 1
        if seen[message.body] > 1:
            return
        if leak == "raised":
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    consumer = Consumer(broker, "mailer", ["t"], handle, QUICK)
    eventually(consumer.run, lambda: consumer.handled == 30)
    assert states(place) == {"DONE": 30}
