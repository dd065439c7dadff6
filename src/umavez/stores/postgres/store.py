"""The PostgreSQL store (psycopg 3): postgresql://user:password@host:port/database?lanes=2&timeout=30.

`lanes` is the number of connections that carry swaps (one more, opened when needed, does the looking and sweeping);
`timeout` is how many seconds a statement may take, a silent server is waited for, and a call waits behind others;
every other parameter of the URL is libpq's. A swap that meets a transaction which holds its key waits at most 0.8 s and
then raises OperationInProgress. The account needs SELECT, INSERT, UPDATE, DELETE on idempotency_records and USAGE on
the sequence umavez_fence; only `migrate` needs CREATE. To keep a history it needs the same on umavez_events and
umavez_holders; without, everything else goes on.

Written once, in `_async`; the store for threads is written from it.
"""

from __future__ import annotations

from umavez.clock import Clock
from umavez.stores.postgres._async.store import AsyncPostgresStore
from umavez.stores.postgres._sync.store import PostgresStore

__all__ = ["AsyncPostgresStore", "PostgresStore", "open_async_store", "open_store"]


def open_store(url: str, clock: Clock) -> PostgresStore:
    """The store at `url`, not yet connected. Raises ConfigurationError when the URL is wrong."""
    return PostgresStore(url, clock)


def open_async_store(url: str, clock: Clock) -> AsyncPostgresStore:
    """The store at `url`, awaited."""
    return AsyncPostgresStore(url, clock)
