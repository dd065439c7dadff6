"""A connection to an SQLite file, whose journal stays as its application made it unless the URL says otherwise."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from umavez.errors import SchemaOutdated, StoreError, StoreUnavailable
from umavez.stores.sqlite import BUSY_SECONDS, parsed, refuse_unsafe_journal

ERRORS = (sqlite3.Error,)


@contextmanager
def connected(url: str, *, writing: bool) -> Iterator[sqlite3.Connection]:
    """The file of `url`; writing makes it where it is missing, and begins a transaction.

    Raises ConfigurationError for a WAL file on an SQLite that two writers can damage.
    """
    path, journal = parsed(url)
    # Read-only where that is enough: even a look at a WAL file may otherwise end in writing it back.
    place = f"{path.absolute().as_uri()}?mode={'rwc' if writing else 'ro'}"
    try:
        connection = sqlite3.connect(place, timeout=BUSY_SECONDS, isolation_level=None, uri=True)
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(f"The file {path} cannot be opened ({error}); is it there?") from error
    with closing(connection):
        if writing:
            chosen = " = DELETE" if journal == "delete" else ""
            refuse_unsafe_journal(connection.execute(f"PRAGMA journal_mode{chosen}").fetchone()[0])
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
        yield connection


def meaning(error: Exception) -> StoreError:
    """What a driver's error says."""
    if "no such table" in str(error) or "no such column" in str(error):
        return SchemaOutdated(str(error))
    return StoreUnavailable(f"SQLite did not take it ({error}); nothing was written, try again.")
