"""Which stores `umavez doctor` looks at when none is named: those on the standard ports of this machine."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Iterator

from umavez.cli.doctor.findings import Examination

PATIENCE = 0.5


def standard(examine: Callable[[str], Examination]) -> Iterator[tuple[str, Examination | None]]:
    """Each standard product and what stands on its port: None where nothing listens."""
    for product, port, urls in (
        ("PostgreSQL", 5432, _postgres()),
        ("MariaDB", 3306, ["mariadb://root@127.0.0.1:3306/"]),
        ("Redis", 6379, ["redis://127.0.0.1:6379/0"]),
    ):
        yield product, _first(examine, urls) if _listens(port) else None


def _postgres() -> list[str]:
    users = dict.fromkeys([os.environ.get("PGUSER") or "postgres", "postgres", _user()])
    return [f"postgresql://{user}@127.0.0.1:5432/postgres" for user in users]


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run as a number without a name
        return "postgres"


def _first(examine: Callable[[str], Examination], urls: list[str]) -> Examination:
    """The first that lets us in, or what the first of them said."""
    seen = []
    for url in urls:
        seen.append(examine(url))
        if seen[-1].problem is None:
            return seen[-1]
    return seen[0]


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), PATIENCE):
            return True
    except OSError:
        return False
