"""The MariaDB store: PyMySQL for threads, asyncmy for tasks.

Written once, in `_async`; the store for threads is written from it.
"""

from __future__ import annotations

from umavez.clock import Clock
from umavez.stores import AsyncStore, Store
from umavez.stores.mariadb._async.store import AsyncMariadbStore
from umavez.stores.mariadb._sync.store import MariadbStore
from umavez.stores.mariadb.url import address_of

__all__ = ["AsyncMariadbStore", "MariadbStore", "open_async_store", "open_store"]


def open_store(url: str, clock: Clock) -> Store:
    """The store at `url`; connects at first use. Raises ConfigurationError for a URL that names none."""
    return MariadbStore(address_of(url), clock)


def open_async_store(url: str, clock: Clock) -> AsyncStore:
    """The async store at `url`; see `open_store`."""
    return AsyncMariadbStore(address_of(url), clock)
