"""The statements of MariaDB and SQLite as texts: whole ones repeat each other's columns, held together here."""

from __future__ import annotations

import pytest

from umavez.core.telling.events import MOST_EVENTS
from umavez.stores import rows
from umavez.stores.mariadb import statements as mariadb
from umavez.stores.sqlite import statements as sqlite

INSERTED = f"( {rows.KEY}, fence, created_at, updated_at, {rows.WRITE} )"
PLAIN, JOINED = mariadb.Texts(0), mariadb.Texts(0, joined=True)


@pytest.mark.parametrize("text", [PLAIN.insert, PLAIN.change, PLAIN.take, PLAIN.read, mariadb.FIND])
def test_mariadb_reads_a_record_in_the_order_of_rows(text: str) -> None:
    assert text.count(rows.READ) == 1


def test_mariadb_claims_with_the_insert_it_repeats_blindly() -> None:
    assert PLAIN.insert.count(INSERTED) == 1
    assert f" ELSE {PLAIN.insert}; END IF;" in PLAIN.claim
    assert PLAIN.claim.count(rows.READ) == 2


@pytest.mark.parametrize("text", [PLAIN.change, PLAIN.take])
def test_mariadb_changes_a_draft_in_the_order_of_rows(text: str) -> None:
    text = text.replace(PLAIN.now, "now")
    set_, end = text.index("stamp = %s"), text.index(" WHERE digest = X%s AND")

    assert [part.split(" = ")[0] for part in text[set_:end].split(", ")] == rows.WRITE.split(", ")


def test_mariadb_takes_as_it_changes_but_for_the_fence() -> None:
    assert PLAIN.take == PLAIN.change.replace(":= fence)", f":= {mariadb.FENCE})")


@pytest.mark.parametrize("name", ["claim", "change", "take"])
def test_mariadb_joined_locks_what_it_shows_and_does_nothing_else(name: str) -> None:
    plain, joined = getattr(PLAIN, name), getattr(JOINED, name)

    assert joined.count(" FOR UPDATE;") == 1
    assert joined.replace(" FOR UPDATE;", ";") == plain


def test_sqlite_reads_and_writes_in_the_order_of_rows() -> None:
    assert all(text.count(rows.READ) == 1 for text in (sqlite.SELECT, sqlite.FIND))
    assert sqlite.INSERT.count(INSERTED.replace(" fence,", " id, fence,")) == 1  # the id is given: the first fence
    assert all(text.count(f"( {rows.WRITE} ) = (") == 1 for text in (sqlite.UPDATE, sqlite.TAKE))


def test_sqlite_takes_as_it_updates_but_for_the_beginning() -> None:
    beginning = "fence = coalesce(?, fence), created_at = CASE WHEN ? THEN ? ELSE created_at END, "

    assert sqlite.UPDATE.replace("SET ", f"SET {beginning}") == sqlite.TAKE


@pytest.mark.parametrize(
    ("text", "marks"), [(sqlite.INSERT, 21), (sqlite.UPDATE, 16), (sqlite.TAKE, 19), (sqlite.SELECT, 1)]
)
def test_sqlite_has_a_mark_for_each_value(text: str, marks: int) -> None:
    assert text.count("?") == marks


@pytest.mark.parametrize("name", ["change", "take"])
def test_mariadb_tells_in_the_change_it_belongs_to(name: str) -> None:
    plain, telling = getattr(JOINED, name), getattr(JOINED, f"{name}_telling")

    assert telling.replace(f" {mariadb.EVENT}", "") == plain
    assert telling != plain
    assert f"OFFSET {MOST_EVENTS})" in mariadb.EVENT
    assert "umavez_events" not in plain


@pytest.mark.parametrize("texts", [PLAIN, JOINED])
@pytest.mark.parametrize("name", ["claim", "insert"])
def test_mariadb_claims_with_an_origin_as_without_but_for_the_column(texts: mariadb.Texts, name: str) -> None:
    plain, telling = getattr(texts, name), getattr(texts, f"{name}_telling")

    assert telling.replace(", origin", "").replace(", %s, %s, %s, %s, %s, %s )", ", %s, %s, %s, %s, %s )") in (
        plain,
        plain.replace("%s, %s, %s, %s, %s )", "%s, %s, %s, %s, %s, %s )"),
    )
    assert telling.count("%s") == plain.count("%s") + 1
    assert "origin" not in plain


@pytest.mark.parametrize("name", ["change", "take"])
def test_mariadb_keeps_an_origin_in_the_change_it_belongs_to(name: str) -> None:
    plain, alone, both = (getattr(JOINED, f"{name}{kind}") for kind in ("", "_from", "_telling_from"))

    assert alone.replace(f" {mariadb.ORIGINATED}", "") == plain
    assert both.replace(f" {mariadb.EVENT} {mariadb.ORIGINATED}", "") == plain
    assert plain != alone != both


def test_sqlite_keeps_and_shows_an_origin_behind_all_else() -> None:
    assert sqlite.SELECT_TELLING.replace("evidence, origin", "evidence") == sqlite.SELECT
    inserted = sqlite.INSERT_TELLING.replace("evidence, origin", "evidence")
    assert inserted.replace("?, ?, ?, ?, ?, ? ) ON", "?, ?, ?, ?, ? ) ON") == sqlite.INSERT
    assert all("origin" not in text for text in (sqlite.SELECT, sqlite.INSERT, sqlite.UPDATE, sqlite.TAKE))
