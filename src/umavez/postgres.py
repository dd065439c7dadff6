"""For a program that has connections of its own to the PostgreSQL in which umavez keeps its records."""

from __future__ import annotations

from umavez.errors import needs

with needs(__name__, "umavez[postgres]"):
    from umavez.stores.postgres._sync.upgrade import between_transactions
    from umavez.stores.postgres.hosts import patience
    from umavez.stores.postgres.uncancelled import UncancelledConnection
    from umavez.stores.postgres.url import given_in

__all__ = ["UncancelledConnection", "between_transactions", "given_in", "patience"]
