"""The laws of messaging: of a backlog in a database, and of a broker. Each takes a bench and raises AssertionError.

`BACKLOG` and `BROKER` hold them in reading order; `law.__name__` is a law as a sentence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from umavez.messaging.backlog import Backlog, Claimed
from umavez.messaging.broker import Broker, Delivery, Subscription
from umavez.messaging.database import Database
from umavez.messaging.message import Message
from umavez.messaging.rows import appending
from umavez.sql_flow import SqlFlow
from umavez.stamps import STAMPS
from umavez.testing.clock import ManualClock

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
        return self.runner.run(self.database.run(flow))

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
    bench.run(bench.backlog.back_off([row.seq], token, 20_000, "not now"))
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
        flows = [bench.backlog.claim(5, int(LEASE * 1000), STAMPS.owner()) for _ in range(8)]
        return await asyncio.gather(*(bench.database.run(flow) for flow in flows))

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
)


class BrokerBench:
    """A broker whose topics and subscribers begin with `prefix`, and how its unfinished deliveries come to lapse."""

    def __init__(self, broker: Broker, prefix: str, clock: ManualClock) -> None:
        self.broker = broker
        self.prefix = prefix
        self.clock = clock

    async def subscription(self, name: str = "one") -> Subscription:
        """Subscribe to the topic of the laws."""
        return await self.broker.subscribe(f"{self.prefix}{name}", [self.topic])

    @property
    def topic(self) -> str:
        """The topic of the laws."""
        return f"{self.prefix}topic"

    async def published(self, *bodies: str) -> list[Message]:
        """Publish and see that all are confirmed."""
        messages = [Message(self.topic, body, headers={"trace": "1"}, aggregate=None) for body in bodies]
        assert list(await self.broker.publish(messages)) == [None] * len(messages), "not confirmed"
        return messages

    async def taken(self, subscription: Subscription, count: int) -> list[Delivery]:
        """Exactly `count` deliveries, within five seconds."""
        found: list[Delivery] = []
        async with asyncio.timeout(5):
            while len(found) < count:
                found += await subscription.take(count - len(found), 0.2)
        return found

    async def nothing(self, subscription: Subscription) -> None:
        """See that nothing comes."""
        assert await subscription.take(1, 0.05) == [], "something came that should not"


async def what_nobody_wants_is_refused(bench: BrokerBench) -> None:
    """A confirmed message that goes nowhere would be lost without a word."""
    (answer,) = await bench.broker.publish([Message(f"{bench.prefix}nowhere", "1")])
    assert answer, "an unroutable message was confirmed"


async def every_subscriber_gets_every_message_whole(bench: BrokerBench) -> None:
    """Also those that come while nobody takes them."""
    one, two = await bench.subscription("one"), await bench.subscription("two")
    sent = await bench.published('{"ç":1}', "2")
    for subscription in (one, two):
        got = await bench.taken(subscription, 2)
        assert sorted(map(repr, (d.message for d in got))) == sorted(map(repr, sent)), "a message came changed"
        await subscription.finish(got)
        await subscription.close()


async def what_is_finished_does_not_come_again(bench: BrokerBench) -> None:
    """Not even to a new subscription after the lease."""
    subscription = await bench.subscription()
    await bench.published("1", "2", "3")
    await subscription.finish(await bench.taken(subscription, 3))
    await subscription.close()
    bench.clock.advance(3600)
    again = await bench.subscription()
    await bench.nothing(again)
    await again.close()


async def what_is_not_finished_comes_again_and_is_counted(bench: BrokerBench) -> None:
    """A subscriber that dies in the middle loses nothing."""
    subscription = await bench.subscription()
    await bench.published("1")
    (first,) = await bench.taken(subscription, 1)
    await subscription.close()
    bench.clock.advance(3600)
    again = await bench.subscription()
    (second,) = await bench.taken(again, 1)
    assert second.message.id == first.message.id
    assert (first.attempts, second.attempts) == (1, 2), "the attempts were not counted"
    await again.finish([second])
    await again.close()


async def what_is_postponed_comes_after_its_pause(bench: BrokerBench) -> None:
    """With its attempts counted on."""
    subscription = await bench.subscription()
    await bench.published("1")
    (first,) = await bench.taken(subscription, 1)
    await subscription.postpone(first, 100, "not now")
    await bench.nothing(subscription)
    bench.clock.advance(101)
    (second,) = await bench.taken(subscription, 1)
    assert (second.message.id, second.attempts) == (first.message.id, 2)
    await subscription.finish([second])
    await subscription.close()


async def what_is_buried_does_not_come_again(bench: BrokerBench) -> None:
    """And the others flow on."""
    subscription = await bench.subscription()
    await bench.published("1", "2")
    first, second = await bench.taken(subscription, 2)
    await subscription.bury(first, "hopeless")
    await subscription.finish([second])
    bench.clock.advance(3600)
    await bench.nothing(subscription)
    await subscription.close()


async def what_is_given_back_comes_again_at_once(bench: BrokerBench) -> None:
    """A consumer that stops hands its prefetched deliveries to the others."""
    subscription = await bench.subscription()
    await bench.published("1")
    await subscription.give_back(await bench.taken(subscription, 1))
    (again,) = await bench.taken(subscription, 1)
    await subscription.finish([again])
    await subscription.close()


BROKER: tuple[Callable[[BrokerBench], Awaitable[None]], ...] = (
    what_nobody_wants_is_refused,
    every_subscriber_gets_every_message_whole,
    what_is_finished_does_not_come_again,
    what_is_not_finished_comes_again_and_is_counted,
    what_is_postponed_comes_after_its_pause,
    what_is_buried_does_not_come_again,
    what_is_given_back_comes_again_at_once,
)
