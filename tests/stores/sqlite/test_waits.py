"""How long SQLite makes a caller wait: for a frozen writer, and for a rival's transaction that it joins beside."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from umavez.core.flow import Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Query, Status
from umavez.errors import ConfigurationError, OperationInProgress, StoreUnavailable
from umavez.stores import open_async_store, open_store

SLACK = 3.0
"""Seconds that a busy machine may add."""
TIMEOUT = 0.5
JOURNALS = pytest.mark.parametrize("journal", ["wal", "delete"])

WRITER = """
import os, signal, sys
from umavez.stores import open_store
store = open_store(sys.argv[1])
def work(connection):
    print("writing", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
store.file.write(work)
"""


def draft() -> Draft:
    return Draft(Key("s", "op", secrets.token_hex(8)), "a", Status.PENDING, True, 1, 30_000, None, "fp")


@contextmanager
def frozen_writer(url: str) -> Iterator[None]:
    """Another process, stopped in the middle of its transaction."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        os.waitid(os.P_PID, writer.pid, os.WSTOPPED | os.WNOWAIT)
        yield
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.communicate()


@JOURNALS
def test_a_frozen_writer_holds_no_thread_for_longer_than_the_time_out(tmp_path: Path, journal: str) -> None:
    url = f"sqlite:///{tmp_path}/r.db?journal={journal}&timeout={TIMEOUT}"
    store = open_store(url)
    store.migrate()

    def refused(number: int) -> float:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.sweep(10) if number % 5 == 0 else store.swap(None, draft())
        return time.monotonic() - began

    with frozen_writer(url), ThreadPoolExecutor(20) as threads:
        took = [*threads.map(refused, range(20))]

    assert max(took) < 2 * TIMEOUT + SLACK, took
    assert isinstance(store.swap(None, draft()), Swapped)
    store.close()


@JOURNALS
def test_a_frozen_writer_holds_no_task_for_longer_than_the_time_out(tmp_path: Path, journal: str) -> None:
    url = f"sqlite:///{tmp_path}/r.db?journal={journal}&timeout={TIMEOUT}"

    async def story() -> None:
        store = open_async_store(url)
        await store.migrate()
        with frozen_writer(url):
            began = time.monotonic()
            answers = await asyncio.gather(*(store.swap(None, draft()) for _ in range(20)), return_exceptions=True)
            took = time.monotonic() - began
        assert {type(answer) for answer in answers} == {StoreUnavailable}
        assert took < 2 * TIMEOUT + SLACK
        assert isinstance(await store.swap(None, draft()), Swapped)
        await store.close()

    asyncio.run(story())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    store = open_store(f"sqlite:///{tmp_path}/r.db?journal=delete")
    store.migrate()
    store.close()
    return tmp_path / "r.db"


@contextmanager
def rival(file: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    if connection.in_transaction:
        connection.execute("ROLLBACK")
    connection.close()


@JOURNALS
def test_the_first_look_of_a_process_waits_for_nobody_who_writes(tmp_path: Path, journal: str) -> None:
    """It may be within the caller's own transaction, which then would wait for itself."""
    url = f"sqlite:///{tmp_path}/r.db?journal={journal}&timeout={TIMEOUT}"
    with closing(open_store(url)) as store:
        store.migrate()
    with frozen_writer(url), closing(open_store(url)) as store:
        assert store.read(draft().key).current is None
        assert store.find(Query(limit=1)) == []


def test_joining_waits_as_long_as_it_is_told_and_not_as_the_connection_would(file: Path) -> None:
    store = open_store(f"sqlite:///{file}?journal=delete")
    connection = sqlite3.connect(file, timeout=60)
    with rival(file):
        began = time.monotonic()
        with pytest.raises(OperationInProgress):
            store.joined(connection, 0.3).swap(None, draft())
        took = time.monotonic() - began

    assert 0.2 < took < 0.3 + SLACK
    assert connection.execute("PRAGMA busy_timeout").fetchone()[0] == 60_000
    assert isinstance(store.joined(connection, 0.3).swap(None, draft()), Swapped)
    connection.rollback()
    connection.close()
    store.close()


def test_joining_outwaits_a_rival_though_the_connection_itself_would_not(file: Path) -> None:
    store = open_store(f"sqlite:///{file}?journal=delete")
    connection = sqlite3.connect(file, timeout=0)
    with rival(file) as holder:
        timer = threading.Timer(0.3, holder.execute, ("COMMIT",))
        timer.start()
        assert isinstance(store.joined(connection, 30.0).swap(None, draft()), Swapped)
        timer.join()
    connection.commit()
    connection.close()
    store.close()


def test_joining_an_awaited_connection_waits_as_long_as_it_is_told(file: Path) -> None:
    async def story() -> None:
        store = open_async_store(f"sqlite:///{file}?journal=delete")
        async with aiosqlite.connect(file, timeout=60) as connection:
            with rival(file):
                began = time.monotonic()
                with pytest.raises(OperationInProgress):
                    await store.joined(connection, 0.3).swap(None, draft())
                took = time.monotonic() - began
            assert 0.2 < took < 0.3 + SLACK
            async with connection.execute("PRAGMA busy_timeout") as cursor:
                row: Any = await cursor.fetchone()
            assert row[0] == 60_000
            assert isinstance(await store.joined(connection, 0.3).swap(None, draft()), Swapped)
            await connection.rollback()
        await store.close()

    asyncio.run(story())


def test_an_engine_that_was_told_nothing_is_as_patient_as_documented(tmp_path: Path) -> None:
    store: Any = open_store(f"sqlite:///{tmp_path}/r.db")

    assert store.file.timeout == 10.0
    assert store.find(Query()) == []
    store.close()


@pytest.mark.parametrize("text", ["0", "-1", "nan", "4000", "soon", ""])
def test_a_time_out_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="timeout"):
        open_store(f"sqlite:///{tmp_path}/r.db?timeout={text}")
