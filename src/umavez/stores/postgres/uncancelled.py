"""A connection to PostgreSQL that is closed when whoever awaits it is cancelled, instead of cancelling on the server.

Synchronous replication hides a commit until a standby has it, unless the wait is cancelled: then everybody sees what a
failover may take back, and was told of something that never happened. psycopg cancels. A closed connection leaves the
server to finish: the commit is seen when it is safe, or never.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from psycopg import AsyncConnection
from psycopg.abc import PQGen
from psycopg.rows import Row
from psycopg.waiting import wait_async

RV = TypeVar("RV")
_INTERRUPTED = (asyncio.CancelledError, KeyboardInterrupt)
_LOOK = 0.1
"""Seconds between two looks at a silent socket, as psycopg's own connections have them.

Always said: what psycopg takes where nothing is said was "never" once and is 0 now, which is a loop without a pause.
"""


class UncancelledConnection(AsyncConnection[Row]):
    """As psycopg.AsyncConnection; a cancelled statement leaves it closed, and what it did is for the server to end."""

    async def wait(self, gen: PQGen[RV], interval: float = _LOOK, *given: Any, **options: Any) -> RV:
        """As psycopg's."""
        try:
            return await wait_async(gen, self.pgconn.socket, interval, *given, **options)
        except _INTERRUPTED:
            self.pgconn.finish()
            raise
