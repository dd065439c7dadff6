"""The sequences commands, on every database; the arithmetic behind what they say."""

from __future__ import annotations

import json
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import Command
from tests.messaging.places import Place, place_of
from umavez.sequences import NumbersExhausted, Range, Sequences
from umavez.sequences.standing import count_from, last_below
from umavez.stores.sqlite.store import WAL_IS_SAFE

ON_SERVERS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("postgres", "mariadb")]
EVIL = "\x1b[31m\u202ered[bold]"


@pytest.fixture(params=["sqlite", *ON_SERVERS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/notas.db?journal=delete"
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def place(url: str, command: Command) -> Place:
    command("migrate", "--store", url)
    return place_of(url)


@pytest.fixture
def shop() -> str:
    """An organisation that no other test has: the servers' databases are shared by the run."""
    return f"loja-{secrets.token_hex(4)}"


def define(place: Place, shop: str, series: str, *ranges: Range) -> None:
    with closing(place.connect()) as connection:
        Sequences().define(connection, shop, series, ranges=ranges or (Range(1),))
        connection.commit()


def take(place: Place, shop: str, series: str, count: int = 1) -> list[int]:
    with closing(place.connect()) as connection:
        taken = [Sequences().next_number(connection, shop, series) for _ in range(count)]
        connection.commit()
    return taken


def listed(command: Command, place: Place, shop: str, *words: str) -> list[dict[str, Any]]:
    answer = command("sequences", "list", "--store", place.url, "--organisation", shop, "--json", *words)
    found: list[dict[str, Any]] = json.loads(answer.stdout)["sequences"]
    return found


def test_the_list_says_what_was_given_and_what_comes(command: Command, place: Place, shop: str) -> None:
    define(place, shop, "bounded", Range(1, 5), Range(11, 12))
    define(place, shop, "endless")
    assert take(place, shop, "bounded", 2) == [1, 2]
    bounded, endless = listed(command, place, shop)
    assert [bounded[name] for name in ("series", "next_number", "last_number", "left")] == ["bounded", 3, 2, 5]
    assert [endless[name] for name in ("series", "next_number", "last_number", "left")] == ["endless", 1, None, None]
    assert [(piece["first"], piece["last"]) for piece in endless["open"]] == [(1, None)]
    table = command("sequences", "list", "--store", place.url, "--organisation", shop).stdout
    assert "none yet" in table
    assert "no end" in table
    assert "2 series" in table


def test_looking_gives_no_number(command: Command, place: Place, shop: str) -> None:
    define(place, shop, "invoices")
    for words in (("list",), ("list", "--json"), ("show", shop, "invoices"), ("show", shop, "invoices", "--json")):
        command("sequences", *words, "--store", place.url)
    assert take(place, shop, "invoices") == [1]


def test_the_next_number_that_is_shown_is_the_next_that_is_given(command: Command, place: Place, shop: str) -> None:
    define(place, shop, "invoices", Range(1, 3), Range(6, 7))
    command("sequences", "block", shop, "invoices", "2", "2", "--reason", "torn", "--store", place.url)
    last = None
    for _ in range(4):
        (series,) = listed(command, place, shop)
        assert series["last_number"] == last
        (last,) = take(place, shop, "invoices")
        assert series["next_number"] == last
    (series,) = listed(command, place, shop)
    assert (series["next_number"], series["last_number"], series["left"]) == (None, 7, 0)
    assert "none left" in command("sequences", "list", "--store", place.url, "--organisation", shop).stdout
    with pytest.raises(NumbersExhausted):
        take(place, shop, "invoices")


def test_a_list_that_was_cut_says_so(command: Command, place: Place, shop: str) -> None:
    for number in range(3):
        define(place, shop, f"series-{number}", Range(1, 2), Range(4, 5))
    words = ("sequences", "list", "--store", place.url, "--organisation", shop, "--limit")
    assert "2 series; there are more" in command(*words, "2").stdout
    assert "there are more" not in command(*words, "3").stdout
    assert json.loads(command(*words, "2", "--json").stdout)["more"] is True
    assert [one["series"] for one in listed(command, place, shop, "--series", "series-1")] == ["series-1"]


def test_blocked_numbers_are_skipped_and_keep_their_reason(command: Command, place: Place, shop: str) -> None:
    define(place, shop, "invoices", Range(1, 9))
    words = ("sequences", "block", shop, "invoices", "2", "4", "--reason", "printed forms", "--store", place.url)
    assert command(*words).stdout == f"Numbers 2 to 4 of 'invoices' of '{shop}' will never be given.\n"
    assert take(place, shop, "invoices", 2) == [1, 5]
    shown = json.loads(command("sequences", "show", shop, "invoices", "--store", place.url, "--json").stdout)
    (wall,) = shown["blocked"]
    assert (wall["first"], wall["last"], wall["reason"]) == (2, 4, "printed forms")
    text = command("sequences", "show", shop, "invoices", "--store", place.url).stdout
    assert "printed forms" in text
    assert "2–4" in text


def test_an_opened_range_lets_a_series_go_on(command: Command, place: Place, shop: str) -> None:
    define(place, shop, "invoices", Range(1, 1))
    take(place, shop, "invoices")
    answer = command("sequences", "open", shop, "invoices", "10", "--store", place.url)
    assert answer.stdout == f"Numbers from 10 on of 'invoices' of '{shop}' may be given.\n"
    assert take(place, shop, "invoices") == [10]


def test_a_range_that_cannot_be_is_one_sentence_and_changes_nothing(command: Command, place: Place, shop: str) -> None:
    define(place, shop, "invoices", Range(1, 99))
    take(place, shop, "invoices", 3)
    reason = ("--reason", "x", "--store", place.url)
    command("sequences", "block", shop, "invoices", "10", "20", *reason)
    before = listed(command, place, shop)
    for code, sentence, words in (
        (1, "begin it at 4", ("block", shop, "invoices", "2", "5", *reason)),
        (1, "begins at 10", ("block", shop, "invoices", "10", "30", *reason)),
        (2, "is empty", ("block", shop, "invoices", "9", "8", *reason)),
        (2, "must not be empty", ("block", shop, "invoices", "7", "8", "--reason", " ", "--store", place.url)),
        (2, "at most", ("open", shop, "invoices", str(2**70), "--store", place.url)),
        (1, "is not defined", ("open", shop, "invoces", "1", "--store", place.url)),
        (1, "is not defined", ("show", shop, "invoces", "--store", place.url)),
    ):
        answer = command("sequences", *words, code=code)
        assert sentence in answer.stderr
        assert len(answer.stderr.splitlines()) == 1
    assert listed(command, place, shop) == before


def test_a_voided_number_is_shown_with_who_said_so(command: Command, place: Place, shop: str) -> None:
    define(place, shop, "invoices")
    take(place, shop, "invoices", 30)
    with closing(place.connect()) as connection:
        for number in range(1, 23):
            Sequences().void(connection, shop, "invoices", number, by="ana", reason=f"misprint{EVIL}")
        connection.commit()
    words = ("sequences", "show", shop, "invoices", "--store", place.url)
    text = command(*words).stdout
    assert "2 more are voided" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert [one["number"] for one in json.loads(command(*words, "--json").stdout)["voided"]] == list(range(1, 23))


@pytest.mark.parametrize("url", ON_SERVERS, indirect=True)
def test_a_range_waits_for_no_transaction_for_ever(command: Command, place: Place, shop: str) -> None:
    """A file's writers wait ten seconds for each other, which is no test's business."""
    define(place, shop, "invoices")
    with closing(place.connect()) as connection:
        Sequences().next_number(connection, shop, "invoices")
        answer = command("sequences", "open", shop, "invoices", "99", "--store", place.url, code=1)
        assert "nothing was written" in answer.stderr
        connection.rollback()


def test_missing_tables_are_one_sentence_that_says_how_to_make_them(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE mine (id)")
    answer = command("sequences", "list", "--store", f"sqlite:///{file}", code=1)
    assert "run: umavez migrate --store URL" in answer.stderr


@pytest.mark.postgres
def test_missing_tables_on_a_server_are_the_same_sentence(command: Command, postgres_url: str) -> None:
    mark = "&" if "?" in postgres_url else "?"
    elsewhere = f"{postgres_url}{mark}options=-csearch_path%3Dnowhere"
    answer = command("sequences", "list", "--store", elsewhere, code=1)
    assert "run: umavez migrate --store URL" in answer.stderr


def test_looking_at_a_file_that_is_not_there_does_not_make_it(command: Command, tmp_path: Path) -> None:
    for words in (
        ("list",),
        ("show", "a", "b"),
        ("open", "a", "b", "1"),
        ("block", "a", "b", "1", "2", "--reason", "r"),
    ):
        answer = command("sequences", *words, "--store", f"sqlite:///{tmp_path}/none.db", code=2)
        assert f"There is no file {tmp_path}/none.db" in answer.stderr
        assert list(tmp_path.iterdir()) == []


def test_an_applications_file_keeps_its_journal(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "notas.db"
    command("migrate", "--store", f"sqlite:///{file}?journal=delete")
    with closing(sqlite3.connect(file)) as connection:
        Sequences().define(connection, "loja", "invoices")
        connection.commit()
    command("migrate", "--store", f"sqlite:///{file}")
    command("sequences", "list", "--store", f"sqlite:///{file}")
    command("sequences", "open", "loja", "invoices", "99", "--store", f"sqlite:///{file}")
    command("records", "list", "--store", f"sqlite:///{file}")
    command("sweep", "--store", f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


@pytest.mark.skipif(WAL_IS_SAFE, reason="this SQLite takes two writers of a WAL file")
def test_a_wal_file_is_looked_at_and_never_written_where_that_could_damage_it(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "notas.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        Sequences().migrate(connection)
        Sequences().define(connection, "loja", "invoices")
        connection.commit()
        assert "invoices" in command("sequences", "list", "--store", f"sqlite:///{file}").stdout
        answer = command("sequences", "open", "loja", "invoices", "9", "--store", f"sqlite:///{file}", code=2)
        assert "?journal=delete" in answer.stderr


@pytest.mark.parametrize("words", [("redis://127.0.0.1:1/0",), ("memory:",), ("nope://ana:s3cret@host",)])
def test_a_store_without_tables_holds_no_sequences(command: Command, words: tuple[str]) -> None:
    answer = command("sequences", "list", "--store", *words, code=2)
    assert "cannot hold sequences" in answer.stderr
    assert "s3cret" not in answer.stderr


RANGES = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 10)).map(lambda p: Range(p[0], p[0] + p[1])), max_size=5)


@given(at=st.integers(1, 60), open_=RANGES, blocked=RANGES)
def test_last_and_left_are_what_counting_one_by_one_would_find(
    at: int, open_: list[Range], blocked: list[Range]
) -> None:
    allowed = {n for piece in open_ for n in range(piece.first, piece.last + 1)}
    allowed -= {n for piece in blocked for n in range(piece.first, piece.last + 1)}
    assert last_below(at, open_, blocked) == max((n for n in allowed if n < at), default=None)
    assert count_from(at, open_, blocked) == len([n for n in allowed if n >= at])
