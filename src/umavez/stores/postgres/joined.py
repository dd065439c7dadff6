"""Joined: what working in the caller's transaction asks for, without I/O. The stores are in `_async/joined.py`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NoReturn

from psycopg import BaseConnection
from psycopg.pq import TransactionStatus

from umavez.core.flow import Swap
from umavez.errors import ConfigurationError
from umavez.sql.joining import warn_of_parting
from umavez.stores.postgres import statements as sql
from umavez.stores.postgres.values import NO_EVENT, Row, inserting, updating

WAIT = 10.0
"""Seconds that a claim waits for a rival's open transaction."""


def refuse(what: str) -> NoReturn:
    """Raise ConfigurationError: inside somebody's transaction only records are read and swapped."""
    raise ConfigurationError(f"A joined store cannot {what}; use the store it was made from.")


def swapping(swap: Swap, offset: int) -> tuple[str, Row]:
    """The statement of a swap in the caller's transaction, and its parameters."""
    lock = int.from_bytes(swap.draft.key.digest[:8], "big", signed=True)
    draft = swap.draft
    if swap.expected is None:
        if draft.origin is None:
            return sql.JOINED_INSERT, (*inserting(swap, offset), lock)
        return sql.JOINED_INSERT_TELLING, (*inserting(swap, offset), lock, draft.origin)
    if draft.event is None and draft.origin is None:
        return sql.JOINED_UPDATE, (*updating(swap, offset), lock)
    return sql.JOINED_UPDATE_TELLING, (*updating(swap, offset), lock, *(draft.event or NO_EVENT), draft.origin)


def pauses(wait: float) -> Iterator[float]:
    """Pauses of 1 ms growing to 50 ms, until `wait` seconds are over; at least two askings."""
    end = time.monotonic() + wait
    pause = 0.001
    yield pause
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(pause * 1.5, 0.05)
    yield 0.0


def notice(connection: BaseConnection[Any], swap: Swap) -> None:
    """A change follows a claim in the same transaction; there is none where somebody has ended it."""
    if swap.expected is not None and connection.pgconn.transaction_status == TransactionStatus.IDLE:
        warn_of_parting(swap.draft)


def check_open(connection: BaseConnection[Any]) -> None:
    """Without a transaction the claim would stand before the effect, and nothing would roll it back."""
    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise ConfigurationError(
            "The connection is in autocommit mode with no open transaction; open one with connection.transaction()."
        )
