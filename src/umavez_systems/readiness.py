"""Readiness: whether the database answers, asked on a thread and a connection that no use case can occupy."""

from __future__ import annotations

import asyncio

from umavez import StoreUnavailable
from umavez.concurrency import ThreadPool
from umavez_systems.database import open_database
from umavez_systems.settings import Settings

LONGEST = 2.0
"""Seconds after which whoever asks is told no: a probe that waits is a probe that failed."""
_LOOK = "SELECT (SELECT count(*) FROM systems_version) AS ours, (SELECT count(*) FROM umavez_meta) AS engine"


class Readiness:
    """Asks for everybody at once: however many probes come, one look is under way."""

    def __init__(self, settings: Settings) -> None:
        self._seconds = min(LONGEST, settings.database_timeout_seconds)
        self._database = open_database(settings.database, 0, self._seconds)
        self._threads = ThreadPool(1, "umavez-ready")
        self._looking: asyncio.Future[None] | None = None

    async def check(self) -> None:
        """Return when the database answers and has its tables. Raises StoreError, soon."""
        looking = self._looking
        if looking is None or looking.done():
            looking = self._looking = asyncio.ensure_future(self._threads.run(self._look))
            looking.add_done_callback(_heard)
        done, _ = await asyncio.wait((looking,), timeout=self._seconds)
        if not done:
            raise StoreUnavailable(f"The database did not answer within {self._seconds:g} s; try again.")
        looking.result()

    def _look(self) -> None:
        with self._database.statements() as connection:
            connection.row(_LOOK)

    def close(self) -> None:
        """Give the connection back."""
        self._threads.close()
        self._database.close()


def _heard(looking: asyncio.Future[None]) -> None:
    """Nobody may be left to hear a failure that came late."""
    if not looking.cancelled():
        looking.exception()
