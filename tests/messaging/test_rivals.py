"""Rivals on the same rows: relays, cleaners and strangers give way to each other and lose or double nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, cast

import pytest

from tests.messaging.places import Place
from tests.messaging.test_relay import Wire, append, states
from umavez.engine.stamps import STAMPS
from umavez.errors import StoreError
from umavez.messaging import Database, Message, Outbox, Relay, RelaySettings
from umavez.messaging.connections import ServerConnection
from umavez.messaging.tables.backlog import Backlog
from umavez.sql.flow import Runner, async_carry

SERVERS = pytest.mark.parametrize("place", ["postgres", "mariadb"], indirect=True)


class Stranger:
    """Somebody's own transaction that takes the rows in the opposite order, and is dearer to undo than ours."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._has_last = threading.Event()
        self._go_on = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def take_last_row(self) -> None:
        self._thread.start()
        assert self._has_last.wait(10)

    def reach_for_first_row(self) -> None:
        self._go_on.set()

    def _work(self) -> None:
        change = (
            "UPDATE umavez_outbox SET headers = '{}' WHERE seq = (SELECT * FROM (SELECT {}(seq) FROM umavez_outbox) x)"
        )
        with closing(self._place.connect()) as connection:
            if self._place.kind == "postgresql":
                self._place.run(connection, "SET deadlock_timeout = '30s'")  # so that ours is the victim
            for number in range(300):
                self._place.run(connection, "INSERT INTO umavez_subscriptions VALUES (?, 'x')", f"heavy-{number}")
            self._place.run(connection, change.replace("{}(", "max("))
            self._has_last.set()
            self._go_on.wait(10)
            self._place.run(connection, change.replace("{}(", "min("))
            connection.commit()

    def join(self) -> None:
        self._thread.join(20)


@SERVERS
def test_a_mark_that_is_the_victim_of_a_deadlock_is_written_all_the_same(
    place: Place, database: Database, runner: asyncio.Runner
) -> None:
    stranger = Stranger(place)

    class Entangled(Wire):
        async def publish(self, messages: Sequence[Message]) -> Sequence[str | None]:
            await asyncio.to_thread(stranger.take_last_row)
            asyncio.get_running_loop().call_later(0.3, stranger.reach_for_first_row)  # by then our mark waits for it
            return await super().publish(messages)

    append(place, *(Message("t", str(number)) for number in range(2)))
    relay = Relay(database, Entangled())
    runner.run(relay.step())
    stranger.join()
    assert (states(place), relay.published) == ({"DONE": 2}, 2)


@SERVERS
def test_a_statement_that_is_a_victim_again_and_again_gives_up(
    place: Place, database: Database, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Victim(Exception):
        pass

    tried = 0

    def make():
        nonlocal tried
        tried += 1
        raise StoreError("chosen") from Victim()
        yield

    monkeypatch.setattr(database, "_tries", lambda error: 5 if isinstance(error, Victim) else 0)
    with pytest.raises(StoreError):
        runner.run(database.run(make))
    assert tried == 5


async def marking(database: Database, place: Place) -> None:
    """Claim and mark until nothing waits. Nothing to be had is no end: rivals may have had all that was looked at."""
    backlog = Backlog(database.dialect)
    while True:
        token = STAMPS.owner()
        rows = await database.run(partial(backlog.claim, 5, 30_000, token))
        if rows:
            await database.tried(backlog.done([row.seq for row in rows], token), atomic=False)
        elif "WAITING" not in await asyncio.to_thread(states, place):
            return


async def cleaning(database: Database, backlog: Backlog, stop: asyncio.Event) -> None:
    while not stop.is_set():
        await database.tried(backlog.clean(0, 7))


@SERVERS
def test_marks_and_cleaning_never_deadlock(place: Place, database: Database, runner: asyncio.Runner) -> None:
    """Each try counts here: what a repeat would hide is a wrong order of locks."""
    backlog = Backlog(database.dialect)
    append(place, *(Message("t", str(number)) for number in range(600)))

    async def work() -> None:
        stop = asyncio.Event()
        async with asyncio.timeout(120), asyncio.TaskGroup() as cleaners:
            for _ in range(2):
                cleaners.create_task(cleaning(database, backlog, stop))
            async with asyncio.TaskGroup() as markers:
                for _ in range(4):
                    markers.create_task(marking(database, place))
            stop.set()
        while await database.tried(backlog.clean(0, 100)):
            pass

    runner.run(work())
    assert states(place) == {}


@SERVERS
def test_the_order_of_an_aggregate_survives_two_relays_while_others_append(
    place: Place, database: Database, runner: asyncio.Runner
) -> None:
    """A claim that judges a row by one moment and its forerunners by another takes a later message first."""
    many, writers = 100, 4

    def write(aggregate: int) -> None:
        with closing(place.connect()) as connection:
            for start in range(0, many, 4):
                bodies = [f"[{aggregate},{number}]" for number in range(start, start + 4)]
                Outbox().append(connection, [Message("t", body, aggregate=str(aggregate)) for body in bodies])
                connection.commit()

    wire = Wire()
    relays = [Relay(database, wire, RelaySettings(poll=0.001, lanes=2)) for _ in range(2)]

    async def work() -> None:
        stop = asyncio.Event()
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for relay in relays:
                tasks.create_task(relay.run(stop))
            await asyncio.gather(*(asyncio.to_thread(write, aggregate) for aggregate in range(writers)))
            while sum(relay.published for relay in relays) < many * writers:  # noqa: ASYNC110 - relays tell nobody
                await asyncio.sleep(0.01)
            stop.set()

    runner.run(work())
    for aggregate in range(writers):
        numbers = [message.payload[1] for message in wire.got if message.payload[0] == aggregate]
        assert numbers == list(range(many))


class Disturbed:
    """Runs statements; before the nth one somebody else comes between."""

    def __init__(self, sql: Runner, place: int, rival: Callable[[], Awaitable[object]]) -> None:
        self._sql = sql
        self._left = place
        self._rival = rival
        self.came = False

    async def rows(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
        await self._disturb()
        return await self._sql.rows(text, values)

    async def count(self, text: str, values: Sequence[Any] = ()) -> int:
        await self._disturb()
        return await self._sql.count(text, values)

    async def _disturb(self) -> None:
        if self._left == 0:
            self.came = True
            await self._rival()
        self._left -= 1


def _rivals(place: Place, database: Database) -> dict[str, Callable[[], Awaitable[object]]]:
    backlog = Backlog(database.dialect)

    async def claim() -> None:
        await database.run(partial(backlog.claim, 1, 600_000, "rival"))

    async def finish() -> None:
        rows = await database.run(partial(backlog.claim, 2, 600_000, "rival", chain=2))
        await database.run(partial(backlog.done, [row.seq for row in rows[:1]], "rival"))

    async def put_back() -> None:
        rows = await database.run(partial(backlog.claim, 1, 600_000, "rival"))
        await database.run(partial(backlog.back_off, [row.seq for row in rows], "rival", 600_000, "later"))

    async def append_and_claim() -> None:
        await asyncio.to_thread(append, place, *(Message("t", f"[1,{number}]", aggregate="new") for number in range(3)))
        await database.run(partial(backlog.claim, 10, 600_000, "rival"))

    return {"claim": claim, "finish": finish, "put back": put_back, "append and claim": append_and_claim}


async def _claimed_beside(
    database: Database, nth: int, rival: Callable[[], Awaitable[object]]
) -> tuple[bool, set[int]]:
    """A claim with a rival before its nth statement; whether it came to that, and the rows that were claimed."""
    async with database._connection() as connection:
        sql = cast("ServerConnection", connection)._sql
        await sql.count("BEGIN")
        disturbed = Disturbed(sql, nth, rival)
        rows = await async_carry(Backlog(database.dialect).claim(10, 600_000, "ours", chain=10), disturbed)
        await sql.count("COMMIT")
    return disturbed.came, {row.seq for row in rows}


@SERVERS
@pytest.mark.parametrize("rival", ["claim", "finish", "put back", "append and claim"])
def test_no_row_is_claimed_before_an_earlier_one_that_somebody_else_has(
    place: Place, database: Database, runner: asyncio.Runner, rival: str
) -> None:
    """Whichever two statements of a claim a rival comes between, the order of every aggregate is kept."""
    nth, came = 0, True
    while came:
        with closing(place.connect()) as connection:
            place.run(connection, "DELETE FROM umavez_outbox")
            connection.commit()
        append(place, *(Message("t", f"[0,{number}]", aggregate="old") for number in range(4)))
        came, ours = runner.run(_claimed_beside(database, nth, _rivals(place, database)[rival]))
        rows = place.look("SELECT seq, aggregate, token, state FROM umavez_outbox ORDER BY seq")
        for aggregate in ("old", "new"):
            unfinished = [(seq, token) for seq, name, token, state in rows if name == aggregate and state != "DONE"]
            mine = [token == "ours" and seq in ours for seq, token in unfinished]
            # What is ours stands in front, without a gap: nothing of somebody else's comes before it.
            assert mine == sorted(mine, reverse=True), f"before statement {nth}: {unfinished}"
        nth += 1
    assert nth > 3


def test_rows_that_wait_for_a_dead_one_do_not_hide_those_behind_them(
    place: Place, database: Database, runner: asyncio.Runner
) -> None:
    append(place, *(Message("t", f'"a{number}"', aggregate="a") for number in range(260)), Message("t", '"free"'))
    append(place, Message("t", '"b"', aggregate="b"))
    with closing(place.connect()) as connection:
        place.run(connection, "UPDATE umavez_outbox SET state = 'DEAD' WHERE body = ?", '"a0"')
        connection.commit()
    wire = Wire()
    relay = Relay(database, wire, RelaySettings(batch=10))
    assert runner.run(relay.step()) == 2
    assert {message.payload for message in wire.got} == {"free", "b"}
    assert runner.run(relay.step()) == 0
