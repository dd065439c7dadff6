"""The statements as texts: whole ones repeat each other's columns, and here they are held together."""

from __future__ import annotations

import re

import pytest

from umavez.core.telling.events import MOST_EVENTS
from umavez.stores import rows
from umavez.stores.postgres import statements as sql

TIMES = {"created_at", "updated_at", "lease_until", "expires_at"}
READ = ", ".join(
    f"(date_part('epoch', c.{name}) * 1000)::bigint" if name in TIMES else f"c.{name}" for name in rows.READ.split(", ")
)
GATE = re.compile(r"gate AS MATERIALIZED \( SELECT CASE .*? END AS opened \), ")


READING = ["INSERT", "UPDATE", "JOINED_INSERT", "JOINED_UPDATE", "BATCH", "BATCH_PLAIN", "SEEN", "FOUND"]


@pytest.mark.parametrize("name", READING)
def test_a_record_is_read_in_the_order_of_rows(name: str) -> None:
    assert getattr(sql, name).count(READ) == 1


@pytest.mark.parametrize(
    ("name", "times"),
    [("INSERT", 1), ("UPDATE", 1), ("UPDATE_PLAIN", 1), ("JOINED_INSERT", 1), ("JOINED_UPDATE", 1), ("BATCH", 2)],
)
def test_a_draft_is_written_in_the_order_of_rows(name: str, times: int) -> None:
    inserted = f"( {rows.KEY}, fence, created_at, updated_at, {rows.WRITE} )"
    updated = f"( {rows.WRITE} ) = ROW("

    assert getattr(sql, name).count(inserted) + getattr(sql, name).count(updated) == times


def test_a_draft_takes_the_same_parameters_wherever_it_is_written() -> None:
    drafts = {
        re.search(r"(\$6::text, .*\$18::text)", text)[1]  # type: ignore[index]  # there, or the test fails
        for text in (sql.INSERT, sql.UPDATE, sql.UPDATE_PLAIN, sql.JOINED_INSERT, sql.JOINED_UPDATE)
    }

    assert len(drafts) == 1
    assert re.findall(r"\$(\d+)", drafts.pop()) == [str(number) for number in range(6, 19)]


@pytest.mark.parametrize(("joined", "plain"), [("JOINED_INSERT", "INSERT"), ("JOINED_UPDATE", "UPDATE")])
def test_a_joined_swap_is_the_plain_one_behind_a_gate(joined: str, plain: str) -> None:
    opened, gates = GATE.subn("", getattr(sql, joined))
    opened = opened.replace("FROM now, gate WHERE gate.opened AND ", "FROM now WHERE ")

    assert gates == 1
    assert opened == getattr(sql, plain)


def test_a_plain_update_is_the_update_that_looks_at_nothing_else() -> None:
    written = re.search(r"UPDATE idempotency_records .* r\.stamp = \$3::text RETURNING", sql.UPDATE)

    assert written
    assert sql.UPDATE_PLAIN.count(written[0]) == 1
    assert sql.UPDATE_PLAIN.count("idempotency_records") == 1


def test_a_plain_batch_writes_what_its_swaps_bring_and_nothing_that_they_do_not() -> None:
    """First claims have no outcome yet; a change of a first attempt leaves attempt, fence and birth alone."""
    changed = set(re.findall(r"([a-z_]+) = ", sql.BATCH_PLAIN.partition("SET ")[2].partition(" FROM unnest(")[0]))
    inserted = set(re.findall(r"INSERT INTO idempotency_records \( (.*?) \)", sql.BATCH_PLAIN)[0].split(", "))
    columns = set(rows.WRITE.split(", "))

    assert changed == columns - {"attempt"} | {"updated_at"}
    assert inserted == set(rows.KEY.split(", ")) | {"fence", "created_at", "updated_at"} | columns - {
        "expires_at",
        "result_data",
        "error_message",
        "progress",
    }


def test_what_a_plain_batch_unpacks_is_what_it_is_given() -> None:
    unpacked = re.findall(r"unnest\( ([^()]*?) \) AS i \( (.*?) \)", sql.BATCH_PLAIN)
    (changes, changed), (claims, claimed) = unpacked

    assert re.findall(r"\$(\d+)", claims) == [str(number) for number in range(2, 12)]
    assert re.findall(r"\$(\d+)", changes) == [str(number) for number in range(12, 26)]
    assert (len(claimed.split(", ")), len(changed.split(", "))) == (10, 14)


def test_what_a_batch_unpacks_is_what_it_is_given() -> None:
    arrays, names = re.findall(r"unnest\( (.*?) \) AS u \( (.*?) \)", sql.BATCH)[0]

    assert re.findall(r"\$(\d+)", arrays) == [str(number) for number in range(2, 22)]
    assert len(names.split(", ")) == 20


TELLING = re.compile(
    r", kept AS \( INSERT INTO umavez_events .*? \), forgotten AS \( DELETE FROM umavez_events .*? \) \) (?=SELECT)"
)


ORIGINS = re.compile(
    # Kept by a change, unpacked and inserted by a batch, inserted alone; shown, and left empty where all was written.
    r"origin = coalesce\((?:\$\d+::text|i\.origin), r\.origin\), |, \$25::text\[\]|(?<=event_trace), origin"
    r"|(?<=evidence), origin|, i\.origin(?= FROM)|, \$(?:19|20)::text(?= FROM now)|(?<=c\.evidence), c\.origin"
    r"|(?<=NULL::boolean, NULL::text, NULL::text, NULL::text, NULL::text), NULL::text"
)


@pytest.mark.parametrize("name", ["UPDATE", "JOINED_UPDATE", "BATCH"])
def test_a_swap_that_leaves_an_event_is_the_plain_one_and_the_event(name: str) -> None:
    plain, events = TELLING.subn(" ", getattr(sql, f"{name}_TELLING"))
    plain = ORIGINS.sub("", plain)
    plain = plain.replace(", $22::text[], $23::text[], $24::text[]", "")
    plain = plain.replace(", event_kind, event_detail, event_trace", "")

    assert events == 1
    assert plain == getattr(sql, name)
    assert f"OFFSET {MOST_EVENTS - 1} )" in getattr(sql, f"{name}_TELLING")


@pytest.mark.parametrize("name", ["INSERT", "JOINED_INSERT"])
def test_a_claim_that_brings_its_origin_is_the_plain_one_and_the_origin(name: str) -> None:
    plain, origins = ORIGINS.subn("", getattr(sql, f"{name}_TELLING"))

    assert origins == 3  # shown, named, written
    assert plain == getattr(sql, name)


@pytest.mark.parametrize(
    "name",
    ["INSERT", "UPDATE", "JOINED_INSERT", "JOINED_UPDATE", "BATCH", "BATCH_PLAIN", "UPDATE_PLAIN", "SEEN", "SWEEP"],
)
def test_what_leaves_no_event_does_not_touch_their_table(name: str) -> None:
    assert "umavez_events" not in getattr(sql, name)
    assert "origin" not in getattr(sql, name)
