"""What the command line says about wrong input, and what it never says."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Command
from umavez.cli.options import scrubbed

DECISION = ("--by", "ana", "--reason", "why")
RECORD = ("loja", "charge", "1", "--store", "memory:")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("records", "list"), "No store is named; pass --store URL or set UMAVEZ_STORE."),
        (("migrate", "--store", "nope://x"), "is not a store"),
        (("records", "resolve", *RECORD, *DECISION), "or --not-happened."),
        (("records", "resolve", *RECORD, *DECISION, "--happened", "1", "--not-happened"), "Pass either"),
        (("records", "resolve", *RECORD, *DECISION, "--happened", "ok"), "--happened is not JSON"),
        (("records", "resolve", *RECORD, *DECISION, "--happened", '{"$decimal": "x"}'), "--happened is not JSON"),
        (("records", "resolve", *RECORD, *DECISION, "--happened", "NaN"), "--happened is not JSON"),
        (("records", "resolve", *RECORD, *DECISION, "--happened", '{"$timedelta": 5}'), "--happened is not JSON"),
        (("records", "release", *RECORD, "--by", " ", "--reason", "why"), "must not be empty"),
        (("records", "show", "loja", "charge", "", "--store", "memory:"), "The key's value is empty"),
        (("leases", "list"), "No store is named"),
        (("leases", "release", "jobs", "report", "--by", "ana", "--reason", "", "--store", "memory:"), "must not be"),
        (("leases", "show", "jobs", "", "--store", "memory:"), "The key's value is empty"),
        (("tokens", "list", "--store", "memory:"), "pass --purpose, --owner or both"),
        (("tokens", "cancel", *RECORD, "--by", " ", "--reason", "why"), "must not be empty"),
        (("sequences", "list"), "No store is named"),
        (("sequences", "show", "", "invoices", "--store", "sqlite:///none.db"), "must have 1 to 255 characters"),
        (("records", "show", "loja", "charge", "k" * 256, "--store", "memory:"), "at most 255"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(command: Command, words: tuple[str, ...], sentence: str) -> None:
    answer = command(*words, code=2)
    assert answer.stdout == ""
    assert sentence in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("records", "release", *RECORD),
        ("records", "resolve", *RECORD, "--not-happened"),
        ("leases", "release", "jobs", "report", "--store", "memory:"),
        ("tokens", "cancel", *RECORD),
    ],
)
def test_who_decides_is_never_assumed(command: Command, words: tuple[str, ...]) -> None:
    answer = command(*words, "--reason", "why", code=2)
    assert "--by" in answer.stderr


@pytest.mark.parametrize("text", ["5", "5 weeks", "", "-3d", "h"])
def test_a_duration_without_a_unit_is_refused(command: Command, text: str) -> None:
    answer = command("records", "list", "--store", "memory:", "--older-than", text, code=2)
    assert "is not a duration" in answer.stderr


@pytest.mark.parametrize("text", ["0s", "0.01s", "999999999999d"])
@pytest.mark.parametrize("words", [("sweep", "--every"), ("records", "list", "--watch")], ids=" ".join)
def test_no_round_follows_the_other_without_a_pause_or_never(
    command: Command, words: tuple[str, ...], text: str, sqlite_url: str
) -> None:
    assert "no pause" in command(*words, text, "--store", sqlite_url, code=2).stderr


@pytest.mark.parametrize("words", [("--keep", "inf"), ("--lease", "inf"), ("--keep", "nan"), ("--keep", "1e300")])
def test_a_relay_is_told_times_that_a_database_has(command: Command, words: tuple[str, ...], sqlite_url: str) -> None:
    said = command("relay", "run", "--store", sqlite_url, *words, code=2).stderr
    assert words[0] in said
    assert "Traceback" not in said


def test_an_empty_list_says_so(command: Command) -> None:
    assert command("records", "list", "--store", "memory:").stdout == "No records match.\n"
    assert command("leases", "list", "--store", "memory:").stdout == "No leases match.\n"
    assert command("tokens", "list", "--purpose", "p", "--store", "memory:").stdout == "No tokens match.\n"


def test_the_environment_names_the_store(command: Command, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMAVEZ_STORE", sqlite_url)
    assert "a file.db" in command("migrate").stdout


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("doctor",),
        ("migrate",),
        ("records", "list"),
        ("records", "show"),
        ("records", "resolve"),
        ("records", "release"),
        ("sweep",),
        ("leases", "list"),
        ("leases", "show"),
        ("leases", "release"),
        ("tokens", "list"),
        ("tokens", "show"),
        ("tokens", "cancel"),
        ("sequences", "list"),
        ("sequences", "show"),
        ("sequences", "block"),
        ("sequences", "open"),
    ],
)
def test_every_command_has_an_example(command: Command, words: tuple[str, ...]) -> None:
    text = command(*words, "--help").stdout
    assert "Example" in text
    assert f"umavez {' '.join(words)}".strip() in text


def test_a_password_is_never_printed(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in (
        "postgresql://ana:s3cret@127.0.0.1:1/x",
        "postgresql://ana@127.0.0.1:1/x?password=s3cret",
        "postgresql://ana:s3cret/x@127.0.0.1:1/x",
        "mariadb://ana:s3cret@127.0.0.1:1/x",
        "redis://:s3cret@127.0.0.1:1/0",
        "redis://:s3cret@127.0.0.1:1/x",
        "nope://ana:s3cret@host",
        "ana:s3cret@host/x",
        "host=127.0.0.1 password=s3cret",
        "host=127.0.0.1 password='it is s3cret'",
        "redis://:s3cret",
    ):
        monkeypatch.setenv("UMAVEZ_STORE", url)
        for words in (("doctor", "--store", url), ("doctor", "--store", url, "--json")):
            answer = command(*words, code=2)
            assert "s3cret" not in answer.stdout + answer.stderr, url


@pytest.mark.parametrize("url", ["redis://ana:a%20b@host", "postgresql://host/x?password=a%20b&sslmode=off"])
def test_a_drivers_words_lose_the_password_as_written_and_as_meant(url: str) -> None:
    assert scrubbed("no host 'a b',\n nor 'a%20b'", url) == "no host '***', nor '***'"
