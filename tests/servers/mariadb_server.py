"""MariaDB for the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import unquote

import pymysql

from tests.servers.kind import Kind, Launch, NoAnswer, Place, parts, with_path


class MariaDB(Kind):
    """Each run gets its own database, so the account must be allowed to create one."""

    name = "mariadb"
    variable = "UMAVEZ_TEST_MARIADB"
    package = "mariadb-server"
    programs = ("mariadb-install-db", "mariadbd")
    accounts = ("mysql",)
    patience = 60.0

    def standard(self) -> list[str]:
        return ["mariadb://root@127.0.0.1:3306/"]

    def answer(self, url: str) -> str:
        try:
            with closing(_connect(url)) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT version()")
                version = str((cursor.fetchone() or ("?",))[0])
        except pymysql.MySQLError as error:
            raise NoAnswer(str(error.args[-1])) from error
        if "MariaDB" not in version:
            raise NoAnswer(f"it is MySQL {version}, not MariaDB")
        return version.partition("-")[0]

    def prepare(self, place: Place) -> Launch:
        data = place.directory / "data"
        place.execute(
            [
                str(place.programs["mariadb-install-db"]),
                "--no-defaults",
                f"--datadir={data}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ]
        )
        return Launch(
            [
                str(place.programs["mariadbd"]),
                "--no-defaults",
                f"--datadir={data}",
                f"--socket={place.directory / 'sock'}",
                f"--pid-file={place.directory / 'mariadbd.pid'}",
                "--bind-address=127.0.0.1",
                f"--port={place.port}",
                "--max-connections=300",
            ],
            f"mariadb://root@127.0.0.1:{place.port}/",
        )

    @contextmanager
    def lend(self, url: str, name: str, *, private: bool) -> Iterator[str]:
        _execute(url, f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
        try:
            yield with_path(url, name)
        finally:
            _execute(url, f"DROP DATABASE IF EXISTS `{name}`")


def _connect(url: str) -> pymysql.connections.Connection[Any]:
    split = parts(url)
    return pymysql.connect(
        host=split.hostname or "127.0.0.1",
        port=split.port or 3306,
        user=unquote(split.username or "root"),
        password=unquote(split.password or ""),
        connect_timeout=3,
        autocommit=True,
    )


def _execute(url: str, statement: str) -> None:
    with closing(_connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
