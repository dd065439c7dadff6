"""Row leases: one conditional UPDATE claims, and no write passes without the epoch."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.instrument_benches import connect, connect_async, sql_url
from umavez import ClaimLost, ConfigurationError
from umavez.row_leases import AsyncRowLease, LeasedTable, RowLease
from umavez.sql.connection import AsyncSql, Dialect, Sql, dialect_of

__all__ = ["sql_url"]
TIMES = {
    Dialect.SQLITE: ("TEXT", "strftime('%Y-%m-%d %H:%M:%f000', 'now', '-31 seconds')"),
    Dialect.POSTGRES: ("timestamptz", "clock_timestamp() - interval '31 seconds'"),
    Dialect.MARIADB: ("DATETIME(6)", "UTC_TIMESTAMP(6) - INTERVAL 31 SECOND"),
}


class Mailings:
    """A table as the seed has it, with an epoch."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.table = f"mailings_{secrets.token_hex(4)}"
        self.connection = connect(url)
        self.dialect = dialect_of(self.connection)
        kind, self._past = TIMES[self.dialect]
        self.run(
            f"CREATE TABLE {self.table} (id VARCHAR(36) PRIMARY KEY, status VARCHAR(50) DEFAULT 'PENDING',"
            f" last_attempt {kind} NULL, epoch BIGINT NULL, subject VARCHAR(50) NULL)"
        )
        self.run(f"INSERT INTO {self.table} (id) VALUES ('m1')")

    def run(self, text: str, *values: Any) -> int:
        count = Sql.on(self.connection).count(text, values)
        self.connection.commit()
        return count

    def set(self, status: str) -> None:
        self.run(f"UPDATE {self.table} SET status = ?", status)

    def age(self) -> None:
        """Let the last attempt be 31 seconds ago, by the database's clock."""
        self.run(f"UPDATE {self.table} SET last_attempt = {self._past}")

    def row(self) -> tuple[Any, ...]:
        found = Sql.on(self.connection).rows(f"SELECT status, epoch, subject FROM {self.table}")[0]
        self.connection.commit()
        return tuple(found)

    def acquire(self) -> Any:
        claim = RowLease(LeasedTable(self.table)).acquire(self.connection, "m1")
        self.connection.commit()
        return claim


@pytest.fixture
def mailings(sql_url: str) -> Iterator[Mailings]:
    made = Mailings(sql_url)
    yield made
    made.connection.rollback()
    made.run(f"DROP TABLE {made.table}")
    made.connection.close()


@pytest.mark.parametrize("status", ["PENDING", "QUEUED", "FAILED"])
def test_a_free_row_is_claimed_once(mailings: Mailings, status: str) -> None:
    mailings.set(status)
    claim = mailings.acquire()
    assert (claim.row, claim.epoch) == ("m1", 1)
    assert mailings.acquire() is None
    assert mailings.row()[:2] == ("PROCESSING", 1)


@pytest.mark.parametrize("status", ["SENT", "CANCELLED"])
def test_a_row_in_another_state_is_not_claimed(mailings: Mailings, status: str) -> None:
    mailings.set(status)
    assert mailings.acquire() is None


def test_a_row_that_is_not_there_is_not_claimed(mailings: Mailings) -> None:
    assert RowLease(LeasedTable(mailings.table)).acquire(mailings.connection, "m2") is None


def test_a_stale_row_is_taken_over_and_its_first_holder_writes_nothing(mailings: Mailings) -> None:
    late = mailings.acquire()
    mailings.age()
    claim = mailings.acquire()
    assert claim.epoch == late.epoch + 1
    for write in (late.renew, late.write, late.finish, late.fail):
        with pytest.raises(ClaimLost):
            write(mailings.connection)
        mailings.connection.commit()
    with pytest.raises(ClaimLost):
        late.finish(mailings.connection, subject="too late")
    mailings.connection.commit()
    assert mailings.row() == ("PROCESSING", 2, None)
    claim.finish(mailings.connection, subject="in time")
    mailings.connection.commit()
    assert mailings.row() == ("SENT", 2, "in time")


def test_a_late_worker_that_read_the_row_before_it_was_taken_over_is_told_so(mailings: Mailings) -> None:
    """On MariaDB a transaction's reads are as old as its first; the claim must be judged by the row as it stands."""
    late = mailings.acquire()
    with closing(connect(mailings.url)) as woken:
        Sql(woken).rows(f"SELECT status FROM {mailings.table} WHERE id = 'm1'")
        if mailings.dialect is Dialect.SQLITE:
            woken.commit()
        mailings.age()
        assert mailings.acquire().epoch == late.epoch + 1
        for write in (late.renew, late.write, late.finish, late.fail):
            with pytest.raises(ClaimLost):
                write(woken)
        woken.rollback()


def test_a_late_task_that_read_the_row_before_it_was_taken_over_is_told_so(mailings: Mailings) -> None:
    async def work() -> None:
        lease = AsyncRowLease(LeasedTable(mailings.table))
        connection = await connect_async(mailings.url)
        late = await lease.acquire(connection, "m1")
        await connection.commit()
        await (await AsyncSql.on(connection)).rows(f"SELECT status FROM {mailings.table} WHERE id = 'm1'")
        if mailings.dialect is Dialect.SQLITE:
            await connection.commit()
        mailings.age()
        mailings.acquire()
        try:
            for write in (late.renew, late.write, late.finish, late.fail):
                with pytest.raises(ClaimLost):
                    await write(connection)
        finally:
            await connection.rollback()
            await asyncio.gather(*filter(None, [connection.close()]))

    asyncio.run(work())


def test_a_recovery_sets_a_silent_holder_back_and_fences_it(mailings: Mailings) -> None:
    lease = RowLease(LeasedTable(mailings.table))
    late = mailings.acquire()
    assert lease.recover(mailings.connection) == []
    mailings.connection.commit()
    mailings.age()
    assert lease.recover(mailings.connection) == ["m1"]
    mailings.connection.commit()
    assert mailings.row() == ("PENDING", 2, None)
    assert lease.recover(mailings.connection) == []
    with pytest.raises(ClaimLost):
        late.write(mailings.connection, subject="too late")
    mailings.connection.commit()
    assert mailings.acquire().epoch == 3


def test_processing_without_a_time_counts_as_stale(mailings: Mailings) -> None:
    mailings.set("PROCESSING")
    assert mailings.acquire().epoch == 1


def test_renewing_keeps_a_row(mailings: Mailings) -> None:
    claim = mailings.acquire()
    mailings.age()
    claim.renew(mailings.connection)
    mailings.connection.commit()
    assert mailings.acquire() is None


def test_a_failure_frees_the_row_for_another_worker(mailings: Mailings) -> None:
    claim = mailings.acquire()
    claim.fail(mailings.connection, subject="smtp down")
    mailings.connection.commit()
    assert mailings.row() == ("FAILED", 1, "smtp down")
    assert mailings.acquire().epoch == 2


def test_a_finished_claim_writes_nothing_more(mailings: Mailings) -> None:
    claim = mailings.acquire()
    claim.finish(mailings.connection, "DELIVERED")
    mailings.connection.commit()
    with pytest.raises(ClaimLost):
        claim.write(mailings.connection, subject="more")
    mailings.connection.commit()
    assert mailings.row() == ("DELIVERED", 1, None)


def test_writing_what_stands_there_already_is_no_loss(mailings: Mailings) -> None:
    claim = mailings.acquire()
    for _ in range(20):
        claim.write(mailings.connection, subject="same")
    mailings.connection.commit()
    assert mailings.row()[2] == "same"


def test_a_guard_goes_into_a_statement_of_ones_own(mailings: Mailings) -> None:
    late = mailings.acquire()
    mailings.age()
    claim = mailings.acquire()
    for holder, written in ((late, 0), (claim, 1)):
        text, values = holder.guard()
        assert mailings.run(f"UPDATE {mailings.table} SET subject = ? WHERE {text}", "mine", *values) == written


def test_of_many_workers_one_claims(mailings: Mailings) -> None:
    start, claims = threading.Barrier(12), []
    lease = RowLease(LeasedTable(mailings.table))

    def work() -> None:
        connection = connect(mailings.url)
        start.wait(30)
        claims.append(lease.acquire(connection, "m1"))
        connection.commit()
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(claims) == 12
    assert sum(claim is not None for claim in claims) == 1


def test_a_row_is_leased_by_a_task(mailings: Mailings) -> None:
    async def work() -> None:
        connection = await connect_async(mailings.url)
        lease = AsyncRowLease(LeasedTable(mailings.table))
        claim = await lease.acquire(connection, "m1")
        await connection.commit()
        assert claim is not None
        assert await lease.acquire(connection, "m1") is None
        await claim.renew(connection)
        await claim.finish(connection, subject="async")
        await connection.commit()
        with pytest.raises(ClaimLost):
            await claim.write(connection, subject="more")
        await connection.rollback()
        await asyncio.gather(*filter(None, [connection.close()]))

    asyncio.run(work())
    assert mailings.row() == ("SENT", 1, "async")


BAD = ["", "A", "1a", "a b", "a;b", 'a"', "a'", "a`", "a.b", "a--", "é", "a" * 49, "a\n", "drop table x", "a%s", "a?"]


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("field", ["table", "id", "status", "last_attempt", "epoch"])
def test_a_name_that_could_be_sql_is_refused(name: str, field: str) -> None:
    with pytest.raises(ConfigurationError):
        LeasedTable(**{"table": "mailings", field: name})


@pytest.mark.parametrize("name", [*BAD, "id", "epoch", "last_attempt"])
def test_a_column_that_could_be_sql_or_break_the_lease_is_refused(mailings_table: LeasedTable, name: str) -> None:
    with pytest.raises(ConfigurationError):
        mailings_table.writing("m1", 1, {name: 1}, Dialect.SQLITE)


@pytest.fixture
def mailings_table() -> LeasedTable:
    return LeasedTable("mailings")
