"""The servers of a run: private ones, started for it with the settings the table names, gone at the end."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.servers.kind import Kind, Launch, Place
from tests.servers.mariadb_server import MariaDB
from tests.servers.postgres_server import Postgres
from tests.servers.private import CannotStart, Private, start
from tests.servers.redis_server import Redis

POSTGRES = {"shared_buffers": "1GB", "max_wal_size": "8GB", "fsync": "on", "synchronous_commit": "on"}
MARIADB = {"innodb-buffer-pool-size": "512M", "innodb-flush-log-at-trx-commit": "1"}


class BenchPostgres(Postgres):
    """Durable, with room for the table of the growth measurement."""

    def prepare(self, place: Place) -> Launch:
        launch = super().prepare(place)
        words = [word for name, value in POSTGRES.items() for word in ("-c", f"{name}={value}")]
        return Launch([*launch.command, *words], launch.url, launch.environment)


class BenchMariaDB(MariaDB):
    """Durable."""

    def prepare(self, place: Place) -> Launch:
        launch = super().prepare(place)
        words = [f"--{name}={value}" for name, value in MARIADB.items()]
        return Launch([*launch.command, *words], launch.url, launch.environment)


class BenchRedis(Redis):
    """Without persistence, as redis-benchmark is usually read."""

    def prepare(self, place: Place) -> Launch:
        launch = super().prepare(place)
        return Launch([*launch.command, "--appendonly", "no"], launch.url, launch.environment)


KINDS: dict[str, Kind] = {kind.name: kind for kind in (BenchPostgres(), BenchMariaDB(), BenchRedis())}
SETTINGS = {
    "postgres": "private server, " + ", ".join(f"{name}={value}" for name, value in POSTGRES.items()),
    "mariadb": "private server, " + ", ".join(f"{name}={value}" for name, value in MARIADB.items()),
    "redis": "private server, no persistence",
    "sqlite": "WAL, synchronous=FULL",
}


@dataclass
class Servers:
    """URLs by kind, the versions, and why one is missing."""

    folder: Path
    urls: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)

    def port(self, name: str) -> int:
        """The port of a server."""
        return urlsplit(self.urls[name]).port or 0

    def store(self, name: str, corner: str = "") -> str:
        """The URL under which umavez opens the store; `corner` is a database, or a file."""
        if name == "sqlite":
            return f"sqlite:///{self.folder}/{corner or 'umavez'}.sqlite3"
        return f"{self.urls[name].rstrip('/').removesuffix('/postgres')}/{corner or 'umavez'}"


@contextmanager
def running(names: list[str]) -> Iterator[Servers]:
    """Start what is asked for; a server that cannot be started is listed as missing."""
    begun: list[Private] = []
    with tempfile.TemporaryDirectory(prefix="umavez-bench-") as folder:
        servers = Servers(Path(folder))
        try:
            for name in (name for name in names if name in KINDS):
                _add(servers, begun, name)
            yield servers
        finally:
            for private in begun:
                private.stop()


def _add(servers: Servers, begun: list[Private], name: str) -> None:
    kind = KINDS[name]
    programs = kind.locate()
    if programs is None:
        servers.missing[name] = f"not installed; on Debian: apt install {kind.package}"
        return
    try:
        private = start(kind, programs, os.getpid())
    except CannotStart as error:
        servers.missing[name] = str(error).splitlines()[0]
        return
    begun.append(private)
    servers.urls[name], servers.versions[name], servers.pids[name] = private.url, private.version, private.pid


def database(servers: Servers, name: str, corner: str) -> str:
    """The URL of an empty database of its own."""
    if name == "postgres":
        with psycopg.connect(servers.urls[name], autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {corner} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {corner}")
    elif name == "mariadb":
        import pymysql  # noqa: PLC0415  # only where MariaDB is measured

        with pymysql.connect(host="127.0.0.1", port=servers.port(name), user="root") as connection:
            connection.cursor().execute(f"CREATE DATABASE IF NOT EXISTS {corner} CHARACTER SET utf8mb4")
    elif name == "sqlite":
        with suppress(FileNotFoundError):
            (servers.folder / f"{corner}.sqlite3").unlink()
    elif name == "redis":
        return servers.urls[name]
    return servers.store(name, corner)
