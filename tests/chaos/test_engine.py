"""The chaos trials of the engine in short: the same code as `make chaos`, with less harm."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos import Setting, Trial
from chaos.engine_cancels import TRIALS as CANCELS
from chaos.engine_forks import TRIALS as FORKS
from chaos.engine_joined import TRIALS as JOINED
from chaos.engine_lost_answers import TRIALS as LOST
from chaos.engine_neighbours import TRIALS as NEIGHBOURS
from chaos.engine_outside import TRIALS as OUTSIDE
from chaos.engine_places import NoPlace, Spot, spot
from chaos.engine_servers import TRIALS as SERVERS
from chaos.engine_sqlite import TRIALS as SQLITE
from chaos.engine_zombies import TRIALS as ZOMBIES
from tests.servers import Run

TRIES = 4
"""How often harm is done before a rare path that was never met counts as a failure of the trial."""

LITTLE = {
    "joined: workers killed": 8,
    "outside: workers killed": 10,
    "zombies: frozen past the lease": 5,
    "lost answers: the conversation breaks": 20,
    "joined: connections ended": 15,
    "joined: server killed": 1,
    "outside: server killed": 1,
    "sqlite: six processes": 60,
    "sqlite: disk full": 3,
    "forks: parent and child go on": 3,
    "cancels: at every await": 1,
    "neighbours: transactions side by side": 400,
}
LONG_ONLY = {
    ("joined: server killed", "mariadb"),
    ("outside: server killed", "postgres"),
    ("outside: server killed", "mariadb"),
}
"""Starting and restarting these takes seconds, and another pair shows the same of the engine."""


def cases() -> Iterator[object]:
    for trial in (*JOINED, *OUTSIDE, *ZOMBIES, *LOST, *SERVERS, *SQLITE, *FORKS, *CANCELS, *NEIGHBOURS):
        for backend in trial.backends:
            if (trial.name, backend) not in LONG_ONLY:
                marks = [] if backend == "sqlite" else [getattr(pytest.mark, backend)]
                yield pytest.param(trial, backend, id=f"{trial.name}-{backend}", marks=marks)


@pytest.fixture
def place(trial: Trial, backend: str, server_run: Run, tmp_path: Path) -> Iterator[Spot]:
    try:
        with spot(server_run, trial, backend, tmp_path) as found:
            yield found
    except NoPlace as error:
        if os.environ.get("CI", "").lower() in {"true", "1"}:
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.parametrize(("trial", "backend"), list(cases()))
def test_nothing_is_lost_or_done_twice(trial: Trial, backend: str, place: Spot, tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    never: list[str] = []
    for number in range(1, TRIES + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        url = place.url.replace(".db", f"-{number}.db") if backend == "sqlite" else place.url
        report = trial.run(
            Setting(backend, url, LITTLE[trial.name] * number, seed + number, folder, server=place.server)
        )
        if report.skipped:
            pytest.skip(report.skipped)
        assert report.violations == [], f"seed {seed + number}"
        never = report.never(trial)
        if not never:
            return
    pytest.fail(f"in {TRIES} runs none met: {never}")
