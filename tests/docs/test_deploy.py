"""The files in deploy/ are readable by what they are for, and name commands and settings that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.servers.cluster_node import Node, settings_of
from umavez.cli.app import app
from umavez_systems.settings import settings_of as settings_from

yaml = pytest.importorskip("yaml")
DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_command_that_exists(unit: Path) -> None:
    (command,) = re.findall(r"^ExecStart=/opt/umavez/bin/umavez (.+)$", unit.read_text(), re.MULTILINE)
    words = [word for word in command.split() if not word.startswith("--")]
    told = CliRunner().invoke(app, [*words, "--help"])
    assert told.exit_code == 0, told.output
    for option in set(command.split()) - set(words):
        assert option in told.output


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_can_read_a_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    # The programme and the account are made where it is installed, not here.
    text = unit.read_text().replace("/opt/umavez/bin/umavez", "/bin/true").replace("User=umavez", "User=root")
    copy = tmp_path / unit.name
    copy.write_text(text)
    asked = ["systemd-analyze", "verify", str(copy)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    assert unit.name not in done.stderr, done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_works_where_it_may_write(unit: Path) -> None:
    lines = unit.read_text().splitlines()
    assert "ProtectSystem=strict" in lines
    assert {"StateDirectory=umavez", "WorkingDirectory=%S/umavez"} <= set(lines), "folders of ours are relative ones"


def test_haproxy_can_read_its_settings() -> None:
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if program is None:
        pytest.skip("haproxy is not here (apt install haproxy)")
    asked = [program, "-c", "-f", str(DEPLOY / "haproxy.cfg")]
    done = subprocess.run(asked, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_patronis_settings_are_those_of_the_trials(tmp_path: Path) -> None:
    given = yaml.safe_load((DEPLOY / "patroni.yml").read_text())
    places = [dict.fromkeys(("etcd", "peer", "postgres", "rest"), "127.0.0.1:1")] * 3
    tried = settings_of(Node(tmp_path, 0, places, [], None, 0), places, tmp_path, "on")

    for name, value in tried["bootstrap"]["dcs"].items():
        if name != "postgresql":
            assert given["bootstrap"]["dcs"][name] == value, name
    assert given["bootstrap"]["dcs"]["postgresql"] == tried["bootstrap"]["dcs"]["postgresql"]
    for name in ("basebackup", "remove_data_directory_on_rewind_failure"):
        assert given["postgresql"][name] == tried["postgresql"][name]


def test_the_compose_file_says_that_it_was_not_tried() -> None:
    text = (DEPLOY / "compose.yml").read_text()
    assert "NOT TRIED HERE" in text
    assert set(yaml.safe_load(text)["services"]) == {"database", "broker", "systems"}


def test_the_compose_file_says_all_that_its_server_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers are not tried, but what the server would refuse before it begins is."""
    systems = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]["systems"]
    (extras,) = re.findall(r"/source\[(.+?)\]", systems["command"])
    (host,) = re.findall(r"umavez serve --host (\S+?)\"", systems["command"])
    for name, value in systems["environment"].items():
        monkeypatch.setenv(name, value)

    settings = settings_from({"host": host})

    settings.refuse_open_door()
    assert settings.broker.startswith("amqp://")
    assert {"systems", "rabbitmq"} <= set(extras.split(","))
    assert settings.mailing_parts == {"relay", "worker"}, "there is no other service that would send a mail"
