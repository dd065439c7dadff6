"""A store that is named wrongly: said, never made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Command

DECISION = ("--by", "ana", "--reason", "why")


@pytest.mark.parametrize(
    "words",
    [
        ("records", "list"),
        ("records", "show", "s", "o", "k"),
        ("records", "resolve", "s", "o", "k", "--not-happened", *DECISION),
        ("records", "release", "s", "o", "k", *DECISION),
        ("tokens", "list", "--purpose", "p"),
        ("tokens", "show", "s", "p", "d"),
        ("tokens", "cancel", "s", "p", "d", *DECISION),
        ("leases", "list"),
        ("leases", "show", "k", "n"),
        ("leases", "release", "k", "n", *DECISION),
        ("sequences", "list"),
        ("outbox", "list"),
        ("outbox", "retry", "--all"),
        ("relay", "run"),
        ("sweep",),
    ],
)
def test_a_mistyped_file_is_exit_code_2_and_is_not_made(
    command: Command, tmp_path: Path, words: tuple[str, ...]
) -> None:
    answer = command(*words, "--store", f"sqlite:///{tmp_path}/typo.db", code=2)

    assert f"There is no file {tmp_path}/typo.db" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


LOOKING = [
    ("records", "list"),
    ("records", "count"),
    ("leases", "list"),
    ("tokens", "list", "--purpose", "p"),
    ("sequences", "list"),
]


@pytest.mark.parametrize("words", LOOKING)
def test_looking_into_somebody_elses_file_changes_nothing(
    command: Command, tmp_path: Path, words: tuple[str, ...]
) -> None:
    file = tmp_path / "theirs.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE mine (id)")
    before = file.read_bytes()

    answer = command(*words, "--store", f"sqlite:///{file}", code=1)

    assert "run: umavez migrate --store URL" in answer.stderr
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("query", ["", "?journal=delete"])
@pytest.mark.parametrize("begins", [b"", b"SQLite format 3\0"])
@pytest.mark.parametrize("words", [*LOOKING, ("outbox", "list"), ("outbox", "dead"), ("outbox", "retry", "--all")])
def test_what_is_no_database_or_a_damaged_one_is_said(
    command: Command, tmp_path: Path, words: tuple[str, ...], begins: bytes, query: str
) -> None:
    file = tmp_path / "damaged.db"
    file.write_bytes(begins + b"no header" * 1000)

    answer = command(*words, "--store", f"sqlite:///{file}{query}", code=1)

    assert answer.stderr.endswith("nothing was written, correct the URL, or restore the file.\n")
    assert answer.stdout == ""


def test_what_cannot_be_counted_is_no_count(command: Command) -> None:
    answer = command("records", "count", "--store", "postgresql://127.0.0.1:1/loja", code=1)

    assert "PostgreSQL cannot be reached" in answer.stderr
