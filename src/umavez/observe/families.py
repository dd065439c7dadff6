"""Families of metrics: made once for each registry, and with no more members than a server can keep."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from umavez.errors import needs

with needs(__name__, "umavez[metrics]"):
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics import MetricWrapperBase


M = TypeVar("M", bound=MetricWrapperBase)
T = TypeVar("T")

MOST_NAMES = 200
"""Different first labels (operations, topics, subscribers) that are told apart."""
OTHER = "other"
"""What all further ones are called."""

_SHARED: WeakKeyDictionary[CollectorRegistry, dict[type[Any], Any]] = WeakKeyDictionary()
_LOCK = threading.Lock()


def shared(registry: CollectorRegistry, kind: type[T], make: Callable[[CollectorRegistry], T]) -> T:
    """The families of this kind on `registry`, made by the first who asks."""
    with _LOCK:
        made = _SHARED.setdefault(registry, {})
        if kind not in made:
            made[kind] = make(registry)
        found: T = made[kind]
        return found


class Bounded(Generic[M]):
    """A family whose members are bound to their labels once. The first label is a name that others choose."""

    def __init__(self, family: M) -> None:
        self._family = family
        self._members: dict[tuple[str, ...], M] = {}
        self._names: set[str] = set()

    def of(self, *labels: str) -> M:
        """The member with these labels."""
        member = self._members.get(labels)
        return self._made(labels) if member is None else member

    def _made(self, labels: tuple[str, ...]) -> M:
        name, *rest = labels
        with _LOCK:
            if name not in self._names and len(self._names) >= MOST_NAMES:
                # Not remembered under its own name: what has no end to it must not be kept here either.
                return self._family.labels(OTHER, *rest)
            self._names.add(name)
            member = self._members[labels] = self._family.labels(*labels)
            return member
