"""Sorting: whatever the runs and however little fits into memory, each address once, with all of its lines."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Callable, Iterable

import pyarrow as pa
import pytest

from umavez_systems.mailing.ingest import sorting
from umavez_systems.mailing.ingest.dialect import dialect_of
from umavez_systems.mailing.ingest.reading import in_order, runs
from umavez_systems.mailing.ingest.sorting import Moved, SortedList


def sorted_list(content: bytes, size: int) -> SortedList:
    dialect = dialect_of(content, whole=True)
    stream = io.BytesIO(content)
    stream.seek(dialect.start)
    return SortedList(runs(stream, dialect, dialect.line, size), len(content))


def test_s2_03_a_list_of_many_runs_is_in_order_and_accounts_for_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    emails = [f"{chance.choice('aábz')}{chance.randrange(200)}@b.com" for _ in range(1500)]
    emails += ["", "ruim"] * 5
    chance.shuffle(emails)
    first = {email: emails.index(email) + 2 for email in set(emails)}
    monkeypatch.setattr(sorting, "HELD", chance.choice([1000, 10_000, 10**6]))
    content = "email,n\n" + "".join(f"{email},\n" for email in emails)
    size = chance.choice([300, 3000, 10**6])
    with sorted_list(content.encode(), size) as ordered:
        found = list(ordered.parts(size=100))
    rows = [row for part in found for row in part.rows.to_pylist()]
    where = f"seed {seed}"
    many = Counter(filter(None, emails))
    assert [row["email"] for row in rows] == sorted(many, key=str.encode), where
    assert {row["email"]: row["vezes"] for row in rows} == many, where
    assert all(row["linha"] == first[row["email"]] for row in rows), where
    assert [part.lines for part in found] == [sum(part.rows["vezes"].to_pylist()) for part in found], where
    assert (ordered.lines, ordered.blank, sum(part.lines for part in found)) == (1510, 5, 1505), where
    assert {len(part.rows) for part in found[:-1]} == {100}, where


def test_it_goes_on_behind_any_part_and_nowhere_else() -> None:
    content = b"email\n" + b"".join(b"u%03d@b.com\n" % (number % 150) for number in range(300))
    with sorted_list(content, 500) as ordered:
        whole = [row["email"] for part in ordered.parts(size=10**6) for row in part.rows.to_pylist()]
        for after in (2, 100, 298, 300):
            rest = [row["email"] for part in ordered.parts(after, 40) for row in part.rows.to_pylist()]
            assert sorted(rest) == sorted(whole)[after // 2 :]
        for after in (1, 99, 299, 301, 302):
            with pytest.raises(Moved):
                list(ordered.parts(after, 40))


def test_a_list_that_is_in_order_already_is_not_written_in_crumbs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "HELD", 2000)
    content = b"email\n" + b"".join(b"u%04d@b.com\n" % number for number in range(1000))
    with sorted_list(content, 2000) as ordered:
        assert [len(part.rows) for part in ordered.parts(size=300)] == [300, 300, 300, 100]


@pytest.mark.parametrize("order", [list, sorted])
def test_twice_the_list_is_merged_in_twice_the_steps(
    monkeypatch: pytest.MonkeyPatch, order: Callable[[Iterable[bytes]], list[bytes]]
) -> None:
    monkeypatch.setattr(sorting, "HELD", 2000)
    steps: list[int] = []

    def counting(rows: pa.Table) -> pa.Table:
        steps[-1] += 1
        return in_order(rows)

    monkeypatch.setattr(sorting, "in_order", counting)
    for many in (2000, 4000):
        emails = order(b"u%04d@b.com\n" % (number * 7919 % many) for number in range(many))
        steps.append(0)
        with sorted_list(b"email\n" + b"".join(emails), 1000) as ordered:
            assert sum(part.lines for part in ordered.parts()) == many
    assert steps[1] < 3 * steps[0]


def test_few_are_kept_in_the_order_of_the_file() -> None:
    with sorted_list(b"email\nz@b.com\na@b.com\nz@b.com\nm@b.com\n", 10**6) as ordered:
        assert [row["linha"] for part in ordered.parts() for row in part.rows.to_pylist()] == [2, 3, 5]


def test_a_list_of_blank_lines_has_no_parts() -> None:
    with sorted_list(b"email,nome\n,\n,\n", 10**6) as ordered:
        assert (list(ordered.parts()), ordered.lines, ordered.blank) == ([], 2, 2)
