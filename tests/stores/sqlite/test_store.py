"""What only the SQLite store has: its file, its journal, its thread, and forks."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from umavez import AsyncOnce, ConfigurationError, NotStorable, Once, SchemaOutdated, StoreUnavailable
from umavez.core.key import Key
from umavez.core.record import Draft, Query, Status
from umavez.stores.sqlite import store as module
from umavez.stores.sqlite.statements import finding


def test_the_file_is_durable_and_its_view_is_readable(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/r.db", scope="shop")
    once.run("pay", key="1", call=lambda: 1, unknown="rerun")

    asked = ("PRAGMA synchronous", "PRAGMA journal_mode", "SELECT created_at FROM idempotency_records_readable")
    (synchronous,), (journal,), (shown,) = once.store.file.write(
        lambda connection: [connection.execute(text).fetchone() for text in asked]
    )
    assert (synchronous, journal) == (2, "wal")
    assert shown.endswith("Z")
    once.close()


def test_the_seeds_indexes_and_columns_exist(tmp_path: Path) -> None:
    """S3.01: every column of the seed's table and its four indexes."""
    once = Once(f"sqlite:///{tmp_path}/r.db", scope="shop")
    once.migrate()
    once.close()
    connection = sqlite3.connect(tmp_path / "r.db")
    columns = {row[1] for row in connection.execute("PRAGMA table_xinfo(idempotency_records)")}
    indexes = {row[1]: row[2] for row in connection.execute("PRAGMA index_list(idempotency_records)")}
    connection.close()

    seed = "id idempotency_key process_instance_id activity_id operation_name status result_data error_message"
    assert {*seed.split(), "retry_count", "created_at", "updated_at", "expires_at"} <= columns
    assert indexes["idx_digest"] == 1
    assert {"idx_idempotency_key", "idx_process_instance", "idx_created_at", "idx_expires_at"} <= set(indexes)


@pytest.mark.parametrize(
    ("query", "index"),
    [(Query(status=Status.UNKNOWN), "idx_unknown"), (Query(lapsed=True), "idx_lease_until")],
    ids=["unknown", "lapsed"],
)
def test_what_is_hardly_ever_there_is_found_by_an_index_of_its_own(tmp_path: Path, query: Query, index: str) -> None:
    """A reconciler that walked the table stalled its callers for 945 ms at 300,000 records."""
    once = Once(f"sqlite:///{tmp_path}/r.db", scope="shop")
    once.migrate()
    text, values = finding(query, 0)
    plan = once.store.file.every(f"EXPLAIN QUERY PLAN {text}", values)
    once.close()

    assert f"USING INDEX {index} " in f"{plan[0][-1]} "


def test_a_newer_schema_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/r.db", scope="shop")
    once.migrate()
    once.close()
    connection = sqlite3.connect(tmp_path / "r.db")
    connection.execute("UPDATE umavez_meta SET value = 99 WHERE name = 'schema'")
    connection.commit()
    connection.close()

    with pytest.raises(Exception, match="version 99"):
        Once(f"sqlite:///{tmp_path}/r.db", scope="shop").migrate()


def test_a_folder_that_is_not_there_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="check the folder"):
        Once(f"sqlite:///{tmp_path}/nowhere/r.db", scope="shop").migrate()


def test_a_failure_that_lasts_is_not_answered_by_try_again(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no database " * 100)
    with Once(f"sqlite:///{path}", scope="loja") as once, pytest.raises(StoreUnavailable) as refused:
        once.run("greet", key="1", call=lambda: "hello", unknown="rerun")
    assert str(refused.value).endswith("nothing was written, correct the URL, or restore the file.")


def test_a_busy_file_is_told_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUSY_SECONDS", 0.05)
    once = Once(f"sqlite:///{tmp_path}/r.db?journal=delete", scope="shop")
    once.migrate()
    holder = sqlite3.connect(tmp_path / "r.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    ran: list[int] = []

    with pytest.raises(StoreUnavailable, match="locked"):
        once.run("pay", key="1", call=lambda: ran.append(1), unknown="rerun")
    holder.execute("ROLLBACK")
    holder.close()

    assert ran == []
    assert once.run("pay", key="1", call=lambda: "now", unknown="rerun").value == "now"
    once.close()


@pytest.mark.skipif(module.WAL_IS_SAFE, reason="this SQLite has no WAL race to guard against")
def test_joining_a_wal_file_on_an_old_library_is_refused_with_the_way_out(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/r.db", scope="shop")
    once.migrate()
    connection = sqlite3.connect(tmp_path / "r.db")

    with pytest.raises(ConfigurationError, match="journal=delete"), once.joined(connection, "pay", key="1"):
        pass
    connection.close()
    once.close()


def rows_as_dicts(cursor: Any, row: Any) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@pytest.mark.parametrize("rows", [rows_as_dicts, sqlite3.Row, lambda *_: object()], ids=["dicts", "Row", "objects"])
def test_whatever_rows_the_caller_s_connection_gives_it_can_be_joined(tmp_path: Path, rows: Any) -> None:
    url = f"sqlite:///{tmp_path}/r.db?journal=delete"

    async def awaited() -> Any:
        async with AsyncOnce(url, scope="shop") as once, aiosqlite.connect(tmp_path / "r.db") as connection:
            connection.row_factory = rows
            async with once.joined(connection, "pay", key="1", unknown="hold") as attempt:
                return attempt.outcome if attempt.replayed else None

    with Once(url, scope="shop") as once, closing(sqlite3.connect(tmp_path / "r.db")) as connection:
        once.migrate()
        connection.row_factory = rows
        with once.joined(connection, "pay", key="1", unknown="hold") as attempt:
            attempt.succeed("paid")
        connection.commit()
        assert connection.row_factory is rows
    assert asyncio.run(awaited()) == "paid"


def test_a_long_search_keeps_no_look_at_a_record_waiting(tmp_path: Path) -> None:
    """A loop looks at records itself: behind a search through a large table it would stand still with all its tasks."""
    with Once(f"sqlite:///{tmp_path}/r.db", scope="shop") as once:
        once.run("pay", key="1", call=lambda: 1, unknown="rerun")
        file = once.store.file  # type: ignore[attr-defined]  # a SQLite store
        with file._search_lock, ThreadPoolExecutor(1) as other:
            assert other.submit(once.get, "pay", "1").result(10) is not None


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_tasks_go_on_in_a_forked_child(tmp_path: Path, journal: str) -> None:
    url = f"sqlite:///{tmp_path}/r.db?journal={journal}"

    async def run(once: AsyncOnce, key: str) -> str:
        async def call() -> str:
            return key

        return (await once.run("pay", key=key, call=call, unknown="rerun")).value

    once = AsyncOnce(url, scope="shop")
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(run(once, "parent")) == "parent"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if asyncio.run(asyncio.wait_for(run(once, "child"), 10)) == "child" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert loop.run_until_complete(run(once, "child")) == "child"
    loop.run_until_complete(once.close())
    loop.close()


KEPT = "SELECT value FROM umavez_meta WHERE name = 'fence'"
RAISE = "UPDATE umavez_meta SET value = 77 WHERE name = 'fence'"


def test_a_glance_never_shows_what_is_not_committed(tmp_path: Path) -> None:
    """A signal handler may look while its own thread is in the middle of a transaction."""
    file = Once(f"sqlite:///{tmp_path}/r.db", scope="shop").store.file

    def work(connection: sqlite3.Connection) -> tuple[object, object]:
        connection.execute(RAISE)
        return connection.execute(KEPT).fetchone(), file.glance(KEPT, ())

    assert file.write(work) == ((77,), (0,))
    assert file.glance(KEPT, ()) == (77,)
    file.close()


def test_a_glance_waits_for_no_writer(tmp_path: Path) -> None:
    file = Once(f"sqlite:///{tmp_path}/r.db", scope="shop").store.file
    writing, looked = threading.Event(), threading.Event()

    def work(connection: sqlite3.Connection) -> None:
        connection.execute(RAISE)
        writing.set()
        assert looked.wait(10)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(file.write, work)
        assert writing.wait(10)
        assert file.glance(KEPT, ()) == (0,)
        looked.set()
        done.result(10)
    assert file.glance(KEPT, ()) == (77,)
    file.close()


def test_a_glance_gives_its_turn_back_whatever_came_of_it(tmp_path: Path) -> None:
    file = Once(f"sqlite:///{tmp_path}/r.db", scope="shop").store.file
    file.write(lambda _: None)
    with pytest.raises(SchemaOutdated):
        file.glance("SELECT 1 FROM nowhere", ())

    with ThreadPoolExecutor(1) as pool:  # whose turn it would be for ever is this thread
        pool.submit(file.write, lambda connection: connection.execute(RAISE)).result(10)
    assert file.glance(KEPT, ()) == (77,)
    file.close()


def test_a_place_longer_than_its_column_is_refused_as_what_cannot_be_kept(tmp_path: Path) -> None:
    """Not as a file that is busy: to try again would not help."""
    store = Once(f"sqlite:///{tmp_path}/r.db", scope="shop").store
    draft = Draft(Key("shop", "pay", "1"), "s", Status.PENDING, True, process_instance="p" * 256)

    with pytest.raises(NotStorable, match="256 characters"):
        store.swap(None, draft)

    assert store.read(draft.key).current is None
    store.close()
