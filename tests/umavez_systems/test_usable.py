"""Settings that a part could not begin with are refused before anything is served, and without a secret."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from umavez import ConfigurationError
from umavez.cli.app import app
from umavez_systems.gates.usable import refuse_unusable
from umavez_systems.settings import Settings, settings_of


def test_what_is_usual_is_usable() -> None:
    refuse_unusable(Settings())
    refuse_unusable(
        Settings(broker="amqp://guest@127.0.0.1/", smtp_url="smtp://u:p@h:25", mailing_http_url="https://h")
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"broker": "zz"}, "UMAVEZ_BROKER must be"),
        ({"broker": "amqp://u:geheim@[::1"}, "UMAVEZ_BROKER: "),
        ({"storage": "ftp://u:geheim@h/lists"}, "UMAVEZ_STORAGE must be"),
        ({"smtp_url": "smtp://u:geheim/rest@h"}, "UMAVEZ_SMTP_URL must be"),
        ({"smtp_url": "smtp://h?starttls=geheim"}, "UMAVEZ_SMTP_URL must be auto"),
        ({"mailing_http_url": "u:geheim@h"}, "UMAVEZ_MAILING_HTTP_URL: must be http"),
        ({"mailing_http_url": "http://u:geheim/rest@h"}, "UMAVEZ_MAILING_HTTP_URL: must be http"),
        ({"mailing_dkim": "s:d:/none/geheim.pem"}, "UMAVEZ_MAILING_DKIM must be"),
        ({"mailing_from": "nobody"}, "UMAVEZ_MAILING_FROM: O remetente"),
        ({"portal_url": "127.0.0.1:8020"}, "UMAVEZ_PORTAL_URL: must be http"),
    ],
)
def test_what_no_part_could_begin_with_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        refuse_unusable(Settings(**given))
    assert said in str(refused.value)
    assert "geheim" not in str(refused.value)


def test_a_key_that_cannot_sign_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("no key")
    with pytest.raises(ConfigurationError, match="cannot sign"):
        refuse_unusable(Settings(mailing_dkim=f"s:d:{tmp_path}/key.pem"))


@pytest.mark.parametrize(("name", "value"), [("UMAVEZ_SEAL_KEYS", "a:b"), ("UMAVEZ_CONSOLE_USERS", "ana")])
def test_what_the_environment_alone_says_is_looked_at_too(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=name):
        refuse_unusable(Settings())


@pytest.mark.parametrize(
    ("given", "module", "ours", "extra"),
    [
        ({"storage": "s3://listas/um"}, "boto3", "umavez_systems.mailing.ingest.storage_s3", "s3"),
        ({"broker": "amqp://guest@h/"}, "aio_pika", "umavez.messaging.rabbitmq", "rabbitmq"),
        ({"mailing_dkim": f"s:d:{__file__}"}, "dkim", "dkim", "dkim"),
    ],
)
def test_a_part_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], module: str, ours: str, extra: str
) -> None:
    for name in [name for name in sys.modules if name.startswith(ours)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=rf"needs {module}.*umavez\[{extra}\]"):
        refuse_unusable(Settings(**given))


@pytest.mark.parametrize("words", [("serve",), ("mailing", "work")], ids=" ".join)
def test_nothing_is_begun_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UMAVEZ_BROKER", "zz")
    done = CliRunner().invoke(app, list(words), prog_name="umavez")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "UMAVEZ_BROKER must be local: or amqp" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("entry", ["geheim" * 8, "a:geheim", "a:Z2VoZWlt", ":" + "Z2VoZWlt" * 4])
def test_a_sealing_key_that_was_written_wrong_is_not_repeated(monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    """Without its name and a colon, the key itself stands where a name would."""
    monkeypatch.setenv("UMAVEZ_SEAL_KEYS", entry)
    with pytest.raises(ConfigurationError, match="UMAVEZ_SEAL_KEYS: entry 1") as refused:
        refuse_unusable(Settings())
    assert "geheim" not in str(refused.value)
    assert "Z2VoZWlt" not in str(refused.value)


@pytest.mark.parametrize("name", ["storage", "fiscal_dir"])
def test_a_folder_that_cannot_be_made_is_refused_and_none_is_made(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=f"UMAVEZ_{name.upper()}: .* is a file"):
        refuse_unusable(Settings.model_validate({name: str(tmp_path / "file" / "lists")}))
    refuse_unusable(Settings.model_validate({name: str(tmp_path / "new" / "lists")}))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umavez_systems.gates.usable.os.access", lambda *_: False)  # the tests may run as root
    with pytest.raises(ConfigurationError, match="nothing can be written"):
        refuse_unusable(Settings(storage=str(tmp_path)))


def test_a_folder_that_cannot_even_be_looked_at_is_called_by_its_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: Path, **_: Any) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", closed)
    with pytest.raises(ConfigurationError, match=r"UMAVEZ_STORAGE: .* cannot be used \(Permission denied\)"):
        refuse_unusable(Settings(storage=str(tmp_path)))


def test_counters_without_their_folder_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request would leave a traceback in the log."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match="PROMETHEUS_MULTIPROC_DIR: there is no folder"):
        refuse_unusable(Settings())
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    refuse_unusable(Settings())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"database": "sqlite://"}, "database: no file is named"),
        ({"database": "sqlite:///?journal=delete"}, "database: no file is named"),
        ({"public_url": "x"}, "public_url: must be"),
    ],
)
def test_a_wrong_setting_is_called_by_its_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        settings_of(given)
    assert str(refused.value).startswith(said)


def test_a_host_of_any_name_is_judged_by_whether_it_can_be_listened_on() -> None:
    assert settings_of({"host": "no such host"}).host == "no such host"


def test_an_env_file_that_is_no_text_is_told_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_bytes(b"\xff\xfeUMAVEZ_PORT=1\n")
    with pytest.raises(ConfigurationError, match=r"\.env is no text"):
        settings_of({})
