"""Index: where in Redis's sorted sets a record stands, and which parts of them a query must walk.

One set, `records`, holds every record once. Its score is a place, one digit, and an instant of 14 digits. Each
status has two places: one for records that last, by when they were created, and one for records that may be
swept, by when they expire. A first call then moves one entry, where an index for each status would add one
and remove another; the price is that finding settled records by age reads all that have their status.
Another set for each process instance holds its records by when they were created.
"""

from __future__ import annotations

from typing import NamedTuple

from umavez.core.record import Query, Status
from umavez.stores.redis.value import quoted

WIDTH = 10**14
"""How far one place is from the next; no instant reaches it."""

_LASTING = {Status.PENDING: 1, Status.UNKNOWN: 3, Status.FAILED: 5, Status.SUCCESS: 7}

SWEEPABLE = "".join(str(place - 1) for place in _LASTING.values())
"""The places whose records expire, as digits."""


class Walk(NamedTuple):
    """A part of the index `name`, from one score to another.

    `base` is what its scores add to the instant of creation; None where they are not in the order of age.
    """

    name: bytes
    lowest: int
    highest: int
    base: int | None


def place_of(status: Status, *, sweepable: bool) -> int:
    """The first digit of a record's score."""
    return _LASTING[status] - sweepable


def walks_for(query: Query) -> list[Walk]:
    """The parts of the indexes that together lead to every record that may match."""
    if query.process_instance is not None:
        return [Walk(b"instance:" + quoted(query.process_instance)[1:-1], 0, WIDTH, 0)]
    status = Status.PENDING if query.lapsed else query.status
    wanted = tuple(Status) if status is None else (status,)
    return [walk for each in wanted for walk in (_lasting(each), _expiring(each))]


def _lasting(status: Status) -> Walk:
    base = place_of(status, sweepable=False) * WIDTH
    return Walk(b"records", base, base + WIDTH - 1, base)


def _expiring(status: Status) -> Walk:
    lowest = place_of(status, sweepable=True) * WIDTH
    return Walk(b"records", lowest, lowest + WIDTH - 1, None)
