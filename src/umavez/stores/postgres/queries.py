"""Looking: how the PostgreSQL store's reading statements are asked and understood."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from umavez.core.flow import Seen
from umavez.core.key import Key
from umavez.core.record import Query, Record
from umavez.errors import TABLE_FOREIGN, SchemaOutdated
from umavez.stores import rows
from umavez.stores.postgres import statements as sql


def seen(key: Key, answer: Sequence[Sequence[Any]]) -> Seen:
    """What SEEN answered."""
    row = answer[0]
    return Seen(None if row[1] is None else rows.record_of(key, row[1:]), row[0])


def asks_time(query: Query) -> bool:
    """Whether `query` compares with the server's time, which then has to be asked for first."""
    return query.older_than is not None or query.newer_than is not None or query.lapsed


def looking(query: Query, now: int) -> tuple[str, tuple[Any, ...]]:
    """The statement of `find`, and its parameters."""
    where, values = rows.conditions(query, now, sql.MARKS)
    text = f"{sql.FOUND} WHERE {where} ORDER BY {rows.order(query)} LIMIT %s"
    # Numbered here, because how many there are depends on the query.
    for number in range(1, len(values) + 2):
        text = text.replace("%s", f"${number}", 1)
    return text, (*values, query.limit)


def found(answer: Sequence[Sequence[Any]]) -> list[Record]:
    """What `find` answered."""
    return [rows.record_of(Key(*row[:3]), row[3:]) for row in answer]


def schema() -> str:
    """The reviewed text that creates what is missing; version 1 has been upgraded before."""
    return files("umavez.stores.postgres").joinpath("schema.sql").read_text("utf-8")


def check_known(version: int, *, foreign: bool) -> None:
    """Raise SchemaOutdated when the tables were made by a newer umavez, or one is `foreign`, somebody else's."""
    if foreign:
        raise SchemaOutdated(TABLE_FOREIGN)
    if version > sql.VERSION:
        raise SchemaOutdated(
            f"The tables have schema {version} and this version knows {sql.VERSION}; upgrade umavez before using them."
        )


def migrated(before: int, *, whole: bool = True) -> str:
    """The sentence about what migrate did; `whole`: nothing was missing."""
    if before == sql.VERSION and whole:
        return f"The tables are up to date (schema {sql.VERSION})."
    return f"The tables were {'upgraded' if before else 'created'} (schema {sql.VERSION})."
