"""Stores: where records are kept. A store swaps records; it knows no rules."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from umavez.clock import SYSTEM, Clock
from umavez.core.flow import Seen, Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Query, Record
from umavez.errors import ConfigurationError


class Store(Protocol):
    """Keeps records and swaps them.

    Failures are StoreError: StoreUnavailable when nothing was written, StoreUncertain when the
    answer was lost. A store may be shared by threads (an AsyncStore by tasks of one loop).
    """

    def read(self, key: Key) -> Seen:
        """What stands under `key`, dead or alive, with the store's time. For looking, never for deciding."""
        ...

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Atomically put `draft` where the record stamped `expected` stands (None: where nothing stands).

        `lease_until` and `expires_at` are computed from the store's own clock. `created_at` (unless
        `draft.fresh`) and the fence (unless `draft.claims`) are carried over from the record replaced; a claim
        gets a fence above every fence this store ever gave. A swap sent twice is done once: the second answer
        is Stale with a current record that bears `draft.stamp`.
        """
        ...

    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` records that expired at least `older_than` ago; returns how many.

        Housekeeping: no verdict changes because of it, and no fence repeats after it.
        """
        ...

    def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first."""
        ...

    def migrate(self) -> str:
        """Create or upgrade the tables; returns one sentence on what was done. Safe to repeat."""
        ...

    def joined(self, connection: Any, wait: float = 10.0) -> Store:
        """The same store inside the caller's open transaction. Raises ConfigurationError where it cannot be.

        A rival's uncommitted claim is waited for up to `wait` seconds, then OperationInProgress is raised.
        """
        ...

    def close(self) -> None:
        """Give connections back. Safe to repeat."""
        ...


class AsyncStore(Protocol):
    """A Store whose verbs are awaited."""

    async def read(self, key: Key) -> Seen:
        """See Store.read."""
        ...

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """See Store.swap."""
        ...

    async def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """See Store.sweep."""
        ...

    async def find(self, query: Query) -> list[Record]:
        """See Store.find."""
        ...

    async def migrate(self) -> str:
        """See Store.migrate."""
        ...

    def joined(self, connection: Any, wait: float = 10.0) -> AsyncStore:
        """See Store.joined."""
        ...

    async def close(self) -> None:
        """See Store.close."""
        ...


BACKENDS = {
    "memory": ("umavez.stores.memory", ""),
    "sqlite": ("umavez.stores.sqlite", ""),
    "postgresql": ("umavez.stores.postgres", "postgres"),
    "postgres": ("umavez.stores.postgres", "postgres"),
    "mariadb": ("umavez.stores.mariadb", "mariadb"),
    "mysql": ("umavez.stores.mariadb", "mariadb"),
    "redis": ("umavez.stores.redis", "redis"),
    "rediss": ("umavez.stores.redis", "redis"),
}


def open_store(url: str, *, clock: Clock = SYSTEM) -> Store:
    """The store that `url` names. Raises ConfigurationError for an unknown scheme or a missing driver."""
    store: Store = _backend(url).open_store(url, clock)
    return store


def open_async_store(url: str, *, clock: Clock = SYSTEM) -> AsyncStore:
    """The async store that `url` names; see `open_store`."""
    store: AsyncStore = _backend(url).open_async_store(url, clock)
    return store


def _backend(url: str) -> Any:
    scheme = url.partition(":")[0]
    if scheme not in BACKENDS or ":" not in url:
        raise ConfigurationError(
            f"{without_password(url)!r} is not a store; use memory:, sqlite:///file, postgresql://…, mariadb://… or redis://…."
        )
    module, extra = BACKENDS[scheme]
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if not extra:
            raise
        raise ConfigurationError(
            f"{scheme} needs {missing.name}, which is not installed; run: pip install 'umavez[{extra}]'."
        ) from missing


def without_password(url: str) -> str:
    """`url` as it may be shown: the password, if any, replaced by stars."""
    head, at, tail = url.rpartition("@")
    scheme, slashes, user = head.partition("://")
    if not at or ":" not in user:
        return url
    return f"{scheme}{slashes}{user.partition(':')[0]}:***@{tail}"
