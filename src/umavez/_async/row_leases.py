"""Row leases: one worker at a time on a row of the caller's own table. See `umavez.row_leases`."""

from __future__ import annotations

from typing import Any

from umavez.core.key import Key
from umavez.errors import ClaimLost
from umavez.sql.connection import AsyncSql, Dialect
from umavez.sql.row_lease import LeasedTable, Statement


class AsyncRowLease:
    """Claims rows of one table by one conditional UPDATE. Nothing here commits: the caller does, at once.

    A claim that is not committed is no claim: other workers wait for the row, or do not see it taken.
    """

    def __init__(self, table: LeasedTable) -> None:
        self.table = table

    async def acquire(self, connection: Any, row: Any) -> AsyncRowClaim | None:
        """The claim on the row with this id; None when another worker holds it or its state is not free."""
        sql = await AsyncSql.on(connection)
        epoch = await self._claimed(sql, row)
        return None if epoch is None else AsyncRowClaim(self.table, row, epoch)

    async def recover(self, connection: Any, limit: int = 1000) -> list[Any]:
        """Set rows whose holder fell silent back to the recovered state, last_attempt NULL; returns their ids.

        Their epochs rise: a holder that wakes up can write nothing. Append what re-queues them in the same transaction.
        """
        sql = await AsyncSql.on(connection)
        found = await sql.rows(*self.table.abandoned(limit, sql.dialect))
        freed = []
        for (row,) in found:
            if await sql.count(*self.table.recovering(row, sql.dialect)) == 1:
                freed.append(row)
        return freed

    async def _claimed(self, sql: AsyncSql, row: Any) -> int | None:
        text, values = self.table.claiming(row, sql.dialect)
        if sql.dialect is Dialect.MARIADB:
            if await sql.count(text, values) == 0:
                return None
            return int((await sql.rows("SELECT LAST_INSERT_ID()"))[0][0])
        found = await sql.rows(text, values)
        return int(found[0][0]) if found else None


class AsyncRowClaim:
    """The right to write one row. `epoch` is its fence: every write names it, and none is done without it."""

    def __init__(self, table: LeasedTable, row: Any, epoch: int) -> None:
        self.row = row
        self.epoch = epoch
        self._table = table

    def guard(self) -> Statement:
        """A condition and its values for a statement of one's own; zero rows written means the claim is lost."""
        return self._table.guarded(self.row, self.epoch)

    async def renew(self, connection: Any) -> None:
        """Say that the work goes on. Raises ClaimLost when another worker has the row."""
        await self.write(connection)

    async def write(self, connection: Any, **columns: Any) -> None:
        """Set columns of the row and renew the claim. Raises ClaimLost, and then nothing was written."""
        sql = await AsyncSql.on(connection)
        text, values = self._table.writing(self.row, self.epoch, columns, sql.dialect)
        if await sql.count(text, values) != 1 and not await self._unchanged(sql):
            raise ClaimLost(Key(self._table.table, "row", str(self.row)))

    async def finish(self, connection: Any, status: str | None = None, **columns: Any) -> None:
        """Set the final state, and columns with it; the claim ends. Raises ClaimLost."""
        await self._end(connection, self._table.finished if status is None else status, columns)

    async def fail(self, connection: Any, status: str | None = None, **columns: Any) -> None:
        """Set the state of a failure, from which another worker may try again; the claim ends. Raises ClaimLost."""
        await self._end(connection, self._table.failed if status is None else status, columns)

    async def _end(self, connection: Any, status: str, columns: dict[str, Any]) -> None:
        await self.write(connection, **{**columns, self._table.status: status})

    async def _unchanged(self, sql: AsyncSql) -> bool:
        """Whether MariaDB counted no row only because the write changed nothing in it, by the row as it stands."""
        if sql.dialect is not Dialect.MARIADB:
            return False
        return bool(await sql.rows(*self._table.holding(self.row, self.epoch)))
