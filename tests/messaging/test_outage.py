"""A database that is away for a while costs no message an attempt, whatever carries the messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from tests.messaging.places import Place, place_of
from umavez import OperationInProgress, StoreUnavailable, StoreUncertain
from umavez.core.key import Key
from umavez.messaging import Backoff, Broker, Consumer, ConsumerSettings, Database, Message
from umavez.messaging.excuses import KEPT, LIMIT, Excuses, is_outage
from umavez.messaging.local import LocalBroker
from umavez.messaging.rabbitmq import RabbitBroker, Topology
from umavez.sql.flow import SqlFlow

QUICK = ConsumerSettings(
    parallel=4, wait=0.05, drain=5, backoff=Backoff(first=0.01, cap=0.02, limit=2), outage=Backoff(first=0.01, cap=0.05)
)


class Leaving(Database):
    """A database that can be away: nothing is asked of it then."""

    away = False

    async def tried(self, flow: SqlFlow[Any], *, atomic: bool = True) -> Any:
        if self.away:
            raise StoreUnavailable("The database cannot be reached.")
        return await super().tried(flow, atomic=atomic)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = place_of(f"sqlite:///{tmp_path}/messages.db?journal=delete")
    place.empty()
    return place


@pytest.fixture
def leaving(place: Place, runner: asyncio.Runner) -> Iterator[Leaving]:
    database = Leaving(place.url)
    yield database
    runner.run(database.close())


@pytest.fixture(params=["local", "rabbitmq"])
def carrier(request: pytest.FixtureRequest, leaving: Leaving, runner: asyncio.Runner) -> Iterator[Broker]:
    if request.param == "local":
        yield LocalBroker(leaving, poll=0.02)
        return
    url, prefix = request.getfixturevalue("rabbitmq_url"), request.getfixturevalue("rabbitmq_prefix")
    broker = RabbitBroker(url, topology=Topology(prefix, delivery_limit=3), parking=leaving)
    yield broker
    runner.run(broker.close())


def rows(place: Place) -> list[tuple[Any, ...]]:
    with closing(place.connect()) as connection:
        return list(connection.execute("SELECT body, state, attempts, error FROM umavez_deliveries"))


async def _published(carrier: Broker, messages: list[Message]) -> None:
    subscription = await carrier.subscribe("mailer", ["t"])
    await subscription.close()
    assert list(await carrier.publish(messages)) == [None] * len(messages)


@pytest.mark.parametrize("own", [True, False], ids=["the store's word", "the driver's word"])
def test_an_outage_longer_than_all_attempts_buries_nothing(
    carrier: Broker,
    leaving: Leaving,
    place: Place,
    eventually: Callable[..., Any],
    own: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two attempts of each are allowed; ten or more fail. Messages of one aggregate keep their order all the while."""
    failed: list[str] = []
    done: list[str] = []

    async def handle(message: Message) -> None:
        if leaving.away or len(failed) < 10:
            failed.append(message.body)
            if len(failed) == 3:
                leaving.away = True
                asyncio.get_running_loop().call_later(0.3, setattr, leaving, "away", False)
            raise StoreUnavailable("away") if own else psycopg.OperationalError("server closed the connection")
        done.append(message.body)

    bodies = [str(number) for number in range(6)]

    async def work(stop: asyncio.Event) -> None:
        messages = [Message("t", body, aggregate="a" if int(body) < 4 else None) for body in bodies]
        await _published(carrier, messages)
        await Consumer(carrier, "mailer", ["t"], handle, QUICK).run(stop)

    eventually(work, lambda: len(set(done)) == len(bodies))
    assert sorted(set(done)) == bodies
    in_order = [body for body in done if int(body) < 4]
    assert in_order == sorted(in_order)
    assert not [row for row in rows(place) if row[1] == "DEAD"]
    said = [record for record in caplog.records if "the database is away" in record.getMessage()]
    assert said
    assert not [record for record in said if record.exc_info], "an outage says the same for every message"


def test_what_was_handled_while_the_database_left_is_marked_when_it_is_back(
    leaving: Leaving, place: Place, eventually: Callable[..., Any]
) -> None:
    handled: list[str] = []
    carrier = LocalBroker(leaving, poll=0.02, lease=60)

    async def handle(message: Message) -> None:
        handled.append(message.body)
        leaving.away = True
        asyncio.get_running_loop().call_later(0.2, setattr, leaving, "away", False)

    async def work(stop: asyncio.Event) -> None:
        await _published(carrier, [Message("t", "1")])
        await Consumer(carrier, "mailer", ["t"], handle, QUICK).run(stop)

    eventually(work, lambda: [row[1] for row in rows(place)] == ["DONE"])
    assert handled == ["1"]


def test_a_message_that_the_store_always_refuses_is_buried_in_the_end(
    leaving: Leaving, place: Place, eventually: Callable[..., Any]
) -> None:
    """The store is there; only this message makes it fail."""
    calls: list[str] = []
    carrier = LocalBroker(leaving, poll=0.01)

    async def handle(message: Message) -> None:
        calls.append(message.body)
        raise StoreUnavailable("It refused the statement.")

    async def work(stop: asyncio.Event) -> None:
        await _published(carrier, [Message("t", "1")])
        await Consumer(carrier, "mailer", ["t"], handle, QUICK).run(stop)

    eventually(work, lambda: [row[1] for row in rows(place)] == ["DEAD"])
    assert len(calls) == LIMIT + QUICK.backoff.limit


@pytest.mark.parametrize(
    ("error", "outage"),
    [
        (StoreUnavailable("away"), True),
        (StoreUncertain("lost"), True),
        (OperationInProgress(Key("s", "o", "k"), 1), False),
        (psycopg.OperationalError("server closed the connection unexpectedly"), True),
        (psycopg.errors.AdminShutdown("terminating connection"), True),
        (psycopg.errors.ReadOnlySqlTransaction("a standby"), True),
        (psycopg.errors.UniqueViolation("twice"), False),
        (psycopg.errors.DeadlockDetected("deadlock"), False),
        (pymysql.err.OperationalError(2013, "Lost connection"), True),
        (pymysql.err.OperationalError(1213, "Deadlock"), False),
        (pymysql.err.IntegrityError(1062, "twice"), False),
        (ValueError("mine"), False),
        (OSError("no such host"), False),
    ],
    ids=repr,
)
def test_which_failures_are_an_outage_s(error: BaseException, outage: bool) -> None:
    assert is_outage(error) is outage


def test_excuses_are_bounded_and_end_with_a_success() -> None:
    excuses = Excuses()
    assert [excuses.excuse("m", StoreUnavailable()) for _ in range(LIMIT + 2)] == [*range(1, LIMIT + 1), 0, 0]
    excuses.forget("m")
    assert excuses.excuse("m", StoreUnavailable()) == 1
    assert excuses.excuse("m", ValueError()) == 0
    assert excuses.excuse("m", StoreUnavailable()) == 1
    for number in range(KEPT + 5):
        excuses.excuse(str(number), StoreUnavailable())
    assert len(excuses._given) == KEPT
