"""Ingesting: each address once, and a crash loses no place."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.umavez_systems.mailing.conftest import query
from tests.umavez_systems.mailing.far import age, held, ingested, upload
from umavez import ClaimLost
from umavez_systems.mailing.domain import leaks
from umavez_systems.mailing.ingest import ingesting
from umavez_systems.mailing.ingest.dialect import Dialect
from umavez_systems.mailing.ingest.ingesting import Unreadable, _sorted, ingest
from umavez_systems.mailing.ingest.reading import BLOCK
from umavez_systems.mailing.ingest.sweeping import stored_name
from umavez_systems.mailing.sending.holding import Leak
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier


class TestEmailEntryIdempotency:
    """The seed's second group."""

    def test_should_insert_each_email_only_once(self, carrier: Carrier, settings: Settings) -> None:
        csv = b"\nemail\nuser@test.com\nadmin@test.com\nuser@test.com\nadmin@test.com\n"

        mailing, _ = ingested(carrier, csv)

        where = f"WHERE mailing_id = '{mailing}'"
        assert query(settings, f"SELECT count(*) FROM mailing_entries {where}") == [(2,)]
        emails = [row[0] for row in query(settings, f"SELECT email FROM mailing_entries {where} ORDER BY id")]
        assert emails == ["user@test.com", "admin@test.com"]
        row = carrier.mailing.cases.mailing("local", mailing)
        assert [row[name] for name in ("linhas", "aceitas", "duplicadas", "invalidas", "em_branco")] == [5, 2, 2, 0, 1]


def test_s2_03_capitals_and_blanks_make_no_second_entry(carrier: Carrier, settings: Settings) -> None:
    ingested(carrier, b"email\n User@Example.COM \nuser@example.com\nJOS\xc3\x89@b.com\njose\xcc\x81@b.com\n")

    emails = [row[0] for row in query(settings, "SELECT email FROM mailing_entries ORDER BY linha")]
    assert emails == ["user@example.com", "jos\u00e9@b.com"]


def test_s2_05_reading_goes_on_where_the_last_commit_stands(
    carrier: Carrier, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingesting, "WORTH", 0.0)
    content = b"email\n" + b"".join(b"user%05d@b.com\n" % (number * 7919 % 900) for number in range(1000)) + b"ruim\n\n"
    mailing = upload(carrier, content)
    storage = carrier.mailing.cases.storage
    written: list[int] = []

    def slice_of_one_part() -> bool:
        query(settings, "UPDATE mailings SET last_attempt = NULL")
        return ingest(held(carrier, mailing), storage, 0.0, written.append, size=2000, part=70)

    assert not slice_of_one_part()  # its time is over after one part
    row = carrier.mailing.cases.mailing("local", mailing)
    assert 0 < row["posicao"] < len(content)
    assert (row["linhas"], leaks(row)) == (written[0], [])
    while not slice_of_one_part():
        assert len(written) < 20
    row = carrier.mailing.cases.mailing("local", mailing)
    counts = [row[name] for name in ("linhas", "aceitas", "duplicadas", "invalidas", "em_branco")]
    assert counts == [1002, 900, 100, 1, 1]
    assert (leaks(row), sum(written)) == ([], 1001)
    assert query(settings, "SELECT count(*), count(distinct email) FROM mailing_entries") == [(901, 901)]


@pytest.mark.parametrize("change", [b"aaa@b.com\n", b""], ids=["another", "shorter"])
def test_a_list_that_changed_after_it_was_begun_is_not_read_on(carrier: Carrier, change: bytes) -> None:
    people = [b"user%05d@b.com\n" % number for number in range(300)]
    mailing = upload(carrier, b"email\n" + b"".join(people * 2))
    holding, storage = held(carrier, mailing), carrier.mailing.cases.storage
    assert not ingest(holding, storage, time.monotonic() + 60, lambda _: None, part=100, stopped=lambda: True)
    path = Path(carrier.settings.storage) / stored_name(mailing, carrier.mailing.cases.database)
    path.write_bytes(b"email\n" + change + (b"".join(people * 2) if change else people[0]))
    with pytest.raises(Unreadable, match="mudou"):
        ingest(holding, storage, time.monotonic() + 60, lambda _: None, part=100)


def test_lines_that_the_file_has_and_nobody_counted_stop_the_mailing(carrier: Carrier) -> None:
    _, holding = ingested(carrier, b"email\na@b.com\nb@b.com\n")
    with pytest.raises(Leak, match="2 linhas contadas, 3 no arquivo"):
        holding.close_list(3, 0)


def test_somebodys_wish_is_obeyed_between_two_parts(carrier: Carrier) -> None:
    mailing = upload(carrier, b"email\n" + b"".join(b"user%05d@b.com\n" % number for number in range(300)))
    holding = held(carrier, mailing)
    cases = carrier.mailing.cases
    cases.pause("local", mailing, "ana")
    assert not ingest(holding, cases.storage, time.monotonic() + 60, lambda _: None, part=100)
    assert holding.leave() == "PAUSED"
    assert cases.mailing("local", mailing)["entradas"] == 100
    cases.resume("local", mailing, "ana")
    assert ingest(held(carrier, mailing), cases.storage, time.monotonic() + 60, lambda _: None, part=100)
    assert cases.mailing("local", mailing)["entradas"] == 300


def test_s2_08_a_part_that_was_copied_in_before_the_lock_was_lost_is_not_kept(
    carrier: Carrier, settings: Settings
) -> None:
    mailing = upload(carrier, b"email\na@b.com\nb@b.com\n")
    late = held(carrier, mailing)
    lost: list[int] = []

    def overtaken() -> None:
        if not settings.database.startswith("sqlite"):  # there the row is locked until the part is kept
            age(settings)
            lost.append(held(carrier, mailing).epoch)

    with _sorted(carrier.mailing.cases.storage, late.row, Dialect.of(late.row["dialeto"]), BLOCK) as ordered:
        part = next(ordered.parts())
    if settings.database.startswith("sqlite"):
        age(settings)
        lost.append(held(carrier, mailing).epoch)
    with pytest.raises(ClaimLost):
        late.add(late.batch(part.rows), part.lines, 1.0, overtaken)
    assert lost == [late.epoch + 1]
    assert query(settings, "SELECT count(*) FROM mailing_entries") == [(0,)]


def test_s2_04_an_address_that_is_there_against_all_knowledge_is_kept(carrier: Carrier, settings: Settings) -> None:
    mailing = upload(carrier, b"email\na@b.com\nb@b.com\nc@b.com\n")
    query(
        settings,
        "INSERT INTO mailing_entries (mailing_id, email, token, status) VALUES"
        f" ('{mailing}', 'b@b.com', 'mine', 'PENDING')",
    )
    query(settings, "UPDATE mailings SET entradas = 1, pendentes = 1")
    assert ingest(held(carrier, mailing), carrier.mailing.cases.storage, time.monotonic() + 60, lambda _: None)
    row = carrier.mailing.cases.mailing("local", mailing)
    assert (row["aceitas"], row["duplicadas"], row["entradas"]) == (2, 1, 3)
    assert query(settings, "SELECT token FROM mailing_entries WHERE email = 'b@b.com'") == [("mine",)]


def test_an_address_repeated_in_another_run_is_one_entry(carrier: Carrier, settings: Settings) -> None:
    content = b"email\n" + b"".join(b"user%05d@b.com\n" % (number * 7919 % 900) for number in range(2000))
    mailing, _ = ingested(carrier, content, 2000)
    row = carrier.mailing.cases.mailing("local", mailing)
    assert (row["linhas"], row["aceitas"], row["duplicadas"]) == (2000, 900, 1100)
    assert query(settings, "SELECT count(*), count(distinct email) FROM mailing_entries") == [(900, 900)]


def test_entries_are_found_whatever_the_clock_of_their_worker_says(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailing = upload(carrier, b"email\na@b.com\n")
    real = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: real - 3_600_000_000_000)
    ingest(held(carrier, mailing), carrier.mailing.cases.storage, time.monotonic() + 60, lambda _: None)
    assert [row["email"] for row in carrier.mailing.cases.entries("local", mailing, None, "", 10)] == ["a@b.com"]


def test_a_leak_stops_the_mailing(carrier: Carrier, settings: Settings) -> None:
    mailing = upload(carrier, b"email\na@b.com\nb@b.com\n")
    holding = held(carrier, mailing)
    lost = f"DELETE FROM mailing_entries WHERE mailing_id = '{mailing}' AND email = 'a@b.com'"
    with pytest.raises(Leak, match="A conta não fecha"):
        ingest(holding, carrier.mailing.cases.storage, time.monotonic() + 60, lambda _: query(settings, lost))


def test_s2_04_reading_again_resets_what_failed_and_keeps_the_rest(carrier: Carrier, settings: Settings) -> None:
    content = b"email\na@b.com\nb@b.com\nruim\nd@b.com\n"
    mailing, holding = ingested(carrier, content)
    holding.leave("pausar")
    query(settings, "UPDATE mailing_entries SET status = 'FAILED' WHERE email = 'a@b.com'")
    # As an address was called before it was known to be one.
    query(settings, "UPDATE mailing_entries SET status = 'INVALID' WHERE email = 'd@b.com'")
    query(settings, "UPDATE mailing_entries SET status = 'SENT' WHERE email = 'b@b.com'")
    query(settings, "UPDATE mailings SET pendentes = 0, falhas = 1, enviados = 1, invalidos = 2")
    assert upload(carrier, content + b"c@b.com\n", reingestao="repor") == mailing
    again = held(carrier, mailing)
    assert ingest(again, carrier.mailing.cases.storage, time.monotonic() + 60, lambda _: None)
    found = dict(query(settings, "SELECT email, status FROM mailing_entries"))
    waiting = dict.fromkeys(("a@b.com", "c@b.com", "d@b.com"), "PENDING")
    assert found == {**waiting, "b@b.com": "SENT", "ruim": "INVALID"}
    row = carrier.mailing.cases.mailing("local", mailing)
    assert leaks(row) == []
    assert (row["pendentes"], row["enviados"], row["invalidos"], row["entradas"]) == (3, 1, 1, 5)
