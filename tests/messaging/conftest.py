"""Databases of each kind with the tables of messaging in them, and their connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.messaging.places import Place, place_of
from umavez.messaging import Database
from umavez.testing import ManualClock

KINDS = ("sqlite", "postgres", "mariadb")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A database of each kind, its tables empty."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/messages.db?journal=delete"
    else:
        url = request.getfixturevalue(f"{request.param}_url")
    place = place_of(url)
    place.empty()
    return place


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def database(place: Place, clock: ManualClock, runner: asyncio.Runner) -> Iterator[Database]:
    database = Database(place.url, clock=clock)
    yield database
    runner.run(database.close())


@pytest.fixture
def eventually(runner: asyncio.Runner) -> Callable[..., Any]:
    """Run `work` until `met`, for at most ten seconds."""

    async def waiting(work: Any, met: Callable[[], bool]) -> None:
        stop = asyncio.Event()
        task = asyncio.create_task(work(stop))
        try:
            async with asyncio.timeout(10):
                while not met() and not task.done():  # noqa: ASYNC110 - `met` looks at a database
                    await asyncio.sleep(0.005)
        finally:
            stop.set()
            await task

    return lambda work, met: runner.run(waiting(work, met))
