"""`umavez console`: the console alone, on this machine or behind a sign-in (X.04)."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import Command
from tests.console.browser import Forms
from umavez import Once
from umavez.cli.console import _looking
from umavez.console.people import VARIABLE, Users, Who
from umavez.observe.minutes import Minutes

SAME = {"sec-fetch-site": "same-origin"}


@contextmanager
def started(*words: str, errors: Path | None = None, **variables: str) -> Iterator[httpx.Client]:
    """A client of `umavez console` in a process of its own, on a port that was free."""
    command = [sys.executable, "-m", "umavez.cli", "console", "--port", "0", *words]
    import os

    environment = {**os.environ, **variables}
    with (
        (errors or Path(os.devnull)).open("w") as told,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told, text=True, env=environment) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            address = re.search(r"http://[\d.:]+/", line)
            assert address is not None, line
            with httpx.Client(base_url=address[0], timeout=60) as client:
                yield client
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture
def held(tmp_path: Path) -> tuple[str, str]:
    """A store with one record in doubt: its URL, and the record's place in the console."""
    url = f"sqlite:///{tmp_path}/loja.db?journal=delete"
    with Once(url, scope="loja") as once:
        once.migrate()

        def lost() -> None:
            raise ConnectionResetError

        with suppress(ConnectionResetError):
            once.run("charge", key="A-17", call=lost, unknown="hold")
        (record,) = once.find()
    return url, f"/records/{record.key.digest.hex()}"


def test_it_decides_about_a_store_whose_application_is_not_here(held: tuple[str, str]) -> None:
    url, place = held
    with started("--store", url) as client:
        assert "A-17" in client.get("/unknown").text
        page = client.get(f"{place}/happened")
        fields = next(fields for _, fields in Forms(page.text).found if "form" in fields)
        said = {"result": '{"id": 7, "total": 10}', "reason": "on the statement of the bank"}
        answer = client.post(f"{place}/happened", data=fields | said, headers=SAME)
        assert answer.status_code == 303, answer.text
        assert client.get("/", headers={"host": "evil.example"}).status_code == 403
    with Once(url, scope="loja") as once:
        assert once.run("charge", key="A-17", call=lambda: 1, unknown="hold").value == {"id": 7, "total": 10}


def test_what_is_asked_for_in_vain_is_answered_and_costs_no_line(held: tuple[str, str], tmp_path: Path) -> None:
    """It has no WebSockets: a request for one is a request, even where a library for them could not read it."""
    errors = tmp_path / "errors"
    websocket = {"connection": "Upgrade, close", "upgrade": "websocket", "sec-websocket-version": "13"}
    with started("--store", held[0], errors=errors) as client:
        many = {f"x-{number}": "1" for number in range(300)}
        for asked in ({**websocket, **many}, websocket, {"connection": "Upgrade, close", "upgrade": "h2c"}):
            assert client.get("/style.css", headers=asked, timeout=10).status_code < 500
        with socket.create_connection((client.base_url.host, client.base_url.port or 0), 10) as raw:
            raw.sendall(b"no HTTP at all\r\n\r\n")
            assert raw.recv(100).startswith(b"HTTP/1.1 400 ")
    assert errors.read_text() == ""


def test_beyond_this_machine_people_must_sign_in(
    held: tuple[str, str], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert VARIABLE in command("console", "--store", held[0], "--host", "0.0.0.0", code=2).stderr  # noqa: S104
    made = command("console-user", "ana", "--roles", "look+decide", "--password", "a long password")
    line = made.stdout.strip()
    assert Users(line).signed_in("ana", "a long password") == Who("ana", frozenset(("look", "decide")))
    assert "a long password" not in line

    with started("--store", held[0], **{VARIABLE: line}) as client:
        assert client.get("/").status_code == 401


def test_wrong_words_are_said_in_a_sentence(command: Command, tmp_path: Path) -> None:
    assert "There is no file" in command("console", "--store", f"sqlite:///{tmp_path}/none.db", code=2).stderr
    assert "12 characters" in command("console-user", "ana", "--password", "short", code=2).stderr
    # Before a password is asked for.
    assert "roles are" in command("console-user", "ana", "--roles", "fly", code=2).stderr
    assert "A name has" in command("console-user", "ana banana", code=2).stderr


def test_a_password_is_asked_for_twice_and_never_shown(command: Command) -> None:
    told = command("console-user", "ana", stdin="a long password\na long password\n").stdout
    assert Users(told.splitlines()[-1]).signed_in("ana", "a long password") == Who("ana")
    assert "a long password" not in told


def test_while_it_runs_what_stands_in_the_store_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(Minutes, "start", lambda _: done.append("began"))
    monkeypatch.setattr(Minutes, "close", lambda _: done.append("closed"))
    with _looking(f"sqlite:///{tmp_path}/loja.db"):
        assert done == ["began"]
    with _looking("memory:"), _looking(None):
        pass
    assert done == ["began", "closed"]
