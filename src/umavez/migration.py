"""Migration: one function that makes every table, for `umavez migrate`, `umavez serve` and whoever deploys."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from umavez.messaging.tables.causes import making
from umavez.sequences import version as sequences
from umavez.sql.connection import Dialect, Sql
from umavez.sql.database import writing
from umavez.sql.flow import SqlFlow, carry
from umavez.sql.migration import migration
from umavez.stores import holds_tables, open_store, part_of

Migration = Callable[[str], str]
"""Makes tables at a URL, if they can be there; says in a sentence what was done. Safe to repeat."""


def migrate(url: str, *others: Migration) -> list[str]:
    """Create or upgrade all tables at `url`: records, messages and sequences, then those of `others`.

    Returns a sentence about each. Safe to repeat, and from several hosts at once: one of them does it and the others
    wait. Raises StoreError, SchemaOutdated where a newer umavez made them, and ConfigurationError for a wrong URL.
    """
    with closing(open_store(url)) as store:
        told = [store.migrate()]
    if not holds_tables(url):
        return told
    # A transaction for each: while one waits for a moment, nobody waits for what the other has changed.
    told += [_within(url, partial(_made, tables)) for tables in (making, _numbering)]
    return told + [other(url) for other in others]


def _numbering(dialect: Dialect) -> SqlFlow[str]:
    return migration(sequences.PACKAGE, sequences.NAME, sequences.VERSION, dialect)


def _made(tables: Callable[[Dialect], SqlFlow[str]], connection: Any) -> str:
    sql = Sql(connection)
    return carry(tables(sql.dialect), sql)


def _within(url: str, work: Callable[[Any], str]) -> str:
    """What `work` says, in a transaction of its own."""
    if not url.startswith("sqlite:"):
        with writing(url, "tables") as connection:
            return work(connection)
    # The store's own way to write, which takes turns with other processes even where a WAL file needs that.
    opened = part_of(url, "connection").SqliteFile(*part_of(url, "url").parsed(url))
    with closing(opened) as file:
        said: str = file.write(work)
    return said
