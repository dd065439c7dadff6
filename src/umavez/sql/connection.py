"""Sql: one small way to run statements on whatever SQL connection is at hand.

For the instruments that write in the caller's transaction or keep tables of their own (outbox, sequences,
row leases). Statements are written with `?`; a dialect's own text stands beside the others, by name.
Nothing here commits: whoever began the transaction ends it.
"""

from umavez.sql._async import AsyncSql
from umavez.sql._sync import Sql
from umavez.sql.dialect import Dialect, Row, async_close, close, dialect_of

__all__ = ["AsyncSql", "Dialect", "Row", "Sql", "async_close", "close", "dialect_of"]
