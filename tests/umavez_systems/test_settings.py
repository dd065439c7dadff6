"""Settings: names that are no caller's, and secrets that are never shown."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import SecretStr, ValidationError

from umavez.console.people import entry, users
from umavez.encryption import SealedCodec, new_key
from umavez_systems.processos.assembly import codec_of_environment
from umavez_systems.settings import Settings, settings_of

SEED = 20261
KEY = "0123456789abcdef"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (f"local:{KEY}", "reserved"),
        (f"Local:{KEY}", "reserved"),
        (f"umavez:{KEY}", "reserved"),
        (f"ana:{KEY},ana:{KEY}2", "twice"),
        (f"ana:{KEY},ANA:{KEY}2", "twice"),
        (f"ana:{KEY},bia:{KEY}", "secret of another"),
        ("ana:short", "at least 16"),
        (KEY * 2, "name:secret"),
    ],
)
def test_a_list_of_keys_that_would_mix_callers_up_is_refused(keys: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        Settings(host="192.0.2.1", api_keys=SecretStr(keys)).refuse_open_door()
    assert KEY not in str(refused.value)


def test_no_secret_is_shown_by_settings() -> None:
    settings = Settings(
        database="postgresql://u:hunter2@h/d", api_keys=SecretStr(f"ana:{KEY}"), portal_token=SecretStr("tok-9876")
    )
    for shown in (repr(settings), str(settings), repr(settings.principals), settings.shown_database):
        assert not [secret for secret in ("hunter2", KEY, "tok-9876") if secret in shown], shown


def test_a_wrong_setting_does_not_show_what_was_given() -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(database="oracle://x:hunter2@y")
    assert "hunter2" not in str(refused.value)


def test_workers_are_handed_the_secrets_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    settings = Settings(api_keys=SecretStr(f"ana:{KEY}"), portal_token=SecretStr("tok"))
    settings.export()
    assert (os.environ["UMAVEZ_API_KEYS"], os.environ["UMAVEZ_PORTAL_TOKEN"]) == (f"ana:{KEY}", "tok")


def test_what_the_engine_reads_from_the_environment_may_stand_in_the_env_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    user = entry("ana", "a password of hers", "look+decide")
    (tmp_path / ".env").write_text(f"UMAVEZ_SEAL_KEYS=k1:{new_key()}\nUMAVEZ_CONSOLE_USERS={user}\n")

    settings_of({})

    assert isinstance(codec_of_environment(), SealedCodec)
    assert users(os.environ).signed_in("ana", "a password of hers")
    assert "k1:" not in repr(settings_of({}))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///dir/umavez.db", "sqlite:///dir/umavez.db"),
        ("postgresql:///loja", "postgresql:///loja"),
        ("postgresql://ana:x@host:5433/loja", "postgresql://ana@host:5433/loja"),
        ("postgresql://ana:x@[::1]:5433/loja", "postgresql://ana@[::1]:5433/loja"),
        ("postgresql://host/loja?user=ana&password=x", "postgresql://host/loja"),
        ("postgresql://ana:a@b@host/loja", "postgresql://ana@host/loja"),
        ("postgresql://ana:a/b@host/loja", "postgresql://***"),
        ("postgresql://ana:12/b@host/loja", "postgresql://***"),
        ("postgresql://ana:12#b@host/loja", "postgresql://***"),
    ],
)
def test_the_database_is_shown_by_parts_that_are_no_secret(url: str, shown: str) -> None:
    assert Settings(database=url).shown_database == shown


def test_no_password_is_ever_shown_however_it_is_written() -> None:
    chance = random.Random(SEED)
    for _ in range(3000):
        pieces = ["".join(chance.choices("abcdefgh0123", k=8)) for _ in range(chance.randrange(1, 4))]
        password = chance.choice("@:/?#&=%+ []").join(pieces)
        written = quote(password, safe="") if chance.random() < 0.3 else password
        for url in (f"postgresql://ana:{written}@host:5432/loja", f"postgresql://host/loja?password={written}"):
            shown = Settings(database=url).shown_database
            assert not [piece for piece in pieces if piece in shown], f"seed {SEED}: {url} → {shown}"


@pytest.mark.parametrize(
    ("embedded", "sqlite", "postgres"),
    [
        ("auto", {"relay", "worker"}, set()),
        ("on", {"relay", "worker"}, {"relay", "worker"}),
        ("off", set(), set()),
        ("relay", {"relay"}, {"relay"}),
        ("worker", {"worker"}, {"worker"}),
    ],
)
def test_each_part_of_mailing_can_be_switched_off(embedded: Any, sqlite: set[str], postgres: set[str]) -> None:
    given = {"sqlite:///x.db": sqlite, "postgresql://h/x": postgres}
    for database, parts in given.items():
        assert Settings(database=database, mailing_embedded=embedded).mailing_parts == parts
