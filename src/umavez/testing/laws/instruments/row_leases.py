"""The laws of row leases. Each is a function of a RowBench that raises AssertionError when broken."""

# ruff: noqa: S608 - the table's name is drawn here; values travel as parameters

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from umavez.errors import ClaimLost
from umavez.row_leases import LeasedTable, RowLease
from umavez.sql.connection import Dialect, Sql

_MOMENT = {Dialect.SQLITE: "TEXT", Dialect.POSTGRES: "timestamptz", Dialect.MARIADB: "DATETIME(6)"}


class RowBench:
    """A table of its own with one free row, 1, and the lease on it; `connect` opens a driver's connection."""

    def __init__(self, connect: Callable[[], Any], lease: Callable[[LeasedTable], RowLease] = RowLease) -> None:
        self._connect = connect
        self.name = f"umavez_law_{secrets.token_hex(6)}"
        self.lease = lease(LeasedTable(self.name, stale=30.0))
        self.session(self._create)

    def _create(self, connection: Any) -> None:
        sql = Sql.on(connection)
        moment = _MOMENT[sql.dialect]
        sql.count(
            f"CREATE TABLE {self.name} (id BIGINT PRIMARY KEY, status VARCHAR(20), last_attempt {moment}, epoch BIGINT)"
        )
        sql.count(f"INSERT INTO {self.name} VALUES (1, 'PENDING', NULL, 0)")

    def session(self, work: Callable[[Any], Any]) -> Any:
        """What `work(connection)` gives, in a transaction of its own."""
        connection = self._connect()
        try:
            given = work(connection)
            connection.commit()
            return given
        finally:
            connection.close()

    def acquired(self) -> Any:
        """The claim on the row, committed; None when it cannot be had."""
        return self.session(lambda connection: self.lease.acquire(connection, 1))

    def fall_silent(self) -> None:
        """Let the row's last sign of life be long ago."""
        text = f"UPDATE {self.name} SET last_attempt = '2001-01-01 00:00:00.000000'"
        self.session(lambda connection: Sql.on(connection).count(text))

    def status(self) -> str:
        """What the row says."""
        text = f"SELECT status FROM {self.name}"
        return str(self.session(lambda connection: Sql.on(connection).rows(text))[0][0])

    def drop(self) -> None:
        """Remove the table."""
        self.session(lambda connection: Sql.on(connection).count(f"DROP TABLE {self.name}"))


Law = Callable[[RowBench], None]


def one_worker_has_a_row(bench: RowBench) -> None:
    """Whoever comes while it works gets nothing."""
    assert bench.acquired() is not None, "a free row could not be had"
    assert bench.acquired() is None, "two workers have one row"


def a_silent_holder_is_overtaken_under_a_higher_epoch(bench: RowBench) -> None:
    """Nobody waits for a dead worker for ever."""
    first = bench.acquired()
    bench.fall_silent()
    second = bench.acquired()
    assert second is not None, "the row of a silent holder cannot be had"
    assert second.epoch > first.epoch, "the epoch did not rise with the takeover"


def an_overtaken_holder_writes_nothing(bench: RowBench) -> None:
    """Woken up, it is told, and the row stays as the new holder left it."""
    late = bench.acquired()
    bench.fall_silent()
    assert bench.acquired() is not None
    for end in ("renew", "finish", "fail"):
        try:
            bench.session(getattr(late, end))
        except ClaimLost:
            continue
        raise AssertionError(f"{end}() told an overtaken holder that it succeeded")
    assert bench.status() == "PROCESSING"


def what_is_finished_is_not_done_again(bench: RowBench) -> None:
    """However silent it is; what failed may be tried again."""
    claim = bench.acquired()
    bench.session(claim.fail)
    again = bench.acquired()
    assert again is not None, "a failed row cannot be tried again"
    bench.session(again.finish)
    bench.fall_silent()
    assert bench.acquired() is None, "a finished row was claimed"


def recovery_frees_the_silent_and_nobody_else(bench: RowBench) -> None:
    """And the silent one writes nothing afterwards."""
    late = bench.acquired()
    assert bench.session(bench.lease.recover) == [], "a row was taken from a living holder"
    bench.fall_silent()
    assert bench.session(bench.lease.recover) == [1], "the row of a silent holder was not recovered"
    try:
        bench.session(late.finish)
    except ClaimLost:
        return
    raise AssertionError("a holder whose row was recovered finished it")


LAWS: tuple[Law, ...] = (
    one_worker_has_a_row,
    a_silent_holder_is_overtaken_under_a_higher_epoch,
    an_overtaken_holder_writes_nothing,
    what_is_finished_is_not_done_again,
    recovery_frees_the_silent_and_nobody_else,
)
