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
from umavez_systems.settings import Settings


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
