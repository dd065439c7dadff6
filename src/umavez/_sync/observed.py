# Written by tools/sync.py from src/umavez/_async/observed.py: change that, then run `make format`.
"""ObservedStore: a store that tells how long each of its answers took, and of each that did not come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from umavez.core.flow import Seen, Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Query, Record
from umavez.engine.observing import Observers, name_of, shaped
from umavez.errors import StoreError
from umavez.stores import Store

T = TypeVar("T")


def observed(store: Store, observers: Observers) -> Store:
    """`store` as it is where nobody wants to hear of its answers, or somebody hears of them already."""
    if not observers.clerks or isinstance(store, ObservedStore):
        return store
    made: Store = shaped(ObservedStore, type(store))(store, observers)
    return made


class ObservedStore:
    """Does what `plain` does, and tells `observers`. Whatever else `plain` has, it has too."""

    def __init__(self, plain: Store, observers: Observers, name: str = "", prefix: str = "") -> None:
        self.plain = plain
        self._observers = observers
        self._name = name or name_of(plain)
        self._prefix = prefix

    def read(self, key: Key) -> Seen:
        """See Store.read."""
        return self._asked("read", self.plain.read, key)

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """See Store.swap."""
        return self._asked("swap", self.plain.swap, expected, draft)

    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """See Store.sweep."""
        return self._asked("sweep", self.plain.sweep, limit, older_than)

    def find(self, query: Query) -> list[Record]:
        """See Store.find."""
        return self._asked("find", self.plain.find, query)

    def migrate(self) -> str:
        """See Store.migrate."""
        return self._asked("migrate", self.plain.migrate)

    def joined(self, connection: Any, wait: float = 10.0) -> Store:
        """See Store.joined. What is asked there is told apart: it may wait for a rival's transaction."""
        plain = self.plain.joined(connection, wait)
        made: Store = shaped(ObservedStore, type(plain))(plain, self._observers, self._name, "joined_")
        return made

    def close(self) -> None:
        """See Store.close."""
        self.plain.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def _asked(self, verb: str, ask: Callable[..., T], *words: Any) -> T:
        began = time.perf_counter()
        try:
            answer = ask(*words)
        except StoreError as error:
            self._observers.record_answer(self._name, self._prefix + verb, time.perf_counter() - began, error)
            raise
        self._observers.record_answer(self._name, self._prefix + verb, time.perf_counter() - began, None)
        return answer
