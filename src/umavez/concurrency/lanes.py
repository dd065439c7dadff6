"""Lanes: connections that carry swaps, and what a batch on one of them is answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from umavez.concurrency.batching import Answer, Reply, Resent, Shunned
from umavez.core.flow import Swap


class Lane(Protocol):
    """One connection that carries swaps. It repairs itself: a failed connection is replaced at the next send."""

    def send(self, batch: Sequence[Swap]) -> Sequence[Reply]:
        """Carry out swaps of different keys, in one commit; all or none. Raises StoreError.

        A single swap whose key another transaction holds raises OperationInProgress, or a StoreError that is `blocked`.
        After any error, its own or another's, the connection is fit for use.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class AsyncLane(Protocol):
    """A Lane that is awaited. A cancelled send drops its connection."""

    async def send(self, batch: Sequence[Swap]) -> Sequence[Reply]:
        """See Lane.send."""
        ...

    def forget(self) -> None:
        """Give up a connection that was in the middle of a call when its event loop ended."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


def sent(lane: Lane, swaps: list[Swap], shunned: Shunned) -> list[Answer]:
    """The answers to a batch. A batch that fails is sent again one by one: one bad swap must not fail its
    neighbours, and a swap that was done already is recognised by its stamp."""
    try:
        return list(lane.send(swaps))
    except Exception as error:  # noqa: BLE001  # a swap may hold whatever a caller passed; it must fail alone
        resent = Resent(error, shunned)
        for swap in swaps:
            resent.add(swap, resent.given_up() or _alone(lane, swap))
        return resent.answers


def _alone(lane: Lane, swap: Swap) -> Answer:
    try:
        return lane.send((swap,))[0]
    except Exception as error:  # noqa: BLE001  # it is this swap's answer
        return error


async def async_sent(lane: AsyncLane, swaps: list[Swap], shunned: Shunned) -> list[Answer]:
    """See `sent`."""
    try:
        return list(await lane.send(swaps))
    except Exception as error:  # noqa: BLE001  # as in sent
        resent = Resent(error, shunned)
        for swap in swaps:
            resent.add(swap, resent.given_up() or await _aalone(lane, swap))
        return resent.answers


async def _aalone(lane: AsyncLane, swap: Swap) -> Answer:
    try:
        return (await lane.send((swap,)))[0]
    except Exception as error:  # noqa: BLE001  # as in _alone
        return error
