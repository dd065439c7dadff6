"""Families of metrics: made once for each registry, and with no more members than a server can keep."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast
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
# A signal handler may make a call while its own thread is inside: it must not wait for itself.
_LOCK = threading.RLock()


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
        self._inside = False
        self._put_off: list[tuple[tuple[str, ...], str, tuple[float, ...]]] = []

    def of(self, *labels: str) -> M:
        """The member with these labels."""
        member = self._members.get(labels)
        return self._made(labels) if member is None else member

    def _made(self, labels: tuple[str, ...]) -> M:
        with _LOCK:
            if self._inside:
                # The family has a lock of its own, which the thread holds that a signal handler has interrupted here.
                return cast("M", _PutOff(labels, self._put_off))
            self._inside = True
            try:
                member = self._bound(labels)
                while self._put_off:
                    late, verb, amounts = self._put_off.pop()
                    getattr(self._bound(late), verb)(*amounts)
                return member
            finally:
                self._inside = False

    def _bound(self, labels: tuple[str, ...]) -> M:
        name, *rest = labels
        if name not in self._names and len(self._names) >= MOST_NAMES:
            # Not remembered under its own name: what has no end to it must not be kept here either.
            return self._family.labels(OTHER, *rest)
        self._names.add(name)
        member = self._members.get(labels)
        if member is None:
            member = self._members[labels] = self._family.labels(*labels)
        return member


class _PutOff:
    """A member that cannot be made at this moment; what it is told is counted when it can."""

    def __init__(self, labels: tuple[str, ...], later: list[tuple[tuple[str, ...], str, tuple[float, ...]]]) -> None:
        self._labels = labels
        self._later = later

    def __getattr__(self, verb: str) -> Callable[..., None]:
        return lambda *amounts: self._later.append((self._labels, verb, amounts))
