"""Stores with records in doubt, and a console on each of them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.console.browser import OPEN, Browser
from umavez import Key, Once, Record, console
from umavez.console import EVERYTHING, Who, loopback
from umavez.migration import migrate


@pytest.fixture(autouse=True)
def closed_browsers() -> Iterator[None]:
    """No loop outlives its test."""
    yield
    while OPEN:
        OPEN.pop().close()


class Lost(Exception):
    """The far side did not answer."""


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        "wal",
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
        pytest.param("redis", marks=pytest.mark.redis),
    ]
)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each kind of store; `sqlite` joins, `wal` does not on an old library."""
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/loja.db?journal=delete"
    if request.param == "wal":
        return f"sqlite:///{tmp_path}/wal.db"
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def once(store_url: str) -> Iterator[Once]:
    """An engine with tables and a scope of its own."""
    with Once(store_url, scope=f"loja-{secrets.token_hex(4)}") as engine:
        engine.migrate()
        yield engine


def doubt(once: Once, key: str, operation: str = "charge", error: str = "no answer") -> Record:
    """A record that nobody knows the outcome of."""

    def call() -> None:
        raise Lost(error)

    with suppress(Lost):
        once.run(operation, key=key, call=call, unknown="hold")
    return seen(once, operation, key)


def seen(once: Once, operation: str, key: str) -> Record:
    record = once.store.read(Key(once.scope, operation, key)).current
    assert record is not None
    return record


def place(record: Record, act: str = "") -> str:
    return f"/records/{record.key.digest.hex()}{'/' + act if act else ''}"


@pytest.fixture
def opened(once: Once) -> Iterator[Callable[..., Browser]]:
    """Opens the console of `once` for somebody who may do what is given."""
    made: list[Any] = []

    def open_for(*may: str, name: str = "ana", address: str = "127.0.0.1", language: str = "en") -> Browser:
        roles = frozenset(may) or EVERYTHING
        app = console(once, authorize=lambda _: Who(name, roles), panels=[])
        made.append(app)
        return Browser(app, address, language)

    yield open_for
    for app in made:
        app.close()


@pytest.fixture
def sqlite_once(tmp_path: Path) -> Iterator[Once]:
    """An engine on a file that a console can join."""
    url = f"sqlite:///{tmp_path}/one.db?journal=delete"
    migrate(url)
    with Once(url, scope="loja") as engine:
        yield engine


@pytest.fixture
def browser(sqlite_once: Once) -> Iterator[Browser]:
    """Somebody at this machine, at the console of `sqlite_once`."""
    app = console(sqlite_once, authorize=loopback, panels=[])
    yield Browser(app)
    app.close()
