"""Failures that look alike, counted among the newest records: a hundred of them are often one."""

# ruff: noqa: S608 - statements are joined from constants of the module

from __future__ import annotations

from typing import NamedTuple

from umavez.console.books import NEWEST_COUNTED, Books
from umavez.console.search import Search, quoted
from umavez.core.record import Status
from umavez.sql.flow import Ask, SqlFlow

MOST_GROUPS = 20
LIKE = 120
"""Characters of an error by which failures are told apart: what follows is often a number or a time."""

_NEWEST = (
    "SELECT operation_name, error_message, status, attempt FROM idempotency_records"
    f" ORDER BY created_at DESC LIMIT {NEWEST_COUNTED}"
)
_ALIKE = (
    f"SELECT operation_name, substr(coalesce(error_message, ''), 1, {LIKE}), count(*) FROM ({_NEWEST}) newest"
    " WHERE status = 'FAILED' AND attempt > 0"
    f" GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT {MOST_GROUPS}"
)


class Failures(NamedTuple):
    """Failures of one operation with one error, and the search for them."""

    operation: str
    error: str
    many: int
    search: str


def failures(books: Books, search: Search) -> list[Failures]:
    """The largest groups, where a search asks for what failed and nothing else; none where the store is no database."""
    asked = search.status is Status.FAILED and search == Search(search.text, status=Status.FAILED, age=search.age)
    if not asked or books.tables is None:
        return []
    return [_group(*row) for row in books.table(lambda _: _alike())]


def _alike() -> SqlFlow[list[tuple[str, str, int]]]:
    rows: list[tuple[str, str, int]] = yield Ask(_ALIKE)
    return rows


def _group(operation: str, error: str, many: int) -> Failures:
    said = f' error:"{quoted(error)}"' if error else ""
    return Failures(operation, error, int(many), f'status:failed op:"{quoted(operation)}"{said}')
