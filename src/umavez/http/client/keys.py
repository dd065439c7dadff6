"""Journal: the keys a client has made, on disk before the first byte of their request is sent.

A client that dies between sending and hearing the answer finds the same key again, so that sending again is a
repeat and not a second payment.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from umavez.concurrency.after_fork import reset_after_fork
from umavez.errors import UmavezError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS umavez_client_keys (
    intent      TEXT PRIMARY KEY,
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    request     TEXT NOT NULL,
    created_at  REAL NOT NULL,
    finished_at REAL,
    status      INTEGER
)"""
_COLUMNS = "intent, key, fingerprint, request, created_at, finished_at, status"


_INHERITED: list[object] = []
"""Connections of a parent process; kept so that they are never closed here, which would drop the parent's locks."""


class Entry(NamedTuple):
    """One key: what it is for, which request it goes with, and the final status once that is known."""

    intent: str
    key: str
    fingerprint: str
    request: str
    created_at: float
    finished_at: float | None
    status: int | None


class IntentChanged(UmavezError):
    """The same intent was journaled with another request; nothing was sent."""

    def __init__(self, intent: str) -> None:
        super().__init__(
            f"{intent!r} was begun with another request; send that one again, or name this one differently."
        )
        self.intent = intent


class Journal:
    """Keys by intent, in one SQLite file. Safe for threads and for several processes.

    Holds no bodies: a resumed request is made again by the code that knows what it is for.
    """

    def __init__(self, path: str | Path) -> None:
        self._lock = threading.Lock()
        self._path = path
        # Keys are as good as the payments they stand for: nobody else on this machine may read them.
        if str(path) != ":memory:":
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._connection: sqlite3.Connection | None = None
        self._execute(_SCHEMA)
        reset_after_fork(self)

    def _execute(self, text: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        """Execute a statement, under the lock; a forked child opens a connection of its own for its first."""
        if self._connection is None:
            connection = sqlite3.connect(self._path, timeout=10, isolation_level=None, check_same_thread=False)
            # FULL: the key must outlive a power cut, or the request after it would carry another.
            connection.execute("PRAGMA synchronous=FULL")
            self._connection = connection
        return self._connection.execute(text, values)

    def hold(self) -> None:
        """Wait until no thread is inside, and keep it so."""
        self._lock.acquire()

    def let_go(self) -> None:
        """The end of `hold`."""
        self._lock.release()

    def reset(self) -> None:
        """What a forked child does: a file's connection is the parent's; what is in memory is a copy, and its own."""
        self._lock = threading.Lock()
        if str(self._path) != ":memory:":
            _INHERITED.append(self._connection)
            self._connection = None

    def begin(self, intent: str | None, fingerprint: str, request: str) -> Entry:
        """The key for `intent`: the one kept, or a new one, on disk when this returns. Raises IntentChanged.

        Without an intent every call is a new one; such a key is found again among `unfinished`.
        """
        key = str(uuid4())
        name = f"once:{key}" if intent is None else intent
        with self._lock:
            self._execute(
                f"INSERT OR IGNORE INTO umavez_client_keys ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, NULL, NULL)",  # noqa: S608 - constants
                (name, key, fingerprint, request, time.time()),
            )
            entry = self._read(name)
        if entry is None:
            return self.begin(intent, fingerprint, request)  # forgotten by somebody else in between
        if entry.fingerprint != fingerprint:
            raise IntentChanged(name)
        return entry

    def finish(self, intent: str, status: int) -> None:
        """Keep that `intent` has its final answer; a repeat still sends the same key."""
        with self._lock:
            self._execute(
                "UPDATE umavez_client_keys SET finished_at = ?, status = ? WHERE intent = ? AND finished_at IS NULL",
                (time.time(), status, intent),
            )

    def reopen(self, intent: str) -> None:
        """Take back what `finish` kept: the request is sent again, and its answer is not known until it is heard."""
        with self._lock:
            self._execute(
                "UPDATE umavez_client_keys SET finished_at = NULL, status = NULL WHERE intent = ?",
                (intent,),
            )

    def unfinished(self) -> list[Entry]:
        """Requests that may have been sent and whose answer was never heard, oldest first."""
        with self._lock:
            rows = self._execute(
                f"SELECT {_COLUMNS} FROM umavez_client_keys WHERE finished_at IS NULL ORDER BY created_at"  # noqa: S608 - constants
            ).fetchall()
        return [Entry(*row) for row in rows]

    def get(self, intent: str) -> Entry | None:
        """What is kept for `intent`, or None."""
        with self._lock:
            return self._read(intent)

    def forget(self, intent: str) -> None:
        """Drop an intent: the next request under its name gets a new key."""
        with self._lock:
            self._execute("DELETE FROM umavez_client_keys WHERE intent = ?", (intent,))

    def sweep(self, older_than: float) -> int:
        """Drop what was finished at least `older_than` seconds ago; returns how many. Unfinished ones stay."""
        with self._lock:
            return self._execute(
                "DELETE FROM umavez_client_keys WHERE finished_at <= ?", (time.time() - older_than,)
            ).rowcount

    def _read(self, intent: str) -> Entry | None:
        row = self._execute(
            f"SELECT {_COLUMNS} FROM umavez_client_keys WHERE intent = ?",  # noqa: S608 - constants
            (intent,),
        ).fetchone()
        return None if row is None else Entry(*row)

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
