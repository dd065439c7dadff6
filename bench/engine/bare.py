"""Bare drivers as subjects: the statements of our own stores without the engine; every call commits for itself."""

from __future__ import annotations

import asyncio
import json
import queue
import sqlite3
import threading
import time
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import pymysql

from bench.engine.load import RESULT
from bench.engine.subjects import Subject
from umavez.core.key import Key
from umavez.core.record import Draft, Settled, Status
from umavez.stores.mariadb import statements as mariadb_sql
from umavez.stores.rows import key_of, values_of
from umavez.stores.sqlite import statements as sqlite_sql

BODY = json.dumps(RESULT, separators=(",", ":"))
LEASE, KEEP = 30_000, 86_400_000


def claim(key: str) -> Draft:
    """What a first call writes first."""
    return Draft(Key("bench", "charge", key), key, Status.PENDING, True, lease=LEASE)


def settled(key: str) -> Draft:
    """What it writes last."""
    return Draft(Key("bench", "charge", key), key + "/1", Status.SUCCESS, False, keep=KEEP, settled=Settled(True, BODY))


class Sqlite(Subject):
    """sqlite3 with one connection under a lock, WAL, synchronous=FULL."""

    def open(self) -> None:
        path = self.url.partition(":///")[2]
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.executescript(files("umavez.stores.sqlite").joinpath("schema.sql").read_text())
        self._lock = threading.Lock()

    def first(self, key: str) -> None:
        run, new, end, now = self._connection.execute, claim(key), settled(key), int(time.time() * 1000)
        digest = new.key.digest
        with self._lock:
            run(sqlite_sql.SELECT, (digest,)).fetchone()
            run("BEGIN IMMEDIATE")
            run(sqlite_sql.NEXT_FENCES, (1,))
            (fence,) = run(sqlite_sql.LAST_FENCE).fetchone()
            claimed = values_of(new, now + LEASE, None)
            run(sqlite_sql.INSERT, (*key_of(new.key), fence, fence, now, now, *claimed))
            run("COMMIT")
        with self._lock:
            run("BEGIN IMMEDIATE")
            run(sqlite_sql.UPDATE, (now, *values_of(end, None, now + KEEP), digest, new.stamp))
            run(sqlite_sql.FENCE, (digest,)).fetchone()
            run("COMMIT")

    def replay(self, key: str) -> Any:
        with self._lock:
            row = self._connection.execute(sqlite_sql.SELECT, (Key("bench", "charge", key).digest,)).fetchone()
        return json.loads(row[12])

    def close(self) -> None:
        self._connection.close()


def _place(url: str) -> dict[str, Any]:
    split = urlsplit(url)
    return {"host": split.hostname, "port": split.port, "user": split.username, "db": split.path.strip("/")}


class PyMySQL(Subject):
    """PyMySQL, a connection for each thread."""

    def open(self) -> None:
        self._texts = mariadb_sql.texts_at(0)
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(self.callers):
            self._idle.put(pymysql.connect(**_place(self.url), autocommit=True))

    def first(self, key: str) -> None:
        connection = self._idle.get()
        cursor = connection.cursor()
        cursor.execute(*mariadb_sql.claiming(self._texts, claim(key), blind=False))
        cursor.execute(*mariadb_sql.changing(self._texts, key, settled(key)))
        self._idle.put(connection)

    def replay(self, key: str) -> Any:
        connection = self._idle.get()
        cursor = connection.cursor()
        cursor.execute(*mariadb_sql.claiming(self._texts, claim(key), blind=False))
        row = cursor.fetchone()
        self._idle.put(connection)
        return json.loads(row[14])


class Asyncmy(Subject):
    """asyncmy, a connection for each task."""

    awaited = True

    async def open(self) -> None:
        self._texts = mariadb_sql.texts_at(0)
        self._idle: asyncio.Queue[Any] = asyncio.Queue()
        for _ in range(self.callers):
            self._idle.put_nowait(await asyncmy.connect(**_place(self.url), autocommit=True))

    async def first(self, key: str) -> None:
        connection = await self._idle.get()
        async with connection.cursor() as cursor:
            await cursor.execute(*mariadb_sql.claiming(self._texts, claim(key), blind=False))
            await cursor.execute(*mariadb_sql.changing(self._texts, key, settled(key)))
        self._idle.put_nowait(connection)

    async def replay(self, key: str) -> Any:
        connection = await self._idle.get()
        async with connection.cursor() as cursor:
            await cursor.execute(*mariadb_sql.claiming(self._texts, claim(key), blind=False))
            row = await cursor.fetchone()
        self._idle.put_nowait(connection)
        return json.loads(row[14])

    async def close(self) -> None:
        while not self._idle.empty():
            self._idle.get_nowait().close()


SUBJECTS = {"sqlite3": Sqlite, "PyMySQL": PyMySQL, "asyncmy": Asyncmy}
