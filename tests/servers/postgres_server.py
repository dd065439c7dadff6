"""PostgreSQL for the tests."""

from __future__ import annotations

import getpass
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from tests.servers.kind import Kind, Launch, NoAnswer, Place, with_path


class Postgres(Kind):
    """Each run gets its own database, so the account must be allowed to create one."""

    name = "postgres"
    variable = "UMAVEZ_TEST_POSTGRES"
    package = "postgresql"
    programs = ("initdb", "postgres")
    folders = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin")
    accounts = ("postgres",)
    stop_signal = signal.SIGINT  # "fast": does not wait for clients that a failed test left behind

    def standard(self) -> list[str]:
        users = dict.fromkeys([os.environ.get("PGUSER") or "postgres", "postgres", getpass.getuser()])
        return [f"postgresql://{user}@127.0.0.1:5432/postgres" for user in users]

    def answer(self, url: str) -> str:
        try:
            with psycopg.connect(url, autocommit=True, connect_timeout=3) as connection:
                row = connection.execute(
                    "SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user"
                ).fetchone()
                version = connection.info.parameter_status("server_version") or "?"
        except psycopg.Error as error:
            raise NoAnswer(str(error).strip().splitlines()[0]) from error
        if not row or not row[0]:
            raise NoAnswer("its user may not create databases")
        return version.split()[0]

    def prepare(self, place: Place) -> Launch:
        data = place.directory / "data"
        place.execute(
            [
                str(place.programs["initdb"]),
                f"--pgdata={data}",
                "--username=postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
                "--no-instructions",
            ]
        )
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(place.port),
            "unix_socket_directories": "",
            "max_connections": "300",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return Launch(
            [str(place.programs["postgres"]), "-D", str(data), *options],
            f"postgresql://postgres@127.0.0.1:{place.port}/postgres",
        )

    @contextmanager
    def lend(self, url: str, name: str, *, private: bool) -> Iterator[str]:
        identifier = sql.Identifier(name)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(identifier))
        try:
            yield with_path(url, name)
        finally:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier))
