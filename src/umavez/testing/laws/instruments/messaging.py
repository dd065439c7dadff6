"""The laws of a backlog in a database. Each takes a bench and raises AssertionError.

`BACKLOG` holds them in reading order, and `BROKER` those of a broker; `law.__name__` is a law as a sentence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from umavez.engine.stamps import STAMPS
from umavez.messaging.database import Database
from umavez.messaging.inspection import Inspection
from umavez.messaging.message import Message
from umavez.messaging.tables.backlog import Backlog
from umavez.messaging.tables.claiming import Claimed
from umavez.messaging.tables.rows import appending
from umavez.sql.flow import SqlFlow
from umavez.testing.clock import ManualClock
from umavez.testing.laws.instruments.brokers import BROKER, BrokerBench

__all__ = ["BACKLOG", "BROKER", "BacklogBench", "BrokerBench"]
T = TypeVar("T")
LEASE = 60.0


class BacklogBench:
    """A database with empty tables of messaging, whose time the laws move."""

    def __init__(self, database: Database, clock: ManualClock, runner: asyncio.Runner) -> None:
        self.database = database
        self.clock = clock
        self.runner = runner

    @property
    def backlog(self) -> Backlog:
        """The outbox, at the clock's present offset."""
        return Backlog(self.database.dialect, offset=self.clock.offset)

    def run(self, flow: SqlFlow[T]) -> T:
        """What the flow returns, in a transaction of its own."""
        return self.runner.run(self.database.tried(flow))

    def append(self, *messages: Message) -> None:
        """Put messages into the outbox."""
        self.run(_one(appending(self.database.dialect, messages, self.clock.offset)))

    def claim(self, limit: int = 100) -> tuple[list[Claimed], str]:
        """Claim what is due; the rows and their token."""
        token = STAMPS.owner()
        return self.run(self.backlog.claim(limit, int(LEASE * 1000), token)), token

    def bodies(self, limit: int = 100) -> list[str]:
        """Claim what is due; only what it says."""
        return [row.message.body for row in self.claim(limit)[0]]


def _one(step: Any) -> SqlFlow[Any]:
    return (yield step)


def _messages(count: int, **fields: Any) -> list[Message]:
    return [Message("topic", str(number), **fields) for number in range(count)]


def what_was_appended_is_claimed_whole(bench: BacklogBench) -> None:
    """Every column survives, with the signs that quoting and encoding stumble over."""
    message = Message("töpic", '{"a":"ç\\"\\u0000\'%s?;--"}', headers={"trace": "1"}, aggregate="order-1")
    bench.append(message)
    ((row,), _) = bench.claim()
    assert row.message == message, "the message came back changed"
    assert row.attempts == 1, "the first claim is the first attempt"


def one_claim_excludes_the_next_until_its_lease_lapses(bench: BacklogBench) -> None:
    """And then another has it."""
    bench.append(*_messages(3))
    assert len(bench.claim()[0]) == 3
    assert bench.claim()[0] == [], "claimed twice within the lease"
    bench.clock.advance(LEASE + 1)
    assert [row.attempts for row in bench.claim()[0]] == [2, 2, 2], "a lapsed claim was not taken over"


def an_overtaken_claim_writes_nothing(bench: BacklogBench) -> None:
    """Whoever wakes up late finds its token replaced, for every verb."""
    bench.append(*_messages(1))
    (late,), old = bench.claim()
    bench.clock.advance(LEASE + 1)
    _, new = bench.claim()
    backlog, seqs = bench.backlog, [late.seq]
    for flow in (
        backlog.done(seqs, old),
        backlog.back_off(seqs, old, 0, "late"),
        backlog.release(seqs, old),
        backlog.renew(seqs, old, 1_000_000),
        backlog.bury(seqs, old, "late"),
    ):
        assert bench.run(flow) == 0, "an overtaken claim wrote"
    assert bench.run(backlog.done(seqs, new)) == 1, "the holder could not write"


def what_is_done_is_not_claimed_again(bench: BacklogBench) -> None:
    """However late."""
    bench.append(*_messages(3))
    rows, token = bench.claim()
    assert bench.run(bench.backlog.done([row.seq for row in rows], token)) == 3
    bench.clock.advance(10 * LEASE)
    assert bench.claim()[0] == []


def what_is_backed_off_waits_and_keeps_its_reason_and_count(bench: BacklogBench) -> None:
    """A pause is over when the database's clock says so."""
    bench.append(*_messages(1))
    (row,), token = bench.claim()
    bench.run(bench.backlog.back_off([row.seq], token, 20_000, "not now: \ud800\0"))  # an error may say anything
    assert bench.claim()[0] == [], "claimed before the pause was over"
    bench.clock.advance(21)
    assert [again.attempts for again in bench.claim()[0]] == [2]


def what_is_released_keeps_its_attempts(bench: BacklogBench) -> None:
    """An outage of the broker is not a failure of the message."""
    bench.append(*_messages(1))
    for _ in range(5):
        (row,), token = bench.claim()
        assert row.attempts == 1
        bench.run(bench.backlog.release([row.seq], token))


def what_is_dead_stays_dead(bench: BacklogBench) -> None:
    """And is not cleaned away: a person has to look at it."""
    bench.append(*_messages(1))
    (row,), token = bench.claim()
    bench.run(bench.backlog.bury([row.seq], token, "hopeless"))
    bench.clock.advance(1000 * LEASE)
    assert bench.claim()[0] == []
    assert bench.run(bench.backlog.clean(0, 100)) == 0, "a dead row was cleaned away"


def a_message_is_not_due_before_it_is_available(bench: BacklogBench) -> None:
    """Delay lives in the database."""
    moment = datetime.now(UTC) + timedelta(seconds=bench.clock.offset / 1000 + 3600)
    bench.append(Message("topic", "1", available_at=moment))
    assert bench.bodies() == []
    bench.clock.advance(3700)
    assert bench.bodies() == ["1"]


def a_message_appended_twice_is_one_message(bench: BacklogBench) -> None:
    """By its id, within a statement and across transactions."""
    message = Message("topic", "1")
    bench.append(message, message)
    bench.append(message)
    assert len(bench.claim()[0]) == 1


def rivals_claim_every_message_once(bench: BacklogBench) -> None:
    """Eight claims at the same moment share the rows without overlap."""
    bench.append(*_messages(40))

    async def race() -> list[list[Claimed]]:
        claims = [partial(bench.backlog.claim, 5, int(LEASE * 1000), STAMPS.owner()) for _ in range(8)]
        return await asyncio.gather(*(bench.database.run(claim) for claim in claims))

    seqs = [row.seq for rows in bench.runner.run(race()) for row in rows]
    seqs += [row.seq for row in bench.claim()[0]]
    assert len(seqs) == len(set(seqs)) == 40, "a row was claimed twice or by nobody"


def a_later_message_of_an_aggregate_waits_for_the_earlier(bench: BacklogBench) -> None:
    """While it is claimed, backed off and dead; other aggregates and messages without one go on."""
    bench.append(
        Message("topic", '"a1"', aggregate="a"),
        Message("topic", '"a2"', aggregate="a"),
        Message("topic", '"b1"', aggregate="b"),
        Message("topic", '"free"'),
    )
    rows, token = bench.claim()
    assert [row.message.body for row in rows] == ['"a1"', '"b1"', '"free"']
    assert bench.bodies() == [], "the second came while the first was claimed"
    bench.run(bench.backlog.back_off([rows[0].seq], token, 5_000, "wait"))
    assert bench.bodies() == [], "the second came while the first was backed off"
    bench.clock.advance(6)
    (first,), token = bench.claim()
    bench.run(bench.backlog.done([first.seq], token))
    (second,), token = bench.claim()
    assert second.message.body == '"a2"'
    bench.run(bench.backlog.bury([second.seq], token, "hopeless"))
    bench.append(Message("topic", '"a3"', aggregate="a"))
    assert bench.bodies() == [], "the third came past a dead second"


def cleaning_takes_old_published_rows_by_batches(bench: BacklogBench) -> None:
    """And leaves what waits, what is claimed and what is young."""
    bench.append(*_messages(7))
    rows, token = bench.claim(5)
    bench.run(bench.backlog.done([row.seq for row in rows], token))
    assert bench.run(bench.backlog.clean(60_000, 3)) == 0, "young rows were cleaned away"
    bench.clock.advance(61)
    assert [bench.run(bench.backlog.clean(60_000, 3)) for _ in range(3)] == [3, 2, 0]
    assert len(bench.claim()[0]) == 2


def cleaning_takes_discarded_rows_too(bench: BacklogBench) -> None:
    """What a person gave up is over like what was published."""
    bench.append(*_messages(2))
    rows, token = bench.claim()
    bench.run(bench.backlog.bury([row.seq for row in rows], token, "hopeless"))
    look = Inspection(bench.database.dialect)
    assert bench.run(look.discard(rows[0].message.id, "ana", "obsolete")) == 1
    assert bench.run(bench.backlog.clean(60_000, 10)) == 0, "a row that was just discarded was cleaned away"
    bench.clock.advance(61)
    assert bench.run(bench.backlog.clean(60_000, 10)) == 1, "a discarded row was not cleaned away"
    assert bench.run(look.counts())["DEAD"] == 1, "a dead row was cleaned away"


def a_claim_is_bounded_in_bytes(bench: BacklogBench) -> None:
    """Or a hundred large messages are confirmed together or not at all; one above the bound goes alone."""
    sizes = (400, 400, 400, 2000, 10)
    bench.append(*(Message("topic", f'"{"x" * (size - 2)}"') for size in sizes))
    claims = []
    for _ in range(len(sizes)):
        rows = bench.run(bench.backlog.claim(100, int(LEASE * 1000), STAMPS.owner(), max_bytes=1000))
        claims.append([len(row.message.body) for row in rows])
    assert claims == [[400, 400], [400], [2000], [10], []], f"claimed together: {claims}"


BACKLOG: tuple[Callable[[BacklogBench], None], ...] = (
    what_was_appended_is_claimed_whole,
    one_claim_excludes_the_next_until_its_lease_lapses,
    an_overtaken_claim_writes_nothing,
    what_is_done_is_not_claimed_again,
    what_is_backed_off_waits_and_keeps_its_reason_and_count,
    what_is_released_keeps_its_attempts,
    what_is_dead_stays_dead,
    a_message_is_not_due_before_it_is_available,
    a_message_appended_twice_is_one_message,
    rivals_claim_every_message_once,
    a_later_message_of_an_aggregate_waits_for_the_earlier,
    cleaning_takes_old_published_rows_by_batches,
    cleaning_takes_discarded_rows_too,
    a_claim_is_bounded_in_bytes,
)
