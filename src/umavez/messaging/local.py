"""LocalBroker: the same interface on the SQL database alone, so that nothing else has to run.

Each subscriber has a row per message, claimed under a lease like the outbox itself. Publishing a message again
adds nothing. A message that nobody subscribed to is refused, as an unroutable one is elsewhere.
"""

# ruff: noqa: S608 - statements are joined from constants of the module; values always travel as parameters

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from umavez.engine.stamps import STAMPS
from umavez.errors import StoreError
from umavez.messaging.broker import UNANSWERED, Answer, DatabaseAway, Delivery, Hopeless, Subscription
from umavez.messaging.database import Database
from umavez.messaging.message import Message, complaint, is_plain
from umavez.messaging.tables.backlog import Backlog
from umavez.messaging.tables.rows import Parcel, delivering, subscribing
from umavez.sql.flow import Ask, SqlFlow, Write

STATEMENT = 2 * 1024 * 1024
"""Characters of bodies in one statement: MariaDB refuses packets above 16 MiB unless it is told otherwise."""

UNROUTABLE = "No subscriber wants this topic."


class LocalBroker:
    """Carries messages through tables of `database`."""

    def __init__(self, database: Database, *, lease: float = 60.0, poll: float = 0.5) -> None:
        self._database = database
        self._lease = lease
        self._poll = poll
        self._arrived = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def _arrival(self) -> asyncio.Event:
        """Set when something was published here; each loop has its own."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._arrived = loop, asyncio.Event()
        return self._arrived

    async def publish(self, messages: Sequence[Message]) -> Sequence[Answer]:
        """See Broker.publish. All that can be taken are taken in one transaction."""
        with _failures():
            told = await self._database.run(lambda: self._published(messages))
        self._arrival().set()
        return told

    def _published(self, messages: Sequence[Message]) -> SqlFlow[list[Answer]]:
        topics = sorted({message.topic for message in messages if is_plain(message.topic)})
        marks = ",".join("?" * len(topics)) or "NULL"
        rows = yield Ask(
            f"SELECT topic, subscriber FROM umavez_subscriptions WHERE topic IN ({marks})", topics, alone=True
        )
        wanted: dict[str, list[str]] = {}
        for topic, subscriber in rows:
            wanted.setdefault(topic, []).append(subscriber)
        answers = _answers(messages, wanted)
        parcels: list[Parcel] = [
            (subscriber, message, "WAITING", 0, 0, None)
            for message, answer in zip(messages, answers, strict=True)
            if answer is None
            for subscriber in wanted[message.topic]
        ]
        groups = list(_statements(parcels))
        for some in groups:
            written = delivering(self._database.dialect, some, self._database.clock.offset)
            yield written._replace(alone=len(groups) == 1)  # all of it by itself
        return answers

    async def subscribe(self, subscriber: str, topics: Sequence[str], *, prefetch: int = 20) -> Subscription:
        """See Broker.subscribe."""
        statement = subscribing(self._database.dialect, subscriber, topics)
        with _failures():
            await self._database.run(lambda: _one(statement))
        return LocalSubscription(self._database, subscriber, self._arrival(), self._lease, self._poll)

    async def close(self) -> None:
        """The database belongs to whoever opened it."""


def _answers(messages: Sequence[Message], wanted: Mapping[str, Sequence[str]]) -> list[Answer]:
    """What becomes of each message; behind one that is not taken, its aggregate waits."""
    answers: list[Answer] = []
    held: set[str] = set()
    for message in messages:
        wrong = complaint(message)
        answer: Answer = None if message.topic in wanted else UNROUTABLE
        if message.aggregate in held:
            answer = UNANSWERED
        elif wrong:
            answer = Hopeless(wrong)
        if answer is not None and message.aggregate is not None:
            held.add(message.aggregate)
        answers.append(answer)
    return answers


def _statements(parcels: Sequence[Parcel]) -> Iterator[list[Parcel]]:
    """Groups that each fit into a statement: a body is sent once for each subscriber."""
    group: list[Parcel] = []
    size = 0
    for parcel in parcels:
        size += len(parcel[1].body)
        if group and size > STATEMENT:
            yield group
            group, size = [], len(parcel[1].body)
        group.append(parcel)
    if group:
        yield group


def _one(statement: Write) -> SqlFlow[int]:
    written: int = yield statement
    return written


class LocalSubscription:
    """The rows of one subscriber."""

    def __init__(
        self, database: Database, subscriber: str, arrived: asyncio.Event, lease: float = 60.0, poll: float = 0.5
    ) -> None:
        self._database = database
        self._backlog = Backlog(database.dialect, subscriber, offset=0)
        self._subscriber = subscriber
        self._arrived = arrived
        self._lease_ms = int(lease * 1000)
        self._poll = poll

    async def take(self, limit: int, wait: float) -> list[Delivery]:
        """See Subscription.take; a message published by this process is noticed at once, others within `poll`."""
        end = asyncio.get_running_loop().time() + wait
        while True:
            self._arrived.clear()
            found = await self.claim(limit)
            left = end - asyncio.get_running_loop().time()
            if found or left <= 0:
                return found
            try:
                async with asyncio.timeout(min(left, self._poll)):
                    await self._arrived.wait()
            except TimeoutError:
                continue

    async def claim(self, limit: int) -> list[Delivery]:
        """The deliveries that are due now."""
        token = STAMPS.owner()
        backlog = self._now()
        with _failures():
            claimed = await self._database.run(lambda: backlog.claim(limit, self._lease_ms, token))
        for row in claimed:
            if row.broken:
                await self._write(partial(backlog.bury, [row.seq], token, row.broken))
        return [Delivery(row.message, row.attempts, (row.seq, token)) for row in claimed if not row.broken]

    async def finish(self, deliveries: Sequence[Delivery]) -> None:
        """See Subscription.finish."""
        for token, seqs in _by_token(deliveries).items():
            await self._write(partial(self._now().done, seqs, token))

    async def postpone(self, delivery: Delivery, pause: float, reason: str) -> None:
        """See Subscription.postpone."""
        seq, token = delivery.tag
        await self._write(partial(self._now().back_off, [seq], token, int(pause * 1000), reason))

    async def wait_out(self, delivery: Delivery, pause: float) -> None:
        """See Subscription.wait_out."""
        seq, token = delivery.tag
        await self._write(partial(self._now().release, [seq], token, int(pause * 1000)))

    async def bury(self, delivery: Delivery, reason: str) -> None:
        """See Subscription.bury."""
        seq, token = delivery.tag
        await self._write(partial(self._now().bury, [seq], token, reason))

    async def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """See Subscription.give_back."""
        for token, seqs in _by_token(deliveries).items():
            await self._write(partial(self._now().release, seqs, token))

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """See Subscription.renew."""
        for token, seqs in _by_token(deliveries).items():
            await self._write(partial(self._now().renew, seqs, token, self._lease_ms))

    async def held(self, aggregates: Collection[str]) -> set[str]:
        """Those of `aggregates` of which a message waits here, or is dead: later ones may not pass it."""
        if not aggregates:
            return set()
        with _failures():
            return await self._database.run(lambda: self._now().held(aggregates), atomic=False)

    async def park(self, parcel: Parcel) -> None:
        """Keep a message that came by another broker, to be brought again from here."""
        statement = delivering(self._database.dialect, [parcel], self._database.clock.offset)
        await self._write(lambda: _one(statement))

    def _now(self) -> Backlog:
        offset = self._database.clock.offset
        return Backlog(self._database.dialect, self._subscriber, offset=offset) if offset else self._backlog

    async def _write(self, make: Callable[[], SqlFlow[int]]) -> None:
        with _failures():
            await self._database.run(make, atomic=False)

    async def close(self) -> None:
        """Nothing is held; what is claimed lapses."""


def _by_token(deliveries: Sequence[Delivery]) -> dict[str, list[int]]:
    """Deliveries of one claim share a token, and are marked by one statement."""
    groups: dict[str, list[int]] = {}
    for delivery in deliveries:
        seq, token = delivery.tag
        groups.setdefault(token, []).append(seq)
    return groups


@contextmanager
def _failures() -> Iterator[None]:
    """Here the database is the broker, so its absence is the broker's."""
    try:
        yield
    except StoreError as error:
        raise DatabaseAway(f"The database that carries the messages did not answer: {error}") from error
