"""Joined: what working in the caller's transaction asks for, without I/O. The stores are in `_async/joined.py`."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from umavez.core.key import Key
from umavez.errors import ConfigurationError, OperationInProgress, StoreUnavailable, UmavezError
from umavez.stores import refuse_other_database

BUSY_TIMEOUT = "PRAGMA busy_timeout"
DATABASES = "PRAGMA database_list"
JOURNAL = "PRAGMA journal_mode"


def refuse_other_kinds(connection: Any) -> None:
    """Raise ConfigurationError for what is not a connection of the standard library's driver."""
    if not isinstance(connection, sqlite3.Connection):
        raise ConfigurationError(f"A sqlite: store joins a sqlite3.Connection, not a {type(connection).__name__}.")


def async_refuse_other_kinds(connection: Any) -> None:
    """Raise ConfigurationError for what is not awaited, as aiosqlite's connections are."""
    if not inspect.iscoroutinefunction(getattr(connection, "commit", None)):
        raise ConfigurationError(
            f"A sqlite: store joins a sqlite3 or aiosqlite connection, not a {type(connection).__name__}."
        )


def refuse_other_file(databases: Iterable[Any], path: Path) -> None:
    """Raise ConfigurationError unless the main database of a connection, by its list of them, is the file `path`.

    By the file itself, not by its name: links and relative paths lead to one file.
    """
    main = next((file for _, name, file in databases if name == "main"), "")
    try:
        if main and path.samefile(main):
            return
    except OSError:  # one of them does not exist, so they are not the same
        pass
    refuse_other_database(main, str(path))


def held(error: StoreUnavailable, key: Key) -> UmavezError:
    """What a joined swap that was refused means: a rival's open transaction is an operation in progress."""
    return OperationInProgress(key, 1.0) if error.waited else error
