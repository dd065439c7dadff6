"""What went wrong at SQLite, in umavez's words; the driver's error stays as the cause."""

from __future__ import annotations

import sqlite3

from umavez.errors import TABLES_MISSING, NotStorable, SchemaOutdated, StoreError, StoreUnavailable

_REPAIRS = {
    sqlite3.SQLITE_READONLY: "make the file and its folder writable",
    sqlite3.SQLITE_FULL: "make room on its disk",
    sqlite3.SQLITE_CORRUPT: "restore the file, for it is damaged",
    sqlite3.SQLITE_NOTADB: "correct the URL, or restore the file",
}
"""What to do about a failure that trying again does not end."""


def translate(error: BaseException) -> StoreError | None:
    """What a driver's error means; None for an error of somebody else. Whatever was begun has been rolled back."""
    if not isinstance(error, sqlite3.Error):
        return None
    if "no such table" in str(error) or "no such column" in str(error):
        return SchemaOutdated(TABLES_MISSING)
    repair = _REPAIRS.get(_failure(error), "try again")
    return StoreUnavailable(
        f"SQLite did not take it ({error}); nothing was written, {repair}.", waited="locked" in str(error)
    )


def beyond_trying(error: sqlite3.Error) -> bool:
    """Whether the file itself has to be seen to before anything can go on."""
    return _failure(error) in _REPAIRS


def _failure(error: sqlite3.Error) -> int:
    # The low byte is the failure, the rest its kind. Errors that the module raises by itself have no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def tries(_: BaseException | None) -> int:
    """0: SQLite knows no deadlock between transactions that begin by taking the lock, and has waited for it already."""
    return 0


def explained(error: BaseException) -> BaseException:
    """What a driver's error means; NotStorable for a value that it cannot take, and somebody else's error as it is."""
    if isinstance(error, UnicodeEncodeError | OverflowError) or "binding parameter" in str(error):
        return NotStorable(f"A value of this write cannot be kept by SQLite ({error}); correct it.")
    return translate(error) or error


class _Translation:
    """Turns the driver's errors into `explained` ones."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None and (meant := explained(error)) is not error:
            raise meant from error


translated = _Translation()
"""One for all: it holds nothing."""
