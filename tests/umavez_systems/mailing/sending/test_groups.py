"""Groups: which entries are taken, in which order, and that nobody walks over a whole list to find them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.umavez_systems.mailing.conftest import query
from tests.umavez_systems.mailing.far import ingested
from umavez_systems.database import Connection, Row
from umavez_systems.mailing.database import ENTRIES_IN
from umavez_systems.mailing.domain import Entry
from umavez_systems.mailing.sending import groups
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier

MANY = 20_000


class Explaining:
    """A connection that says how a statement would be carried out, instead of doing so."""

    def __init__(self, real: Connection) -> None:
        self._real = real
        self.raw = real.raw
        self.plans: list[str] = []

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        how = "EXPLAIN" if hasattr(self.raw, "pgconn") else "EXPLAIN QUERY PLAN"
        self.plans.append(str(self._real.rows(f"{how} {sql}", values)))
        return [{"many": 0}] if "count(*)" in sql else []

    def row(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        return next(iter(self.rows(sql, values)), None)


def listed(many: int) -> bytes:
    return b"email\n" + b"".join(b"u%05d@b.com\n" % one for one in range(many))


def test_s2_09_no_list_is_walked_over_to_find_the_few(carrier: Carrier, settings: Settings) -> None:
    mailing, holding = ingested(carrier, listed(MANY))
    query(settings, "UPDATE mailing_entries SET status = 'SENT' WHERE email < 'u19000'")
    query(settings, "UPDATE mailing_entries SET status = 'UNKNOWN' WHERE email < 'u00020'")
    query(settings, "UPDATE mailing_entries SET depois_de = 5 WHERE email > 'u19990'")
    query(settings, "ANALYZE mailing_entries")
    dialect = carrier.mailing.cases.dialect
    with carrier.database.transaction() as connection:
        asked = Explaining(connection)
        groups.due_entries(asked, dialect, holding.row, 8)
        groups.put_off(asked, mailing)
        asked.rows(dialect.next_due, (mailing,))
        groups.doubts(asked, dialect, mailing, mailing, 8)
        groups.into_doubt(asked, dialect, mailing)
        groups.fresh_entries(asked, dialect, holding.row, "u19000", 8)
        asked.rows(ENTRIES_IN[Entry.UNKNOWN], (mailing, mailing, 8))
    waiting, status, address = "ix_mailing_entries_depois_de", "idx_mailing_entries_status", "unique_mailing_email"
    if settings.database.startswith("sqlite"):
        address = "sqlite_autoindex_mailing_entries_2"
    wanted = [waiting, waiting, waiting, status, status, address, status]
    assert [name for name, plan in zip(wanted, asked.plans, strict=True) if name not in plan] == [], asked.plans


@pytest.mark.parametrize("cursor", ["", "u00003@b.com", "u99999@b.com"])
def test_who_waited_comes_first_and_nobody_behind_the_cursor_is_forgotten(
    carrier: Carrier, settings: Settings, cursor: str
) -> None:
    mailing, holding = ingested(carrier, listed(8))
    query(settings, "UPDATE mailing_entries SET depois_de = 2 WHERE email = 'u00006@b.com'")
    query(settings, "UPDATE mailing_entries SET depois_de = 1 WHERE email = 'u00001@b.com'")
    query(settings, "UPDATE mailing_entries SET depois_de = 9000000000000 WHERE email = 'u00002@b.com'")
    holding._cursor = cursor
    taken: list[str] = []
    while entries := holding.turn([], 3, "x").entries:
        taken += [entry["email"][:6] for entry in entries]
    assert taken[:2] == ["u00001", "u00006"]
    assert sorted(taken[2:]) == ["u00000", "u00003", "u00004", "u00005", "u00007"]
    assert carrier.mailing.cases.mailing("local", mailing)["pendentes"] == 1
