# Written by tools/sync.py from src/umavez/stores/mariadb/_async/joined.py: change that, then run `make format`.
"""The MariaDB store inside the caller's transaction: its claim and outcome commit with the caller's own work.

Every read that decides locks the row and so sees the newest, whatever the caller's isolation level: a
snapshot from before a rival's commit would show nothing there, for ever.
"""

from __future__ import annotations

from typing import Any, NoReturn

from umavez.clock import Clock
from umavez.core.flow import Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Millis, Query, Record
from umavez.errors import ConfigurationError
from umavez.stores import refuse_other_database
from umavez.stores.keeping import Keeping, bare, telling
from umavez.stores.mariadb._sync.connection import drained
from umavez.stores.mariadb.drivers import Connection, Cursor, refuse_other_kinds
from umavez.stores.mariadb.errors import FAILURES, ROUNDS, stubborn
from umavez.stores.mariadb.events import KEEPS
from umavez.stores.mariadb.joined import DATABASE, KNOWN, check_ready, database_of, failed_joined, patient
from umavez.stores.mariadb.statements import Rows, Statement, answer, finding, found, reading, seen, swapping, texts_at


class JoinedMariadbStore:
    """Swaps on the caller's connection. It never commits and never rolls back."""

    def __init__(
        self, connection: Any, clock: Clock, wait: float, database: str, keeping: Keeping | None = None
    ) -> None:
        refuse_other_kinds(connection, Connection)
        self._connection = connection
        self._clock = clock
        self._wait = wait
        self._database = database
        self._keeping = keeping or Keeping()

    def read(self, key: Key) -> Seen:
        """What stands under `key`, as the caller's transaction sees it."""
        self._check_database()
        (rows,) = self._run(reading(texts_at(self._clock.offset), key))
        return seen(key, rows)

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Put `draft` where `expected` stands. A rival's uncommitted record is waited for, then OperationInProgress."""
        check_ready(self._connection, expected, draft)
        self._check_database()
        texts = texts_at(self._clock.offset, joined=True)
        swap = Swap(expected, draft)
        if telling(draft) and not self._keeps():
            swap = bare(swap)
        for round_ in range(ROUNDS):
            (rows,) = self._run(patient(swapping(texts, swap, again=round_ > 0), self._wait), draft.key)
            reply = answer(swap, rows)
            if reply is not None:
                return reply
        raise stubborn()

    def _keeps(self) -> bool:
        """Whether there are tables for events, asked when the first is to be kept."""
        there = self._keeping.there
        if there is None:
            (((found,),),) = self._run(KEEPS)
            there = self._keeping.learn(there=bool(found))
        return there

    def find(self, query: Query) -> list[Record]:
        """The records that match, oldest first."""
        texts = texts_at(self._clock.offset)
        (((now,),),) = self._run(texts.clock())
        (rows,) = self._run(finding(query, now))
        return found(rows)

    def _check_database(self) -> None:
        if self._connection not in KNOWN:
            ((row,),) = self._run(DATABASE)
            KNOWN[self._connection] = database_of(row)
        refuse_other_database(KNOWN[self._connection], self._database)

    def _run(self, statement: Statement, key: Key | None = None) -> list[Rows]:
        try:
            with self._connection.cursor(Cursor) as cursor:
                cursor.execute(statement.text, statement.values)
                return drained(cursor)
        except FAILURES as error:
            raise failed_joined(error, key, self._wait) from error

    def sweep(self, limit: int, older_than: Millis = 0) -> NoReturn:
        """Refused: housekeeping does not belong into a caller's transaction."""
        raise ConfigurationError("A joined store does not sweep; call sweep() on the store itself.")

    def migrate(self) -> NoReturn:
        """Refused: CREATE TABLE would commit the caller's transaction."""
        raise ConfigurationError("A joined store does not migrate; call migrate() on the store itself.")

    def joined(self, connection: Any, wait: float = 10.0) -> NoReturn:
        """Refused: it is joined already."""
        raise ConfigurationError("This store is joined already; call joined() on the store itself.")

    def close(self) -> None:
        """Nothing: the connection is the caller's."""
