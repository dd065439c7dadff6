"""Flow: a conversation with a store, with the I/O left out.

A flow yields `Read` or `Swap` and is sent what the store answered. `drive` in `umavez/_async/attempt.py` carries
it to a store; its synchronous twin is written from it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, TypeVar, final

from umavez.core.key import Key
from umavez.core.record import Draft, Instant, Record

T = TypeVar("T")


class Read(NamedTuple):
    """Ask for the record under `key`; answered by `Seen`."""

    key: Key


class Swap(NamedTuple):
    """Ask to put `draft` where the record stamped `expected` stands (None: where nothing stands).

    Answered by `Swapped` or `Stale`.
    """

    expected: str | None
    draft: Draft


class Seen(NamedTuple):
    """What stood under the key, and the store's time."""

    current: Record | None
    now: Instant


@final
class Swapped(NamedTuple):
    """The draft stands. `fence` is the record's, `now` the store's time at the write."""

    fence: int
    now: Instant


class Stale(NamedTuple):
    """Somebody was faster. `current` stands there now (None: nothing does)."""

    current: Record | None
    now: Instant


Command = Read | Swap
Reply = Seen | Swapped | Stale
Flow = Generator[Command, Reply, T]
SwapReply = Swapped | Stale
SwapFlow = Generator[Swap, SwapReply, T]
