"""Where trials take place: a file, a database lent by a running server, or a private server of their own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from chaos import Trial
from tests.servers import KINDS, CannotStart, Missing, Private, Run
from tests.servers.cluster import Cluster

CLUSTERS = {"cluster": ("on", False), "careless cluster": ("local", False), "wired cluster": ("on", True)}
"""What a commit waits for in each, and whether its nodes have networks that can be cut."""


class NoPlace(Exception):
    """The backend cannot be had here; the text says why and what to do."""


class Spot(NamedTuple):
    """An empty corner of a backend, and the private server it lies on, if it does."""

    url: str
    server: Private | Cluster | None


@contextmanager
def spot(run: Run, trial: Trial, backend: str, folder: Path) -> Iterator[Spot]:
    """An empty corner of `backend` for one trial. Raises NoPlace.

    Redis is always private here: only then is it known to write each command to its log before answering.
    """
    if backend == "sqlite":
        yield Spot(f"sqlite:///{folder / f'{secrets.token_hex(4)}.db'}", None)
    elif backend == "redis":
        with _alone(run, backend) as server:
            yield Spot(f"{server.url}/0", server)
    elif backend in CLUSTERS:
        with _cluster(*CLUSTERS[backend]) as cluster:
            yield Spot(cluster.url, cluster)
    elif trial.private:
        with _alone(run, backend) as server, KINDS[backend].lend(server.url, _name(), private=True) as url:
            yield Spot(url, server)
    else:
        found = run.server(KINDS[backend])
        if isinstance(found, Missing):
            raise NoPlace(f"{found} ({'; '.join(found.notes)}): {found.advice}")
        with run.lend(KINDS[backend], found) as url:
            yield Spot(url, None)


@contextmanager
def _alone(run: Run, backend: str) -> Iterator[Private]:
    try:
        server = run.private(KINDS[backend])
    except CannotStart as error:
        raise NoPlace(f"a private {backend} cannot be started: {error}") from error
    try:
        yield server
    finally:
        with suppress(ProcessLookupError, FileNotFoundError):
            server.thaw()
        server.stop()


@contextmanager
def _cluster(commit: str, wired: bool) -> Iterator[Cluster]:
    try:
        cluster = Cluster(os.getpid(), commit, wired=wired)
    except CannotStart as error:
        raise NoPlace(str(error)) from error
    try:
        yield cluster
    finally:
        cluster.stop()


def _name() -> str:
    return f"umavez_chaos_{secrets.token_hex(5)}"
