"""The SQLite store: one file, nothing else needed.

One connection writes for the whole process, because several writers in one process only fight for the
lock; callers share its commits. Reads and replays have a connection of their own and touch no lock of
the writer's. `synchronous=FULL`: an outcome that was answered survives a power cut.

SQLite before 3.51.3 can damage a WAL file that two connections write and checkpoint at the same instant.
On such a library every umavez writer, in whatever process, takes a lock file around its transaction,
and joining the caller's own connection needs `?journal=delete`.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from umavez.clock import SYSTEM, Clock
from umavez.core.flow import Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Instant, Millis, Query, Record
from umavez.errors import ConfigurationError, SchemaOutdated, StoreUnavailable, StoreUncertain
from umavez.stores import AsyncStore, Store
from umavez.stores.grouping import ThreadGroup
from umavez.stores.rows import record_of
from umavez.stores.sqlite_sql import (
    NEXT_FENCES,
    SCHEMA_VERSION,
    SELECT,
    SWEEP,
    VERSION,
    Statements,
    fenced,
    finding,
    found,
    swapping,
)

WAL_IS_SAFE = sqlite3.sqlite_version_info >= (3, 51, 3)
BUSY_SECONDS = 10.0
JOURNALS = {"wal": "WAL", "delete": "DELETE"}


def open_store(url: str, clock: Clock) -> Store:
    """The store in the file that `url` names: sqlite:///relative.db, sqlite:////absolute.db[?journal=delete]."""
    return SqliteStore(*parsed(url), clock=clock)


def open_async_store(url: str, clock: Clock) -> AsyncStore:
    """The same for tasks."""
    from umavez.stores.sqlite_aio import AsyncSqliteStore  # noqa: PLC0415  # it builds on this module

    return AsyncSqliteStore(*parsed(url), clock=clock)


def parsed(url: str) -> tuple[Path, str]:
    """The file and the journal mode in `url`."""
    location, _, options = url.partition("?")
    prefix, _, path = location.partition(":///")
    if prefix != "sqlite" or not path or path == ":memory:":
        raise ConfigurationError(f"{url!r} names no file; use sqlite:///file.db, or memory: for a store without one.")
    choices = dict(parse_qsl(options))
    journal = choices.pop("journal", "wal")
    if choices or journal not in JOURNALS:
        raise ConfigurationError(f"{url!r}: the only option is journal=wal or journal=delete.")
    return Path(unquote(path)), journal


class SqliteStore:
    """Keeps records in one SQLite file. Shared by threads; several processes may use the file."""

    def __init__(self, path: Path, journal: str = "wal", *, clock: Clock = SYSTEM) -> None:
        self.file = SqliteFile(path, journal)
        self.clock = clock
        self._group = ThreadGroup([SqliteLane(self.file, clock)])

    def read(self, key: Key) -> Seen:
        """What stands under `key`."""
        row = self.file.first(SELECT, (key.digest,))
        return Seen(None if row is None else record_of(key, row), self.clock.now())

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands; a replay reads and takes no write lock."""
        stale = self.glance(expected, draft)
        return self._group.swap(Swap(expected, draft)) if stale is None else stale

    def glance(self, expected: str | None, draft: Draft) -> Stale | None:
        """Stale when a look already shows that the swap is too late: no write transaction is needed to know it."""
        if expected is not None:
            return None
        row = self.file.first(SELECT, (draft.key.digest,))
        return None if row is None else Stale(record_of(draft.key, row), self.clock.now())

    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` expired records."""
        edge = self.clock.now() - older_than
        with self.file.writing() as connection:
            return connection.execute(SWEEP, (edge, limit)).rowcount

    def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first."""
        return [found(row) for row in self.file.every(*finding(query, self.clock.now()))]

    def migrate(self) -> str:
        """Create the tables; they are also created when the file is first opened."""
        with self.file.writing():
            return f"The tables in {self.file.path} are at version {VERSION}."

    def joined(self, connection: Any, wait: float = 10.0) -> Store:
        """The same store on the caller's sqlite3 connection, in its transaction."""
        return JoinedSqliteStore(connection, self.clock)

    def close(self) -> None:
        """Close the file."""
        self._group.close()
        self.file.close()


class SqliteLane:
    """Carries batches over the file's writing connection."""

    def __init__(self, file: SqliteFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock

    def send(self, batch: Sequence[Swap]) -> Sequence[Swapped | Stale]:
        """Carry out the swaps in one transaction."""
        with self._file.writing() as connection:
            now = self._clock.now()
            fences = _set_aside(connection, sum(map(fenced, batch)))
            cursor = connection.cursor()
            return [carried_out(cursor, swapping(swap, now, next(fences) if fenced(swap) else None)) for swap in batch]

    def close(self) -> None:
        """The file closes its connections itself."""


class JoinedSqliteStore:
    """The store inside the caller's transaction. It never commits; sweeping and migrating are not its business."""

    def __init__(self, connection: Any, clock: Clock) -> None:
        if not isinstance(connection, sqlite3.Connection):
            raise ConfigurationError(f"A sqlite: store joins a sqlite3.Connection, not a {type(connection).__name__}.")
        self._connection = connection
        self._clock = clock
        with translated:
            refuse_unsafe_journal(connection.execute("PRAGMA journal_mode").fetchone()[0])

    def read(self, key: Key) -> Seen:
        """What stands under `key`, as the transaction sees it."""
        with translated:
            row = self._connection.execute(SELECT, (key.digest,)).fetchone()
        return Seen(None if row is None else record_of(key, row), self._clock.now())

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands, in the caller's transaction, which is begun if it was not."""
        with translated:
            if not self._connection.in_transaction:
                # IMMEDIATE: a transaction that reads first and writes later can be refused without waiting.
                self._connection.execute("BEGIN IMMEDIATE")
            return carried_out(self._connection.cursor(), swapping(Swap(expected, draft), self._clock.now()))

    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Refused: sweeping belongs to the store itself."""
        raise ConfigurationError("A joined store does not sweep; call sweep() on the engine.")

    def find(self, query: Query) -> list[Record]:
        """The records that match, as the transaction sees them."""
        with translated:
            return [found(row) for row in self._connection.execute(*finding(query, self._clock.now())).fetchall()]

    def migrate(self) -> str:
        """Refused: migrating belongs to the store itself."""
        raise ConfigurationError("A joined store does not migrate; call migrate() on the engine.")

    def joined(self, connection: Any, wait: float = 10.0) -> Store:
        """Another joined store."""
        return JoinedSqliteStore(connection, self._clock)

    def close(self) -> None:
        """Nothing: the connection is the caller's."""


def refuse_unsafe_journal(mode: str) -> None:
    """Raise ConfigurationError where joining could damage the file; see the module's text."""
    if mode == "wal" and not WAL_IS_SAFE:
        raise ConfigurationError(
            f"SQLite {sqlite3.sqlite_version} can damage a WAL file with two writers; open the store with "
            "?journal=delete to join transactions, or use SQLite 3.51.3 or later."
        )


def _set_aside(connection: sqlite3.Connection, many: int) -> Iterator[int]:
    """So many new fences, in one statement; those that no swap uses are lost."""
    last = connection.execute(NEXT_FENCES, (many,)).fetchone()[0] if many else 0
    return iter(range(last - many + 1, last + 1))


def carried_out(cursor: sqlite3.Cursor, statements: Statements) -> Swapped | Stale:
    """Execute the statements of a swap one after the other."""
    try:
        text, values = next(statements)
        while True:
            text, values = statements.send(cursor.execute(text, values).fetchone())
    except StopIteration as done:
        reply: Swapped | Stale = done.value
        return reply


class SqliteFile:
    """The connections to one file: one to write, one to read; both opened when needed, and anew after a fork."""

    def __init__(self, path: Path, journal: str) -> None:
        self.path = path
        self._journal = journal
        self._start_anew()
        _FILES.add(self)

    def _start_anew(self) -> None:
        self._write_lock = threading.RLock()
        self._read_lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._guard: int | None = None

    def first(self, text: str, values: tuple[Any, ...]) -> Any:
        """The first row of a query, or None."""
        with self._read_lock, translated:
            return self._reading().execute(text, values).fetchone()

    def every(self, text: str, values: tuple[Any, ...]) -> list[Any]:
        """Every row of a query."""
        with self._read_lock, translated:
            return self._reading().execute(text, values).fetchall()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: committed at the end, rolled back on any error. Raises StoreError."""
        with self._write_lock, translated:
            connection = self._opened_writer()
            with self._guarded():
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    self._commit(connection)
                except BaseException:
                    if connection.in_transaction:
                        connection.rollback()
                    raise

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                raise
            # SQLite rolled back or committed on its own; only the file knows which.
            raise StoreUncertain(f"SQLite did not confirm the commit ({error}).") from error

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """The lock file that keeps two processes from writing a WAL file together on an old library."""
        if self._guard is None:
            yield
            return
        import fcntl  # noqa: PLC0415  # exists on POSIX only, and only an old library needs it

        fcntl.flock(self._guard, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._guard, fcntl.LOCK_UN)

    def _reading(self) -> sqlite3.Connection:
        if self._reader is None:
            with self._write_lock:
                self._opened_writer()
            self._reader = self._connected()
        return self._reader

    def _opened_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            connection = self._connected()
            mode = connection.execute(f"PRAGMA journal_mode = {JOURNALS[self._journal]}").fetchone()[0]
            connection.execute("PRAGMA synchronous = FULL")
            if mode == "wal" and not WAL_IS_SAFE and os.name == "posix":
                self._guard = os.open(f"{self.path}-writer", os.O_CREAT | os.O_RDWR, 0o600)
            with self._guarded():
                _create_tables(connection)
            self._writer = connection
        return self._writer

    def _connected(self) -> sqlite3.Connection:
        try:
            return sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(f"The file {self.path} cannot be opened ({error}); check the folder.") from error

    def hold(self) -> None:
        """Wait until no thread is inside SQLite here, and keep it so.

        SQLite keeps its locks in the memory of the process: a child forked from within another thread's transaction
        would find the file locked for ever, by nobody.
        """
        self._read_lock.acquire()
        self._write_lock.acquire()

    def let_go(self) -> None:
        """The end of `hold`."""
        self._write_lock.release()
        self._read_lock.release()

    def forsake(self) -> None:
        """Begin anew in a forked child: connections and locks are the parent's."""
        # Closing the parent's connections here would drop the parent's locks on the file; they are only let go.
        _INHERITED.append((self._writer, self._reader))
        if self._guard is not None:
            # This copy would keep the lock of a parent that was killed while it held it.
            os.close(self._guard)
        self._start_anew()

    def close(self) -> None:
        """Close both connections."""
        with self._read_lock, self._write_lock:
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()
            self._reader = self._writer = None
            if self._guard is not None:
                os.close(self._guard)
                self._guard = None


_INHERITED: list[object] = []
"""Connections that belong to a parent process; kept so that they are never closed here."""

_FILES: weakref.WeakSet[SqliteFile] = weakref.WeakSet()
_HELD: list[SqliteFile] = []
_FORKING = threading.RLock()


def _hold_all() -> None:
    _FORKING.acquire()
    for file in list(_FILES):
        file.hold()
        _HELD.append(file)


def _let_all_go() -> None:
    while _HELD:
        _HELD.pop().let_go()
    _FORKING.release()


def _forsake_all() -> None:
    global _FORKING  # noqa: PLW0603  # the parent's thread holds the old one
    _FORKING = threading.RLock()
    _HELD.clear()
    for file in _FILES:
        file.forsake()


os.register_at_fork(before=_hold_all, after_in_parent=_let_all_go, after_in_child=_forsake_all)


def _create_tables(connection: sqlite3.Connection) -> None:
    script = files("umavez.stores").joinpath("schema/sqlite.sql").read_text()
    connection.executescript(f"BEGIN IMMEDIATE; {script} COMMIT;")
    version: Instant = connection.execute(SCHEMA_VERSION).fetchone()[0]
    if version > VERSION:
        raise SchemaOutdated(f"The tables are at version {version} and this umavez knows {VERSION}; upgrade umavez.")


class _Translation:
    """Turns the driver's errors into StoreError; whatever was begun has been rolled back."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not isinstance(error, sqlite3.Error):
            return
        if "no such table" in str(error) or "no such column" in str(error):
            raise SchemaOutdated("The tables are missing or old; run: umavez migrate --store URL.") from error
        raise StoreUnavailable(f"SQLite did not take it ({error}); nothing was written, try again.") from error


translated = _Translation()
"""One for all: it holds nothing, and every look at a record comes by."""
