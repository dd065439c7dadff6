"""Connections to an SQLite file: those of the store, shared by a process, and a plain one for anybody else.

SQLite before 3.51.3 can damage a WAL file that two connections write and checkpoint at the same instant.
On such a library every umavez writer, in whatever process, takes a lock file around its transaction,
and joining the caller's own connection needs `?journal=delete`.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from umavez.concurrency.after_fork import reset_after_fork
from umavez.concurrency.shelter import sheltered
from umavez.errors import ConfigurationError, StoreUnavailable, StoreUncertain
from umavez.stores.sqlite.errors import beyond_trying, explained, translated
from umavez.stores.sqlite.schema import create_tables, whole
from umavez.stores.sqlite.turns import BUSY, Guard, Turn, busy_seconds, guarding
from umavez.stores.sqlite.url import JOURNALS, parsed

T = TypeVar("T")
WAL_IS_SAFE = sqlite3.sqlite_version_info >= (3, 51, 3)
BUSY_SECONDS = 10.0


def connect(url: str, *, read_only: bool = False) -> sqlite3.Connection:
    """A plain connection to the file of `url`, in autocommit mode; made where it is missing, unless `read_only`.

    Its journal stays as its application made it unless the URL says otherwise. Raises StoreUnavailable where there is
    no such file, and ConfigurationError for writing a WAL file on an SQLite that two writers can damage.
    """
    path, journal = parsed(as_made(url))
    timeout = busy_seconds(url, BUSY_SECONDS)
    # Read-only where that is enough: even a look at a WAL file may otherwise end in writing it back.
    return _open(path, "ro", timeout) if read_only else _open_to_write(path, journal, timeout)


def connect_beside(url: str) -> sqlite3.Connection:
    """The same for those who write while the store does: with the journal that `url` means to the store.

    The file may have another one yet, until the store opens it.
    """
    return _open_to_write(*parsed(url), busy_seconds(url, BUSY_SECONDS))


def _open_to_write(path: Path, journal: str, timeout: float) -> sqlite3.Connection:
    refuse_unsafe_journal(journal)  # before the file is touched: setting the mode is written into it
    connection = _open(path, "rwc", timeout)
    try:
        refuse_unsafe_journal(connection.execute(f"PRAGMA journal_mode = {JOURNALS[journal]}").fetchone()[0])
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def as_made(url: str) -> str:
    """`url` with the journal that its file has already, unless it names one itself.

    For those who come to look after a file that its application made: looking must not change it. Raises
    StoreUnavailable where it is no database, or a damaged one: whatever else there is to say of it matters less.
    """
    path, _ = parsed(url)
    if "journal=" in url.partition("?")[2] or not path.is_file() or not path.stat().st_size:
        return url
    try:
        # Through SQLite: closing a file that was opened beside it would drop this process's locks on it.
        with closing(_open(path, "ro")) as connection:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    except sqlite3.Error as error:
        if beyond_trying(error):
            raise explained(error) from error
        return url  # held by somebody: whoever opens it next waits for them
    return f"{url}{'&' if '?' in url else '?'}journal={'wal' if mode == 'wal' else 'delete'}"


def existing(url: str) -> str:
    """`as_made`, for a file that must be there. Raises ConfigurationError where it is not."""
    path, _ = parsed(url)
    if not path.is_file():
        raise ConfigurationError(
            f"There is no file {path}; correct the URL, or make the file with: umavez migrate --store URL."
        )
    return as_made(url)


def begin(connection: sqlite3.Connection) -> None:
    """Begin a transaction that writes. IMMEDIATE: one that reads first and writes later can be refused unwaited."""
    connection.execute("BEGIN IMMEDIATE")


def _open(path: Path, mode: str, timeout: float = BUSY_SECONDS) -> sqlite3.Connection:
    place = f"{path.absolute().as_uri()}?mode={mode}"
    try:
        return sqlite3.connect(place, timeout=timeout, isolation_level=None, check_same_thread=False, uri=True)
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(f"The file {path} cannot be opened ({error}); check the folder.") from error


def refuse_unsafe_journal(mode: str) -> None:
    """Raise ConfigurationError where joining could damage the file; see the module's text."""
    if mode == "wal" and not WAL_IS_SAFE:
        raise ConfigurationError(
            f"SQLite {sqlite3.sqlite_version} can damage a WAL file with two writers; open the store with "
            "?journal=delete to join transactions, or use SQLite 3.51.3 or later."
        )


class SqliteFile:
    """The connections to one file: to write, to read one record, to search; each opened when needed, anew after a fork.

    One that is `read_only` makes and changes nothing, not even the tables.
    """

    def __init__(self, path: Path, journal: str, timeout: float = BUSY_SECONDS, *, read_only: bool = False) -> None:
        self.path = path
        self.timeout = timeout
        self._journal = journal
        self._read_only = read_only
        self._begin()
        reset_after_fork(self)

    def _begin(self) -> None:
        self._write_lock = Turn(threading.RLock(), self.timeout)
        # Taken again by its own thread: a signal handler may look at a record in the middle of another look.
        self._read_lock = threading.RLock()
        self._search_lock = Turn(threading.Lock(), self.timeout)
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._searcher: sqlite3.Connection | None = None
        self._guard: Guard | None = None

    def first(self, text: str, values: tuple[Any, ...]) -> Any:
        """The first row of a query, or None. What a signal handler raises meanwhile leaves nothing half done.

        Every replay comes by, so it is written out: with `Turn`, `translated` and a shelter around it, a replay
        took 16.9 µs instead of 14.9.
        """
        held: list[bool] = []
        try:
            # One step of the interpreter: taken and not noted, the lock would never be given back.
            held.extend(map(self._read_lock.acquire, (True,), (self.timeout,)))
            if held[0]:
                if self._reader is None:
                    self._reader = self._opened_reader()
                return self._reader.execute(text, values).fetchone()
        except Exception as error:
            if (meant := explained(error)) is error:
                raise
            raise meant from error
        finally:
            if held and held[0]:
                self._read_lock.release()
        raise StoreUnavailable(BUSY.format(self.timeout), waited=True)

    def glance(self, text: str, values: tuple[Any, ...]) -> Any:
        """As `first`, by the connection that writes where it is idle.

        It knows the pages that it has just written, while a reader forgets the whole file whenever somebody commits:
        4 µs of a lone caller's first call. Whoever is in the middle of a transaction is not looked past.
        """
        held: list[bool] = []
        try:
            held.extend(map(self._write_lock.acquire, (False,)))  # as in `first`
            writer = self._writer if held[0] else None
            if writer is not None and not writer.in_transaction:
                return writer.execute(text, values).fetchone()
        except Exception as error:
            if (meant := explained(error)) is error:
                raise
            raise meant from error
        finally:
            if held and held[0]:
                self._write_lock.release()
        return self.first(text, values)

    def every(self, text: str, values: tuple[Any, ...]) -> list[Any]:
        """Every row of a query, which may take long: on a connection of its own, so that no look at a record waits."""
        with self._search_lock, translated:
            if self._searcher is None:
                self._searcher = self._opened_reader()
            return self._searcher.execute(text, values).fetchall()

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` gives, in a transaction: committed at its end, rolled back on any error. Raises StoreError.

        A function, where a `with` block would read as well: made of a generator, that took a tenth of a claim's time.
        """
        if not self._write_lock.acquire(True, self.timeout):
            raise StoreUnavailable(BUSY.format(self.timeout), waited=True)
        try:
            connection = self._writer or self._opened_writer()
            if self._guard is None:
                return self._transact(connection, work)
            with self._guard:
                return self._transact(connection, work)
        except Exception as error:
            if (meant := explained(error)) is error:
                raise
            raise meant from error
        finally:
            self._write_lock.release()

    def _transact(self, connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            # Inside: interrupted right after it, the transaction must not stay open.
            connection.execute("BEGIN IMMEDIATE")
            done = work(connection)
            self._commit(connection)
        except BaseException as error:
            self._undo(connection, error)
            raise
        return done

    def _undo(self, connection: sqlite3.Connection, error: BaseException) -> None:
        """Roll back. After an interruption nobody knows what is half-read on the connection, so it is dropped too."""
        try:
            if connection.in_transaction:
                connection.rollback()
        except sqlite3.Error:
            self._drop_writer(connection)
            return
        if not isinstance(error, Exception):
            self._drop_writer(connection)

    def _drop_writer(self, connection: sqlite3.Connection) -> None:
        self._writer = None
        connection.close()

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                raise
            # SQLite rolled back or committed on its own; only the file knows which.
            raise StoreUncertain(
                f"SQLite did not confirm the commit ({error}); send the same call again to learn what stands."
            ) from error

    @sheltered
    def _opened_reader(self) -> sqlite3.Connection:
        if self._read_only:
            return _open(self.path, "ro", self.timeout)
        if self._writer is None:  # or the tables are there, and nobody has to wait for whoever is writing
            with self._write_lock:
                self._opened_writer()
        return _open(self.path, "rwc", self.timeout)

    def _opened_writer(self) -> sqlite3.Connection:
        if self._read_only:
            raise ConfigurationError(f"{self.path} was opened to be looked at; open it with open_store() to write.")
        if self._writer is None:
            connection = _open(self.path, "rwc", self.timeout)
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._writer = connection
        return self._writer

    def _prepare(self, connection: sqlite3.Connection) -> None:
        mode = connection.execute(f"PRAGMA journal_mode = {JOURNALS[self._journal]}").fetchone()[0]
        connection.execute("PRAGMA synchronous = FULL")
        if mode == "wal" and not WAL_IS_SAFE and os.name == "posix" and self._guard is None:
            self._guard = Guard(f"{self.path}-writer", self.timeout)
        if not whole(connection):  # else nobody is waited for: it may be the caller's own transaction that writes
            with guarding(self._guard):
                create_tables(connection)

    def hold(self) -> None:
        """Wait until no thread is inside SQLite here, and keep it so.

        SQLite keeps its locks in the memory of the process: a child forked from within another thread's transaction
        would find the file locked for ever, by nobody.
        """
        self._search_lock.acquire()
        self._read_lock.acquire()
        self._write_lock.acquire()

    def let_go(self) -> None:
        """The end of `hold`."""
        self._write_lock.release()
        self._read_lock.release()
        self._search_lock.release()

    def reset(self) -> None:
        """Begin anew in a forked child: connections and locks are the parent's."""
        # Closing the parent's connections here would drop the parent's locks on the file; they are only let go.
        _INHERITED.append((self._writer, self._reader, self._searcher))
        if self._guard is not None:
            # This copy would keep the lock of a parent that was killed while it held it.
            self._guard.close()
        self._begin()

    def close(self) -> None:
        """Close every connection."""
        self.hold()
        try:
            for connection in (self._searcher, self._reader, self._writer):
                if connection is not None:
                    connection.close()
            self._searcher = self._reader = self._writer = None
            if self._guard is not None:
                self._guard.close()
                self._guard = None
        finally:
            self.let_go()


_INHERITED: list[object] = []
"""Connections that belong to a parent process; kept so that they are never closed here."""
