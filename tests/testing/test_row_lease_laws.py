"""The laws of row leases: kept on every database, and broken by leases that are broken on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.instrument_benches import connect, sql_url
from umavez.row_leases import LeasedTable, RowLease
from umavez.sql.connection import Dialect
from umavez.sql.row_lease import Statement
from umavez.testing.laws.instruments import row_leases as laws

__all__ = ["sql_url"]


@pytest.fixture
def bench(sql_url: str) -> Iterator[laws.RowBench]:
    made = laws.RowBench(lambda: connect(sql_url))
    yield made
    made.drop()


@pytest.mark.parametrize("law", laws.LAWS, ids=lambda law: law.__name__)
def test_row_leases_obey(law: laws.Law, bench: laws.RowBench) -> None:
    law(bench)


class Unguarded(LeasedTable):
    """Writes by id alone."""

    def guarded(self, row: Any, epoch: int) -> Statement:
        return f"{self.id} = ?", (row,)


class Greedy(LeasedTable):
    """Takes a row whoever has it."""

    def claiming(self, row: Any, dialect: Dialect) -> Statement:
        return f"UPDATE {self.table} SET status = ?, epoch = epoch + 1 WHERE id = ? RETURNING epoch", (self.busy, row)


class Impatient(LeasedTable):
    """Recovers whatever is busy."""

    def _stale(self, dialect: Dialect) -> Any:
        return "+1000 seconds"


class Patient(LeasedTable):
    """Waits for the dead."""

    def _stale(self, dialect: Dialect) -> Any:
        return "-100 years"


BROKEN = [
    (Greedy, laws.one_worker_has_a_row),
    (Greedy, laws.what_is_finished_is_not_done_again),
    (Unguarded, laws.an_overtaken_holder_writes_nothing),
    (Patient, laws.a_silent_holder_is_overtaken_under_a_higher_epoch),
    (Impatient, laws.recovery_frees_the_silent_and_nobody_else),
]


@pytest.mark.parametrize(("table", "law"), BROKEN)
def test_the_law_that_names_the_fault_catches_it(
    table: Callable[..., LeasedTable], law: laws.Law, tmp_path: Path
) -> None:
    bench = laws.RowBench(
        lambda: connect(f"sqlite:///{tmp_path}/rows.db"), lambda given: RowLease(table(given.table, stale=given.stale))
    )
    with pytest.raises(AssertionError):
        law(bench)
