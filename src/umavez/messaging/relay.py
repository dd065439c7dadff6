"""Relay: takes messages out of the outbox and hands them to the broker, at least once.

claim (a short transaction) -> publish with confirms (no transaction) -> mark in a group (a short transaction).
A relay that dies at any point leaves rows whose lease lapses; another claims and sends them again, with the same ids.
Any number of relays may run side by side.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from umavez.errors import StoreError
from umavez.messaging.backlog import Backlog, Claimed
from umavez.messaging.broker import OUTAGE, USUAL, Backoff, Broker, BrokerUnavailable
from umavez.messaging.database import Database
from umavez.messaging.stopping import paused
from umavez.stamps import STAMPS

log = logging.getLogger("umavez.relay")


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """How a relay works. Durations are in seconds.

    batch: rows per claim. lanes: how many claims are on their way at once, so that one is published while
    another is marked. lease: after how long another relay may take over what a dead one claimed; far above the time to
    publish a batch. poll: how long to wait when nothing is due. keep: how long published rows stay.
    """

    batch: int = 500
    lanes: int = 2
    lease: float = 30.0
    poll: float = 0.2
    keep: float = 3600.0
    clean_every: float = 30.0
    backoff: Backoff = USUAL
    outage: Backoff = OUTAGE


class Relay:
    """Moves messages from the outbox of `database` to `broker`."""

    def __init__(self, database: Database, broker: Broker, settings: RelaySettings | None = None) -> None:
        self._database = database
        self._broker = broker
        self._settings = RelaySettings() if settings is None else settings
        self.published = 0
        """How many messages were confirmed and marked by this relay."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then finish what was claimed. Outages are waited out, with growing pauses."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._settings.lanes):
                tasks.create_task(self._lane(stop))
            tasks.create_task(self._cleaning(stop))

    async def _lane(self, stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            try:
                moved = await self.step()
            except (StoreError, BrokerUnavailable) as error:
                failures += 1
                log.warning("relay waits: %s", error)
                await paused(stop, self._settings.outage.pause(failures))
                continue
            failures = 0
            if not moved:
                await paused(stop, self._settings.poll)

    async def step(self) -> int:
        """Claim one batch, publish and mark it; returns how many were claimed. Raises StoreError, BrokerUnavailable."""
        token = STAMPS.owner()
        backlog = Backlog(self._database.dialect, offset=self._database.clock.offset)
        claim = backlog.claim(self._settings.batch, int(self._settings.lease * 1000), token)
        rows = await self._database.run(claim, atomic=not backlog.one_statement)
        if rows:
            await self._handed_over(backlog, rows, token)
        return len(rows)

    async def _handed_over(self, backlog: Backlog, rows: Sequence[Claimed], token: str) -> None:
        try:
            answers = await self._broker.publish([row.message for row in rows])
        except (BrokerUnavailable, asyncio.CancelledError):
            # Not the messages' fault: they keep their attempts, and go out again when the broker is back.
            await self._database.run(backlog.release([row.seq for row in rows], token), atomic=False)
            raise
        confirmed = [row.seq for row, answer in zip(rows, answers, strict=True) if answer is None]
        refused = [(row, answer) for row, answer in zip(rows, answers, strict=True) if answer is not None]
        marked = await self._database.run(backlog.done(confirmed, token), atomic=False)
        self.published += marked
        if marked < len(confirmed):
            log.warning(
                "%d messages were taken over before they were marked; they go out twice", len(confirmed) - marked
            )
        await self._put_back(backlog, refused, token)

    async def _put_back(self, backlog: Backlog, refused: Sequence[tuple[Claimed, str]], token: str) -> None:
        """Refused messages wait or die; those with the same fate share a statement."""
        groups: dict[tuple[int, str], list[int]] = {}
        for row, reason in refused:
            groups.setdefault((row.attempts, reason), []).append(row.seq)
        for (attempts, reason), seqs in groups.items():
            log.warning("%d messages were refused at attempt %d: %s", len(seqs), attempts, reason)
            if self._settings.backoff.spent(attempts):
                flow = backlog.bury(seqs, token, f"Refused {attempts} times, at last: {reason}")
            else:
                flow = backlog.back_off(seqs, token, int(self._settings.backoff.pause(attempts) * 1000), reason)
            await self._database.run(flow, atomic=False)

    async def _cleaning(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self.clean()
            except StoreError as error:
                log.warning("cleaning waits: %s", error)
            await paused(stop, self._settings.clean_every)

    async def clean(self, batch: int = 1000) -> int:
        """Delete published and delivered rows that are older than `keep`, in batches; returns how many."""
        swept = 0
        for subscriber in (None, ""):
            backlog = Backlog(self._database.dialect, subscriber, offset=self._database.clock.offset)
            while gone := await self._database.run(backlog.clean(int(self._settings.keep * 1000), batch)):
                swept += gone
                if gone < batch:
                    break
        return swept
