"""A way to run the command line inside the test's process, and a store of every kind."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from umavez import Once
from umavez.cli.app import app

Command = Callable[..., Result]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `umavez` with the given words; nothing in the environment names a store."""
    monkeypatch.delenv("UMAVEZ_STORE", raising=False)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words: str, code: int = 0, stdin: str | None = None) -> Result:
        result = CliRunner().invoke(app, list(words), input=stdin, prog_name="umavez")
        assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
        return result

    return run


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'a file.db'}"


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
        pytest.param("redis", marks=pytest.mark.redis),
    ]
)
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of each kind of store in turn. Servers are shared by the run: a test keeps to its own `once.scope`."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def once(store_url: str) -> Iterator[Once]:
    """An engine on `store_url` with tables and a scope that no other test has."""
    with Once(store_url, scope=f"loja-{secrets.token_hex(4)}") as engine:
        engine.migrate()
        yield engine
