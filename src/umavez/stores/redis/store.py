"""The Redis store: one JSON value per record, one Lua script for every transition.

What it promises depends on the server. Redis acknowledges before it replicates, syncs its log once a second
unless told otherwise, and evicts keys under memory pressure, so by default this store is best effort: after
a crash, a failover or an eviction an operation may run again. Do not keep money with it. `?strict=1`
refuses, at every connection, a server without `maxmemory-policy noeviction`, `appendonly yes` and
`appendfsync always`, or with replicas; where it is accepted, an acknowledged record stays. Settings changed
later are seen at the next connection. Fences never fall below the server's clock in microseconds, so that a
counter lost with its server does not begin again under fences that were given before.

Expiry is a comparison with the server's clock, as in every store; Redis's own TTL is housekeeping, set a
day later and only on records that may be swept. It removes values, not index entries: run `sweep()` now and
then. Running and unknown records are indexed by age; settled ones by expiry, so finding those reads all that
have their status, however few are asked for, and so does finding the newest first. A process instance or a
whole key is found directly.

Keys are `{prefix}:…` with the braces, a hash tag: in a cluster all records of one prefix live on one node.
The URL must name that node; redirections are not followed. Options: `prefix` (umavez), `strict` (0),
`timeout` and `connect_timeout` (5 seconds), `ca` (PEM file, for rediss://), `wait` (0): so many replicas must have
received a write, or it is StoreUncertain.

`redis+sentinel://host1,host2,host3/name` asks the sentinels for the master at every connection and makes sure that it
says so itself. Still best effort: a failover loses what no replica has, and with `wait=1` what the replicas that had it
lose, too.

Written once, in `_async`; the store for threads is written from it.
"""

from __future__ import annotations

from umavez.clock import Clock
from umavez.stores import AsyncStore, Store
from umavez.stores.redis._async.store import AsyncRedisStore
from umavez.stores.redis._sync.store import RedisStore

__all__ = ["AsyncRedisStore", "RedisStore", "open_async_store", "open_store"]


def open_store(url: str, clock: Clock) -> Store:
    """The store at `url`; it connects at the first use."""
    return RedisStore(url, clock)


def open_async_store(url: str, clock: Clock) -> AsyncStore:
    """The store at `url`, awaited; it connects at the first use."""
    return AsyncRedisStore(url, clock)
