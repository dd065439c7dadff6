"""Worker: takes "process this mailing" and works on it for a while: reads its list, sends its mails, hands it on.

A delivery is held for one slice, never for a whole mailing. A crash leaves one group in doubt, and no more.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from umavez import ClaimLost, StoreError
from umavez.messaging import Message, Poison
from umavez_systems.mailing.assembly import Mailing
from umavez_systems.mailing.domain import Status, is_id
from umavez_systems.mailing.ingest.ingesting import Unreadable, ingest
from umavez_systems.mailing.ports import Provider
from umavez_systems.mailing.sending.holding import Holding, Leak
from umavez_systems.mailing.sending.limiter import Limiter
from umavez_systems.mailing.sending.sender import Sender, Unreachable

LOG = logging.getLogger("umavez.mailing")
SLICE_SECONDS = 20.0
Run = Callable[..., Awaitable[Any]]


class Guard:
    """Knows when the lock was last proved; asks the database again before that is too long ago, as after a freeze."""

    def __init__(self, holding: Holding, run: Run, lock: float) -> None:
        self._holding = holding
        self._run = run
        self._lock = lock
        self._asking = asyncio.Lock()
        self.proved_at = time.monotonic()

    async def proof(self) -> None:
        """Raise ClaimLost if the mailing is another's."""
        if time.monotonic() - self.proved_at < self._lock / 2:
            return
        async with self._asking:
            if time.monotonic() - self.proved_at >= self._lock / 2:
                await self.renew()

    async def renew(self) -> None:
        """Prove it now."""
        asked = time.monotonic()
        await self._run(self._holding.renew)
        self.proved_at = asked


class Worker:
    """Handles messages; any number on any host."""

    def __init__(self, mailing: Mailing, provider: Provider, run: Run, stop: asyncio.Event) -> None:
        self._mailing = mailing
        self._provider = provider
        self._run = run
        self._stop = stop
        settings = mailing.settings
        self._lock = settings.mailing_lock_seconds
        self._slice = min(SLICE_SECONDS, max(self._lock, 1.0))
        self._limiter = Limiter(mailing.cases.database, settings.mailing_rate)

    async def handle(self, message: Message) -> None:
        """One message. Returns when it may be forgotten; raises to have it again later, Poison to bury it."""
        mailing = message.payload.get("mailingId") if isinstance(message.payload, dict) else None
        if not isinstance(mailing, str) or not is_id(mailing):
            raise Poison("The message names no mailing.")
        holding = await self._run(self._mailing.holdings.acquire, mailing)
        if holding is None:
            LOG.info("Mailing %s already being processed, skipping", mailing)
            return
        try:
            await self._worked(holding)
        except ClaimLost:
            LOG.warning("Mailing %s was taken over by another worker; stopped", mailing)
        except (Leak, Unreadable) as error:
            await self._run(holding.fail, str(error))
            raise Poison(str(error)) from error
        except StoreError:
            raise  # nothing can be written now; the lock lapses by itself
        except Exception as error:
            await self._run(holding.fail, str(error) or type(error).__name__)
            raise

    async def _worked(self, holding: Holding) -> None:
        until = time.monotonic() + self._slice
        guard = Guard(holding, self._run, self._lock)
        wait = False
        async with self._beating(guard):
            if holding.row["ingerido"] or await self._read(holding, until):
                settings = self._mailing.settings
                sender = Sender(holding, self._provider, self._limiter, self._run, settings, guard.proof)
                wait = await sender.send(until, self._stop)
        status: Status = await self._run(lambda: holding.leave(wait=wait))
        LOG.info("Mailing %s is %s", holding.id, status)

    async def _read(self, holding: Holding, until: float) -> bool:
        """Whether all of the list is read now."""
        if holding.row["pedido"] is not None:
            return False
        read = partial(ingest, holding, self._mailing.cases.storage, until, _nothing, stopped=self._stop.is_set)
        ended: bool = await self._run(read)
        return ended

    @asynccontextmanager
    async def _beating(self, guard: Guard) -> AsyncIterator[None]:
        """Keep the lock alive meanwhile. A lock that is lost is noticed at the next write in any case."""
        task = asyncio.create_task(self._beat(guard))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _beat(self, guard: Guard) -> None:
        while True:
            await asyncio.sleep(self._lock / 3)
            try:
                await guard.renew()
            except ClaimLost:
                return
            except StoreError as error:
                LOG.warning("The lock was not renewed: %s", error)


def _nothing(_: int) -> None:
    """Progress is in the database, where everybody sees it."""


__all__ = ["Unreachable", "Worker"]
