"""The relay: nothing is lost, refusals wait and die, outages are nobody's fault, late commits are seen."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.messaging.places import Place, place_of
from umavez.messaging import (
    Backoff,
    BrokerUnavailable,
    Database,
    LocalBroker,
    Message,
    Outbox,
    Relay,
    RelaySettings,
)
from umavez.testing import ManualClock

QUICK = RelaySettings(poll=0.01, backoff=Backoff(first=10, limit=3), outage=Backoff(first=0.01, cap=0.02))


class Wire:
    """A broker that keeps what it is given and answers as told."""

    def __init__(self) -> None:
        self.got: list[Message] = []
        self.answers: dict[str, str] = {}
        self.away = 0

    async def publish(self, messages: Sequence[Message]) -> Sequence[str | None]:
        if self.away:
            self.away -= 1
            raise BrokerUnavailable("away")
        self.got += messages
        return [self.answers.get(message.body) for message in messages]

    async def subscribe(self, *_: object, **__: object):
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""


def append(place: Place, *messages: Message) -> None:
    with closing(place.connect()) as connection:
        Outbox().append(connection, messages)
        connection.commit()


def states(place: Place) -> dict[str, int]:
    return dict(place.look("SELECT state, count(*) FROM umavez_outbox GROUP BY state"))


def test_every_message_is_published_once_and_marked(place: Place, database: Database, runner: asyncio.Runner) -> None:
    append(place, *(Message("t", str(number)) for number in range(25)))
    wire = Wire()
    relay = Relay(database, wire, RelaySettings(batch=10))
    assert [runner.run(relay.step()) for _ in range(4)] == [10, 10, 5, 0]
    assert sorted(int(message.body) for message in wire.got) == list(range(25))
    assert (states(place), relay.published) == ({"DONE": 25}, 25)


def test_a_refused_message_waits_and_dies_with_its_reason_while_others_flow(
    place: Place, database: Database, clock: ManualClock, runner: asyncio.Runner
) -> None:
    append(place, Message("t", "1"), Message("t", "2"))
    wire = Wire()
    wire.answers = {"1": "no queue"}
    relay = Relay(database, wire, QUICK)
    for _ in range(3):
        runner.run(relay.step())
        assert runner.run(relay.step()) == 0, "a refused message came again without a pause"
        clock.advance(60)
    assert runner.run(relay.step()) == 0
    assert states(place) == {"DEAD": 1, "DONE": 1}
    ((reason,),) = place.look("SELECT error FROM umavez_outbox WHERE state = 'DEAD'")
    assert reason == "Refused 3 times, at last: no queue"


def test_an_outage_of_the_broker_costs_a_message_no_attempt(
    place: Place, database: Database, runner: asyncio.Runner
) -> None:
    append(place, Message("t", "1"))
    wire = Wire()
    wire.away = 10
    relay = Relay(database, wire, QUICK)
    for _ in range(10):
        with pytest.raises(BrokerUnavailable):
            runner.run(relay.step())
    runner.run(relay.step())
    assert place.look("SELECT attempts, state FROM umavez_outbox") == [(1, "DONE")]


def test_a_running_relay_waits_out_an_outage_and_stops_when_told(place: Place, database: Database, eventually) -> None:
    append(place, *(Message("t", str(number)) for number in range(5)))
    wire = Wire()
    wire.away = 6
    relay = Relay(database, wire, QUICK)
    eventually(relay.run, lambda: relay.published == 5)
    assert states(place) == {"DONE": 5}


def test_the_order_of_an_aggregate_survives_two_relays(
    place: Place, database: Database, runner: asyncio.Runner, eventually
) -> None:
    append(place, *(Message("t", f"[{number % 3},{number}]", aggregate=str(number % 3)) for number in range(30)))
    wire = Wire()
    one, two = Relay(database, wire, QUICK), Relay(database, wire, QUICK)

    async def both(stop: asyncio.Event) -> None:
        await asyncio.gather(one.run(stop), two.run(stop))

    eventually(both, lambda: one.published + two.published == 30)
    for aggregate in range(3):
        numbers = [message.payload[1] for message in wire.got if message.payload[0] == aggregate]
        assert numbers == sorted(numbers)
    assert len(wire.got) == 30


def test_writers_that_commit_late_are_not_skipped(place: Place, database: Database, eventually) -> None:
    seed = random.randrange(2**32)
    writers = 1 if place.kind == "sqlite" else 8

    def write(index: int) -> None:
        chance = random.Random(seed + index)
        with closing(place.connect()) as connection:
            for number in range(10):
                Outbox().append(connection, Message("t", f"[{index},{number}]"))
                time.sleep(chance.random() * 0.02)  # the row has its seq and is not yet committed
                connection.commit()

    threads = [threading.Thread(target=write, args=(index,)) for index in range(writers)]
    wire = Wire()
    relay = Relay(database, wire, QUICK)

    async def work(stop: asyncio.Event) -> None:
        for thread in threads:
            thread.start()
        await relay.run(stop)

    eventually(work, lambda: relay.published == writers * 10)
    for thread in threads:
        thread.join()
    assert len({message.id for message in wire.got}) == len(wire.got) == writers * 10


def test_published_rows_are_cleaned_away_when_they_are_old(
    place: Place, database: Database, clock: ManualClock, runner: asyncio.Runner
) -> None:
    append(place, *(Message("t", str(number)) for number in range(25)))
    relay = Relay(database, Wire(), RelaySettings(keep=60))
    runner.run(relay.step())
    assert runner.run(relay.clean(10)) == 0
    clock.advance(61)
    assert runner.run(relay.clean(10)) == 25
    assert states(place) == {}


def test_a_message_for_nobody_waits_until_somebody_subscribes(
    place: Place, database: Database, clock: ManualClock, runner: asyncio.Runner
) -> None:
    async def work() -> None:
        broker = LocalBroker(database)
        relay = Relay(database, broker)
        await relay.step()
        subscription = await broker.subscribe("mailer", ["t"])
        clock.advance(10)
        await relay.step()
        assert [delivery.message.body for delivery in await subscription.take(10, 0)] == ["1"]

    append(place, Message("t", "1"))
    runner.run(work())


def test_a_relay_that_is_cancelled_gives_its_claim_back(
    place: Place, database: Database, runner: asyncio.Runner
) -> None:
    asked = asyncio.Event()

    class Slow(Wire):
        async def publish(self, messages: Sequence[Message]) -> Sequence[str | None]:
            asked.set()
            await asyncio.sleep(60)
            return []

    async def work() -> None:
        task = asyncio.create_task(Relay(database, Slow()).step())
        await asked.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    append(place, Message("t", "1"))
    runner.run(work())
    assert place.look("SELECT attempts FROM umavez_outbox WHERE token IS NULL") == [(0,)]


def test_a_relay_on_sqlite_never_holds_the_file_while_the_loop_is_busy(tmp_path: Path, runner: asyncio.Runner) -> None:
    place = place_of(f"sqlite:///{tmp_path}/busy.db?journal=delete")
    place.empty()
    database = Database(place.url)

    async def work() -> None:
        tasks = [asyncio.create_task(Relay(database, Wire()).step()) for _ in range(3)]
        with closing(place.connect()) as connection:
            for _ in range(20):
                # Sync code on the loop, as in a handler: it would wait for a transaction that waits for the loop.
                Outbox().append(connection, Message("t", "1"))
                connection.commit()
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        await database.close()

    began = time.monotonic()
    runner.run(work())
    assert time.monotonic() - began < 15
