"""Shelf: deliveries of the queue that are here, unacknowledged, and not in a handler's hands.

They are given out in the order in which the queue gave them, and one that waits holds back what follows it in its
aggregate. One that came back waits for those of its aggregate that are still in hand: they come after it, and come
back too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from umavez.messaging.broker import Delivery

LOOK = 0.05
"""Seconds between looks at whether the later ones of an aggregate have come back, too."""


class Shelf:
    """As many as RabbitMQ sends ahead at most."""

    def __init__(self) -> None:
        self._deliveries: list[Delivery] = []
        self._not_before: dict[int, float] = {}
        """When those that came back may be given out again, by the queue's tag."""

    def put(self, deliveries: Sequence[Delivery]) -> None:
        """Have them here, as they came."""
        self._deliveries = sorted([*self._deliveries, *deliveries], key=_tag)

    def put_back(self, delivery: Delivery, pause: float = 0.0) -> None:
        """Have one here that was given out before, for at least `pause` seconds."""
        self._not_before[_tag(delivery)] = asyncio.get_running_loop().time() + pause
        self.put([delivery])

    def has_before(self, delivery: Delivery) -> bool:
        """Whether an earlier one of its aggregate is here."""
        name, tag = delivery.message.aggregate, _tag(delivery)
        return any(one.message.aggregate == name and _tag(one) < tag for one in self._deliveries)

    def take(self, limit: int, in_hand: Counter[str | None]) -> list[Delivery]:
        """Up to `limit` that may be handled now, with those that are `in_hand`; they are not here any more."""
        now = asyncio.get_running_loop().time()
        taken: list[Delivery] = []
        left: list[Delivery] = []
        held: set[str] = set()
        for delivery in self._deliveries:
            aggregate = delivery.message.aggregate
            if self._wait(delivery, now, in_hand) > 0 or aggregate in held or len(taken) == limit:
                left.append(delivery)
                held |= set() if aggregate is None else {aggregate}
            else:
                self._not_before.pop(_tag(delivery), None)
                taken.append(delivery)
        self._deliveries = left
        return taken

    def pause(self, in_hand: Counter[str | None]) -> float:
        """Seconds until it is worth looking for something to handle: 0 now, infinite when there is nothing."""
        now = asyncio.get_running_loop().time()
        return min((self._wait(delivery, now, in_hand) for delivery in self._deliveries), default=float("inf"))

    def _wait(self, delivery: Delivery, now: float, in_hand: Counter[str | None]) -> float:
        due, aggregate = self._not_before.get(_tag(delivery)), delivery.message.aggregate
        if due is None:
            return 0.0
        return max(due - now, LOOK if aggregate is not None and in_hand[aggregate] else 0.0)

    def cleared(self) -> list[Delivery]:
        """All of them; nothing is here any more."""
        deliveries, self._deliveries = self._deliveries, []
        self._not_before.clear()
        return deliveries


def _tag(delivery: Delivery) -> int:
    tag: int = delivery.tag.delivery_tag
    return tag
