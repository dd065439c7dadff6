"""A backup that is older than the records is restored, and what docs/howto/several-machines.md says is done."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from tests.cli.conftest import Command
from tests.servers.postgres_server import Postgres
from umavez import Once, OutcomeUnknown
from umavez.messaging import Message, Outbox
from umavez.migration import migrate
from umavez.sequences import Sequences

pytestmark = pytest.mark.postgres
DECISION = ("--by", "ana", "--reason", "restored to 14:00; in the bank's books")
SERIES = ("loja", "invoices")


class Charge(NamedTuple):
    """What the bank has in its books."""

    key: str
    number: int
    fence: int


class Bank:
    """A far side that does whatever it is asked to, as often as it is asked."""

    def __init__(self) -> None:
        self.books: list[Charge] = []

    def charge(self, url: str, key: str, *, answers: bool = True) -> int:
        """One charge under its key, with a number of the series; the number is what callers are told."""
        with (
            Once(url, scope="loja") as once,
            once.attempt("charge", key=key, unknown="hold", lease=0.2) as attempt,
        ):
            if not attempt.replayed:
                with psycopg.connect(url) as connection:
                    number = Sequences().next_number(connection, *SERIES, key=key)
                    Outbox().append(connection, Message("charged", key))
                self.books.append(Charge(key, number, attempt.fence))
                if not answers:
                    raise TimeoutError
                attempt.succeed(number)
        assert isinstance(attempt.outcome, int)
        return attempt.outcome


def program(name: str) -> str:
    located = Postgres()._program(name)
    if located is None:
        pytest.skip(f"{name} is not installed")
    return str(located)


def dumped(url: str, file: Path) -> None:
    subprocess.run([program("pg_dump"), "--format=custom", f"--file={file}", url], check=True, timeout=120)


def restored(url: str, file: Path) -> None:
    subprocess.run([program("pg_restore"), "--no-owner", f"--dbname={url}", str(file)], check=True, timeout=120)


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def backup(bank: Bank, empty_database: Callable[[str], str], tmp_path: Path) -> Path:
    """Made in the middle of the day: three charges before it, one of them without an answer, three after it."""
    url, file = empty_database("postgres"), tmp_path / "backup"
    migrate(url)
    with psycopg.connect(url) as connection:
        Sequences().define(connection, *SERIES)
    for key in ("before-1", "before-2"):
        bank.charge(url, key)
    with suppress(TimeoutError, OutcomeUnknown):
        bank.charge(url, "in-doubt", answers=False)
    dumped(url, file)
    for key in ("after-1", "after-2", "after-3"):
        bank.charge(url, key)
    return file


def test_without_the_steps_everything_after_the_backup_happens_again(
    bank: Bank, backup: Path, empty_database: Callable[[str], str]
) -> None:
    url = empty_database("postgres")
    restored(url, backup)

    bank.charge(url, "after-1")

    again, first = bank.books[-1], next(one for one in bank.books if one.key == "after-1")
    assert again.key == first.key
    assert again.number == first.number, "the number of after-1 is given a second time"


def test_with_the_steps_nothing_happens_again_and_no_number_or_fence_is_given_again(
    bank: Bank, backup: Path, command: Command, empty_database: Callable[[str], str]
) -> None:
    url, happened = empty_database("postgres"), list(bank.books)
    restored(url, backup)

    # 2: fences above all that were given.
    with psycopg.connect(url) as connection:
        connection.execute("SELECT setval('umavez_fence', %s)", (max(one.fence for one in happened) + 1000,))
    # 3: what happened after the backup, as the far side tells it.
    listed = json.loads(command("records", "list", "--store", url, "--json").stdout)["records"]
    known = {record["idempotency_key"]: record["status"] for record in listed}
    for charge in happened:
        if known.get(charge.key) != "SUCCESS":
            words = ("records", "resolve", "loja", "charge", charge.key, "--happened", str(charge.number))
            command(*words, *([] if charge.key in known else ["--forgotten"]), "--store", url, *DECISION)
    # 4: numbers that the far side has seen.
    (series,) = json.loads(command("sequences", "list", "--store", url, "--json").stdout)["sequences"]
    last = max(charge.number for charge in happened)
    block = ("sequences", "block", *SERIES, str(series["next_number"]), str(last), "--reason", "restored")
    command(*block, "--store", url)

    told = {key: bank.charge(url, key) for key in [charge.key for charge in happened] * 2}
    assert bank.books == happened, "a repeat has charged again"
    assert told == {charge.key: charge.number for charge in happened}
    bank.charge(url, "new")
    assert bank.books[-1].number > last
    assert bank.books[-1].fence > max(one.fence for one in happened)
