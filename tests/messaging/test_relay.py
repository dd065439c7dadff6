"""The relay: nothing is lost, refusals wait and die, outages are nobody's fault, late commits are seen."""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import psycopg
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
from umavez.messaging.connections import ServerConnection
from umavez.messaging.tables.backlog import Backlog
from umavez.messaging.tables.claiming import MAX_BYTES, PAGES
from umavez.messaging.wakeups import WAKEUPS
from umavez.sql.connection import Dialect, Sql
from umavez.sql.flow import carry
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


@pytest.mark.parametrize("aggregate", [None, "a"])
def test_large_messages_go_out_some_at_a_time_and_a_cut_repeats_only_those(
    place: Place, database: Database, runner: asyncio.Runner, aggregate: str | None
) -> None:
    """What is claimed together is bounded in bytes, not in characters and not in rows alone."""
    many, body = 40, "é" * 500_000
    for _ in range(4):
        append(place, *(Message("t", body, aggregate=aggregate) for _ in range(many // 4)))
    sent: list[int] = []

    class Narrow(Wire):
        async def publish(self, messages: Sequence[Message]) -> Sequence[str | None]:
            sent.append(sum(len(message.body.encode()) for message in messages))
            if len(sent) == 2:
                raise BrokerUnavailable("cut after the last byte, before the first confirm")
            return await super().publish(messages)

    wire = Narrow()
    relay = Relay(database, wire, RelaySettings(outage=Backoff(first=0, cap=0)))
    while states(place) != {"DONE": many}:
        assert len(sent) < 20
        with suppress(BrokerUnavailable):
            runner.run(relay.step())
    assert len(wire.got) == len({message.id for message in wire.got}) == many
    assert max(sent) <= MAX_BYTES
    assert sum(sent) <= many * 1_000_000 + MAX_BYTES, "no more than one claim went out twice"


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


def test_the_lag_is_the_age_of_the_oldest_message_that_is_due(
    place: Place, database: Database, clock: ManualClock, runner: asyncio.Runner
) -> None:
    relay = Relay(database, Wire())
    assert runner.run(relay.lag()) == (0, 0)
    append(place, Message("t", "1"), Message("t", "2"))
    append(place, Message("t", "3", available_at=datetime.now(UTC) + timedelta(hours=1)))
    lag = runner.run(relay.lag())
    assert lag.waiting == 2
    assert 0 <= lag.seconds < 60
    runner.run(relay.step())
    assert runner.run(relay.lag()) == (0, 0)


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


@pytest.mark.parametrize("hinted", ["by the process", "by the database"])
def test_a_message_goes_out_long_before_the_next_look(
    place: Place, database: Database, runner: asyncio.Runner, hinted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if hinted == "by the database":
        if place.kind != "postgresql":
            pytest.skip("only PostgreSQL tells of commits")
        monkeypatch.setattr(WAKEUPS, "hint", lambda: None)

    async def work() -> None:
        wire, stop = Wire(), asyncio.Event()
        relay = Relay(database, wire, RelaySettings(poll=60))
        task = asyncio.create_task(relay.run(stop))
        await asyncio.sleep(0.3)  # it has looked and found nothing
        await asyncio.to_thread(append, place, Message("t", "1"))
        async with asyncio.timeout(10):
            while relay.published < 1:  # noqa: ASYNC110 - the relay tells nobody
                await asyncio.sleep(0.005)
        stop.set()
        async with asyncio.timeout(10):
            await task

    runner.run(work())


class Counted:
    """Statements as they go to the server."""

    def __init__(self, sql: Any) -> None:
        self._sql = sql
        self.texts: list[str] = []

    async def rows(self, text: str, values: Sequence[Any] = ()) -> Any:
        self.texts.append(text)
        return await self._sql.rows(text, values)

    async def count(self, text: str, values: Sequence[Any] = ()) -> Any:
        self.texts.append(text)
        return await self._sql.count(text, values)


@pytest.mark.parametrize(("place", "most"), [("postgres", 2), ("mariadb", 5)], indirect=["place"])
def test_a_look_is_one_statement_and_a_claim_few(
    place: Place, database: Database, runner: asyncio.Runner, most: int
) -> None:
    """Each is a round trip between the commit and the delivery; a look that finds nothing begins nothing."""
    backlog = Backlog(database.dialect)

    async def claim() -> tuple[list[str], int]:
        async with database._connection() as connection:
            counted = Counted(cast("ServerConnection", connection)._sql)
            connection._sql = counted  # type: ignore[attr-defined]  # of a ServerConnection
            rows = await connection.carry(backlog.claim(10, 1000, "t"), atomic=True)
            connection._sql = counted._sql  # type: ignore[attr-defined]  # the same
            return counted.texts, len(rows)

    assert [len(runner.run(claim())[0]), runner.run(claim())[1]] == [1, 0]
    append(place, Message("t", "1"), Message("t", "2", aggregate="a"))
    texts, claimed = runner.run(claim())
    assert claimed == 2
    assert len(texts) <= most + 1, texts  # one more, which asks for the front of the aggregate
    assert runner.run(claim())[1] == 0


@pytest.mark.parametrize("place", ["postgres", "mariadb"], indirect=True)
def test_the_database_as_a_broker_takes_a_message_in_two_statements(
    database: Database, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wants it, and the rows for them; large ones go in several statements and one transaction."""
    broker = LocalBroker(database)

    async def publish(*bodies: str) -> list[str]:
        await broker.subscribe("s", ["t"])
        async with database._connection() as connection:
            counted = Counted(cast("ServerConnection", connection)._sql)
            flow = broker._published([Message("t", body) for body in bodies])
            connection._sql = counted  # type: ignore[attr-defined]  # of a ServerConnection
            assert await connection.carry(flow, atomic=True) == [None] * len(bodies)
            connection._sql = counted._sql  # type: ignore[attr-defined]  # the same
            return [text.split()[0] for text in counted.texts]

    assert runner.run(publish("1", "2")) == ["SELECT", "INSERT"]
    monkeypatch.setattr("umavez.messaging.local.STATEMENT", 1)
    assert runner.run(publish("3", "4")) == ["SELECT", "BEGIN", "INSERT", "INSERT", "COMMIT"]


def test_one_lane_looks_at_a_time(place: Place, database: Database, eventually: Callable[..., Any]) -> None:
    """Lanes that look together are in each other's way, and the first to find something waits for the others."""
    looking, most = 0, 0

    class Watched(Relay):
        async def _claim(self) -> Any:
            nonlocal looking, most
            looking += 1
            most = max(most, looking)
            try:
                return await super()._claim()
            finally:
                looking -= 1

    append(place, *(Message("t", str(number)) for number in range(30)))
    relay = Watched(database, Wire(), RelaySettings(lanes=4, batch=3, poll=0.005))
    eventually(relay.run, lambda: relay.published == 30)
    assert most == 1


def test_no_pause_between_looks_sleeps_through_a_hint(
    database: Database, eventually: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint of this process comes before the commit; that of the commit itself must still be heard."""
    pauses: list[tuple[asyncio.Event, float]] = []
    stops: list[asyncio.Event] = []

    async def paused(event: asyncio.Event, seconds: float) -> None:
        pauses.append((event, seconds))
        WAKEUPS.hint()
        await asyncio.sleep(0)

    async def run(stop: asyncio.Event) -> None:
        stops.append(stop)
        await Relay(database, Wire(), RelaySettings(lanes=1, clean_every=60)).run(stop)

    monkeypatch.setattr("umavez.messaging.relay.paused", paused)
    eventually(run, lambda: len({seconds for _, seconds in pauses}) > 4)
    looks = [event for event, seconds in pauses if seconds < 1]
    assert looks
    assert not [event for event in looks if event in stops]


def test_a_look_in_vain_beside_a_batch_that_is_out_is_short(tmp_path: Path) -> None:
    """All that waits may wait for that batch; looking through it again and again took longer than moving it."""
    place = place_of(f"sqlite:///{tmp_path}/ordered.db")
    place.empty()
    append(place, *(Message("t", str(number), aggregate=f"a{number % 3}") for number in range(2000)))
    texts: list[str] = []

    class Told(Sql):
        def rows(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
            texts.append(text)
            return super().rows(text, values)

    with closing(place.connect()) as connection:
        sql, backlog = Told(connection), Backlog(Dialect.SQLITE)
        assert len(carry(backlog.claim(9, 60_000, "first", chain=9), sql)) == 9
        texts.clear()
        assert carry(backlog.claim(9, 60_000, "second", chain=9, pages=1), sql) == []
        assert len(texts) == 2, "the window, and the fronts of its aggregates"
        texts.clear()
        assert carry(backlog.claim(9, 60_000, "third", chain=9), sql) == []
        assert len(texts) == 2 * PAGES


def test_the_lane_that_looks_hears_when_a_batch_is_over(
    place: Place, database: Database, eventually: Callable[..., Any]
) -> None:
    """With a poll of a minute an ordered backlog drains only if each batch wakes the lane that looks."""
    append(place, *(Message("t", str(number), aggregate="a") for number in range(40)))
    in_vain = asyncio.Event()

    class Watched(Relay):
        async def _claim(self) -> Any:
            claim = await super()._claim()
            if claim is None:
                in_vain.set()
            return claim

    class Slow(Wire):
        async def publish(self, messages: Sequence[Message]) -> Sequence[str | None]:
            in_vain.clear()
            await in_vain.wait()  # the other lane has looked and is asleep
            return await super().publish(messages)

    wire = Slow()
    relay = Watched(database, wire, RelaySettings(lanes=2, batch=5, poll=60))
    eventually(relay.run, lambda: relay.published == 40)
    assert [message.payload for message in wire.got] == list(range(40))


@pytest.mark.parametrize("names", [0, 1, 10, 200])
def test_what_an_ordered_claim_costs_does_not_grow_with_done_rows(tmp_path: Path, names: int) -> None:
    """I5, by SQLite's own count of its steps: at most half more than unordered, and none for 5,000 done rows."""
    steps = {done: _steps_of_claims(tmp_path / f"{done}.db", names, done) for done in (0, 5000)}
    plain = _steps_of_claims(tmp_path / "plain.db", 0, 0)
    assert steps[5000] <= 1.05 * steps[0]
    assert steps[0] <= 1.5 * plain


@pytest.mark.parametrize("names", [0, 10])
@pytest.mark.parametrize("subscriber", [None, "ledger"])
def test_a_backlog_that_came_at_once_is_claimed_without_a_walk_over_it(
    postgres_url: str, names: int, subscriber: str | None
) -> None:
    """Before PostgreSQL has looked at what came, no statement of a claim reads much more than it takes."""
    schema = f"fresh_{secrets.token_hex(4)}"
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f"CREATE SCHEMA {schema}")
    place = place_of(f"{postgres_url}?options=-csearch_path%3D{schema}")
    place.empty()
    many = 40_000  # a few thousand it may sort, which costs less than a claim
    messages = [Message("t", "x" * 50, aggregate=f"a{one % names}" if names else None) for one in range(many)]
    most: list[tuple[int, str]] = []

    class Explained(Sql):
        def rows(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
            self.explain(text, values)
            return super().rows(text, values)

        def count(self, text: str, values: Sequence[Any] = ()) -> int:
            self.explain(text, values)
            return super().count(text, values)

        def explain(self, text: str, values: Sequence[Any]) -> None:
            super().rows("SAVEPOINT before")
            ((plan,),) = super().rows(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", values)
            super().rows("ROLLBACK TO SAVEPOINT before")
            most.append((_most_read(plan[0]["Plan"]), text))

    with closing(place.connect()) as connection:
        for table in ("umavez_outbox", "umavez_deliveries"):
            place.run(connection, f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        Outbox().append(connection, messages)
        if subscriber is not None:
            same = "id, topic, body, headers, aggregate, state, attempts, created_at, due_at"
            place.run(
                connection,
                f"INSERT INTO umavez_deliveries (subscriber, {same}) SELECT ?, {same} FROM umavez_outbox",
                subscriber,
            )
        connection.commit()
        sql, backlog = Explained(connection), Backlog(Dialect.POSTGRES, subscriber)
        rows = carry(backlog.claim(200, 60_000, "first", chain=200), sql)
        assert len(rows) == 200
        assert carry(backlog.done([row.seq for row in rows], "first"), sql) == 200
        connection.rollback()

    assert max(most)[0] <= 1000, max(most)


def _most_read(plan: dict[str, Any]) -> int:
    """The rows of the node that read most, those that it read in vain included."""
    own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return max([own, *map(_most_read, plan.get("Plans", []))])


def _steps_of_claims(path: Path, names: int, done: int) -> int:
    place = place_of(f"sqlite:///{path}")
    place.empty()
    counted = [0]

    def count() -> int:
        counted[0] += 1
        return 0

    def messages(many: int) -> list[Message]:
        return [Message("t", str(one), aggregate=f"a{one % names}" if names else None) for one in range(many)]

    with closing(place.connect()) as connection:
        if done:
            Outbox().append(connection, messages(done))
            place.run(connection, "UPDATE umavez_outbox SET state = 'DONE', done_at = due_at")
        Outbox().append(connection, messages(1000))
        connection.commit()
        connection.set_progress_handler(count, 100)
        sql, backlog = Sql(connection), Backlog(Dialect.SQLITE)
        for token in ("first", "second", "third"):
            rows = carry(backlog.claim(200, 60_000, token, chain=200), sql)
            assert len(rows) == 200
            carry(backlog.done([row.seq for row in rows], token), sql)
        connection.set_progress_handler(None, 0)
        connection.commit()
    return counted[0]
