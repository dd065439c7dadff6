"""Relay: takes messages out of the outbox and hands them to the broker, at least once.

claim (a short transaction) -> publish with confirms (no transaction) -> mark in a group (a short transaction).
A relay that dies at any point leaves rows whose lease lapses; another claims and sends them again, with the same ids.
Any number of relays may run side by side.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from umavez.engine.stamps import STAMPS
from umavez.errors import StoreError
from umavez.messaging.broker import (
    OUTAGE,
    UNANSWERED,
    USUAL,
    Answer,
    Backoff,
    Broker,
    BrokerUnavailable,
    Hopeless,
    NotNow,
)
from umavez.messaging.database import Database
from umavez.messaging.inspection import Inspection, Lag
from umavez.messaging.message import Message
from umavez.messaging.observing import MessageObserver, MessageObservers, fields
from umavez.messaging.stopping import paused
from umavez.messaging.tables.backlog import Backlog
from umavez.messaging.tables.claiming import PAGES, Claimed
from umavez.messaging.wakeups import WAKEUPS

log = logging.getLogger("umavez.relay")


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """How a relay works. Durations are in seconds.

    batch: rows per claim. lanes: how many claims are on their way at once, so that one is published while
    another is marked. lease: after how long another relay may take over what a dead one claimed; far above the time to
    publish a batch. poll: how long to wait when nothing is due. keep: how long published rows stay. tell_every: how
    often the lag is told to whoever asked for it.
    """

    batch: int = 500
    lanes: int = 2
    lease: float = 30.0
    poll: float = 0.2
    keep: float = 3600.0
    clean_every: float = 30.0
    tell_every: float = 10.0
    backoff: Backoff = USUAL
    outage: Backoff = OUTAGE


Claim = tuple[Backlog, Sequence[Claimed], str]
"""Rows that were claimed, of what, and under which token."""
LOOKS = 6
"""How often a lane looks after a hint, from 2 to 64 ms apart: the hint of this process comes before the commit."""


async def _set_after(stop: asyncio.Event, wake: asyncio.Event) -> None:
    await stop.wait()
    wake.set()


class Relay:
    """Moves messages from the outbox of `database` to `broker`; `told` hears how far behind it is."""

    def __init__(
        self,
        database: Database,
        broker: Broker,
        settings: RelaySettings | None = None,
        *,
        told: Callable[[Lag, int], None] | None = None,
        observers: Iterable[MessageObserver] = (),
    ) -> None:
        self._told = told
        self._observers = MessageObservers(observers)
        self._database = database
        self._broker = broker
        self._settings = RelaySettings() if settings is None else settings
        self._backlog = Backlog(database.dialect)
        self._looking = asyncio.Lock()
        self._out = 0
        """Batches that are being published or marked."""
        self.published = 0
        """How many messages were confirmed and marked by this relay."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then finish what was claimed. Outages are waited out, with growing pauses."""
        with WAKEUPS.listening() as wake:
            hints = [asyncio.create_task(self._hinted(wake)), asyncio.create_task(_set_after(stop, wake))]
            try:
                await self._run(stop, wake)
            finally:
                for hint in hints:
                    hint.cancel()
                await asyncio.gather(*hints, return_exceptions=True)

    async def _run(self, stop: asyncio.Event, wake: asyncio.Event) -> None:
        self._looking, self._out = asyncio.Lock(), 0  # a lock belongs to one loop, and this may be another
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._settings.lanes):
                tasks.create_task(self._lane(stop, wake))
            tasks.create_task(self._cleaning(stop))
            if self._told is not None:
                tasks.create_task(self._telling(stop, self._told))

    async def lag(self) -> Lag:
        """How far behind the relay is. Raises StoreError."""
        return await self._database.run(Inspection(self._database.dialect).lag)

    async def _telling(self, stop: asyncio.Event, told: Callable[[Lag, int], None]) -> None:
        while not stop.is_set():
            try:
                told(await self.lag(), self.published)
            except StoreError as error:
                log.warning("the lag is not known: %s", error, extra=fields("relay_lag_unknown", error))
            await paused(stop, self._settings.tell_every)

    async def _hinted(self, wake: asyncio.Event) -> None:
        """Wake the lanes whenever the database tells of a commit; without its word they look by themselves."""
        while True:
            try:
                await self._database.listen(wake.set)
                return
            except StoreError as error:
                log.warning("hints of the database are missed: %s", error, extra=fields("relay_hints_missed", error))
                await asyncio.sleep(self._settings.outage.cap)

    async def _lane(self, stop: asyncio.Event, wake: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            try:
                # One lane looks at a time; the others would find the same, and be in its way.
                async with self._looking:
                    claim = await self._found(stop, wake)
                if claim is not None:
                    await self._handed_over_beside(claim, wake)
            except (StoreError, BrokerUnavailable) as error:
                failures += 1
                log.warning("relay waits: %s", error, extra=fields("relay_waits", error, failures=failures))
                await paused(stop, self._settings.outage.pause(failures))
                continue
            failures = 0

    async def _found(self, stop: asyncio.Event, wake: asyncio.Event) -> Claim | None:
        """What was claimed as soon as there was something; None at the stop."""
        looks = 0
        while not stop.is_set():
            wake.clear()
            claim = await self._claim()
            if claim is not None:
                return claim
            if looks:
                looks -= 1
                # Woken by a commit too: the hint before it has come early, and its own must not be slept through.
                await paused(wake, min(self._settings.poll, 0.001 * 2 ** (LOOKS - looks)))
            else:
                await paused(wake, self._settings.poll)
                looks = LOOKS if wake.is_set() else 0
        return None

    async def _handed_over_beside(self, claim: Claim, wake: asyncio.Event) -> None:
        """Hand over, and tell the lane that looks meanwhile: what waited for these rows need not wait any more."""
        self._out += 1
        try:
            await self._handed_over(*claim)
        finally:
            self._out -= 1
            wake.set()

    async def _claim(self) -> Claim | None:
        token = STAMPS.owner()
        backlog = self._now()
        batch, lease = self._settings.batch, int(self._settings.lease * 1000)
        # While a batch is out, what waits may all wait for it: one page shows that, and the rest is looked at later.
        pages = 1 if self._out else PAGES
        rows = await self._database.run(lambda: backlog.claim(batch, lease, token, chain=batch, pages=pages))
        return (backlog, rows, token) if rows else None

    async def step(self) -> int:
        """Claim one batch, publish and mark it; returns how many were claimed. Raises StoreError, BrokerUnavailable."""
        claim = await self._claim()
        if claim is None:
            return 0
        await self._handed_over(*claim)
        return len(claim[1])

    def _now(self) -> Backlog:
        offset = self._database.clock.offset
        return Backlog(self._database.dialect, offset=offset) if offset else self._backlog

    async def _handed_over(self, backlog: Backlog, rows: Sequence[Claimed], token: str) -> None:
        tokens = self._observers.sending([row.message for row in rows]) if self._observers else []
        try:
            answers = await self._answers(rows)
        except (BrokerUnavailable, asyncio.CancelledError) as error:
            self._observers.sent(tokens, (), error)
            # Not the messages' fault: they keep their attempts, and go out again when the broker is back.
            await self._released(backlog, rows, token)
            raise
        told = list(zip(rows, answers, strict=True))
        confirmed = [row.seq for row, answer in told if answer is None]
        if self._observers:
            self._observers.sent(tokens, [row.message for row, answer in told if answer is None])
        marked = await self._database.run(lambda: backlog.done(confirmed, token), atomic=False)
        self.published += marked
        if marked < len(confirmed):
            late = len(confirmed) - marked
            log.warning(
                "%d messages were taken over before they were marked; they go out twice",
                late,
                extra=fields("messages_taken_over", count=late),
            )
        await self._put_back(backlog, [(row, answer) for row, answer in told if isinstance(answer, str)], token)
        await self._released(backlog, [row for row, answer in told if answer is UNANSWERED], token)

    async def _answers(self, rows: Sequence[Claimed]) -> Sequence[Answer]:
        """What the broker says to each row; one that nobody can read or send spoils nothing for its neighbours."""
        broken = {row.message.aggregate for row in rows if row.broken}
        sent = [row for row in rows if not row.broken and (row.message.aggregate or object()) not in broken]
        messages = [row.message for row in sent]
        try:
            answers = await self._broker.publish(messages) if messages else ()
        except BrokerUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one of them is to blame; which one, shows when they go alone
            log.warning(
                "a batch could not be sent, its messages go one by one: %r",
                error,
                extra=fields("batch_not_sent", error, count=len(messages)),
            )
            answers = await self._one_by_one(messages)
        told: dict[int, Answer] = {row.seq: Hopeless(row.broken) for row in rows if row.broken}
        told |= {row.seq: answer for row, answer in zip(sent, answers, strict=True)}
        return [told.get(row.seq, UNANSWERED) for row in rows]

    async def _one_by_one(self, messages: Sequence[Message]) -> list[Answer]:
        answers: list[Answer] = []
        held: set[str] = set()
        for message in messages:
            answer: Answer = UNANSWERED
            if message.aggregate not in held:
                try:
                    (answer,) = await self._broker.publish([message])
                except BrokerUnavailable:
                    return answers + [UNANSWERED] * (len(messages) - len(answers))
                except Exception as error:  # noqa: BLE001 - whatever a broker raises for this one is its end
                    answer = Hopeless(f"{type(error).__name__}: {error}")
            if answer is not None and message.aggregate is not None:
                held.add(message.aggregate)
            answers.append(answer)
        return answers

    async def _released(self, backlog: Backlog, rows: Sequence[Claimed], token: str) -> None:
        seqs = [row.seq for row in rows]
        if seqs:
            await self._database.run(lambda: backlog.release(seqs, token), atomic=False)

    async def _put_back(self, backlog: Backlog, refused: Sequence[tuple[Claimed, str]], token: str) -> None:
        """Refused messages wait or die; those with the same fate share a statement.

        What the broker takes from nobody at the moment is not held against the message.
        """
        groups: dict[tuple[int, str, bool], list[int]] = {}
        for row, reason in refused:
            groups.setdefault((row.attempts, reason, isinstance(reason, Hopeless)), []).append(row.seq)
        for (attempts, reason, hopeless), seqs in groups.items():
            told = fields("messages_refused", count=len(seqs), attempt=attempts, dead=self._dies(reason, attempts))
            log.warning("%d messages were refused at attempt %d: %s", len(seqs), attempts, reason, extra=told)
            if isinstance(reason, NotNow):
                fate = partial(backlog.release, seqs, token, int(self._settings.backoff.pause(1) * 1000))
            elif hopeless:
                fate = partial(backlog.bury, seqs, token, f"It can never be published. {reason}")
            elif self._settings.backoff.spent(attempts):
                fate = partial(backlog.bury, seqs, token, f"Refused {attempts} times, at last: {reason}")
            else:
                fate = partial(
                    backlog.back_off, seqs, token, int(self._settings.backoff.pause(attempts) * 1000), reason
                )
            await self._database.run(fate, atomic=False)

    def _dies(self, reason: str, attempts: int) -> bool:
        if isinstance(reason, NotNow):
            return False
        return isinstance(reason, Hopeless) or self._settings.backoff.spent(attempts)

    async def _cleaning(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self.clean()
            except StoreError as error:
                log.warning("cleaning waits: %s", error, extra=fields("cleaning_waits", error))
            await paused(stop, self._settings.clean_every)

    async def clean(self, batch: int = 1000) -> int:
        """Delete published and delivered rows that are older than `keep`, in batches; returns how many."""
        swept = 0
        for subscriber in (None, ""):
            backlog = Backlog(self._database.dialect, subscriber, offset=self._database.clock.offset)
            clean = partial(backlog.clean, int(self._settings.keep * 1000), batch)
            while gone := await self._database.run(clean):
                swept += gone
                if gone < batch:
                    break
        return swept
