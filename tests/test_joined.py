"""Joined attempts at a key whose earlier attempt ended without an answer: from threads and from tasks, on SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from umavez import (
    AsyncOnce,
    CannotTell,
    ClaimLost,
    Happened,
    NotHappened,
    Once,
    OperationInProgress,
    OutcomeUnknown,
    Status,
)
from umavez._sync.attempt import drive
from umavez.core.key import Key
from umavez.core.policy import Policy
from umavez.core.protocol import Granted, Intent, admit
from umavez.engine.outcome import Event
from umavez.stores.awaited import Awaited
from umavez.stores.memory import AsyncMemoryStore, MemoryStore
from umavez.stores.sqlite.async_store import AsyncSqliteStore
from umavez.stores.sqlite.store import SqliteStore
from umavez.testing import ManualClock


class Shop:
    """A file with a claim on "k" whose holder is gone; `answer` is what the far side says about it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.heard: list[str] = []
        self.answer: Any = CannotTell()
        self.store = SqliteStore(path, "delete", clock=self.clock)
        self.once = Once(self.store, scope="shop", observers=[self.hear])
        flow = admit(Intent(self.once.plans.any("pay").key("k")), Policy("hold", lease=30), "dead")
        assert isinstance(drive(flow, self.store), Granted)
        self.clock.advance(31)

    def hear(self, event: Event) -> None:
        self.heard.append(event.kind)

    def pay(self, connection: sqlite3.Connection) -> Any:
        with self.once.joined(connection, "pay", key="k", unknown=lambda _: self.answer) as attempt:
            if not attempt.replayed:
                attempt.succeed("ran")
        return attempt

    def apay(self, connection: sqlite3.Connection) -> Any:
        async def ask(_: Any) -> Any:
            return self.answer

        async def main() -> Any:
            store = AsyncSqliteStore(self.path, "delete", clock=self.clock)
            async with (
                AsyncOnce(store, scope="shop", observers=[self.hear]) as once,
                once.joined(connection, "pay", key="k", unknown=ask) as attempt,
            ):
                if not attempt.replayed:
                    await attempt.succeed("ran")
            return attempt

        return asyncio.run(main())

    def status(self) -> Status:
        record = self.once.get("pay", "k")
        assert record is not None
        return record.status


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "shop.db")
    yield made
    made.once.close()


@pytest.fixture
def connection(shop: Shop) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(shop.path, isolation_level=None)) as made:
        yield made


both = pytest.mark.parametrize("pay", [Shop.pay, Shop.apay], ids=["threads", "tasks"])


@both
def test_what_the_far_side_has_is_adopted_in_the_callers_transaction(shop: Shop, connection: Any, pay: Any) -> None:
    shop.answer = Happened("paid")

    attempt = pay(shop, connection)

    assert (attempt.replayed, attempt.outcome) == (True, "paid")
    assert shop.heard == ["asked", "adopted"]
    assert shop.status() is Status.PENDING, "the caller has not committed yet"
    connection.commit()
    assert shop.status() is Status.SUCCESS


@both
def test_what_the_far_side_never_did_runs_in_the_callers_transaction(shop: Shop, connection: Any, pay: Any) -> None:
    shop.answer = NotHappened()

    attempt = pay(shop, connection)

    assert (attempt.replayed, attempt.outcome, attempt.number) == (False, "ran", 2)
    connection.rollback()
    assert shop.status() is Status.PENDING


@both
def test_a_doubt_stays_one_if_the_caller_commits_it(shop: Shop, connection: Any, pay: Any) -> None:
    with pytest.raises(OutcomeUnknown):
        pay(shop, connection)

    connection.commit()
    assert shop.status() is Status.UNKNOWN


def test_a_takeover_inside_a_transaction_is_told(shop: Shop, connection: Any) -> None:
    with shop.once.joined(connection, "pay", key="k", unknown="rerun"):
        pass

    assert shop.heard == ["taken_over", "succeeded"]


def test_a_block_that_says_nothing_holds_what_is_unknown(shop: Shop, connection: Any) -> None:
    with pytest.raises(OutcomeUnknown), shop.once.joined(connection, "pay", key="k"):
        raise AssertionError("it ran")


@pytest.mark.parametrize(("unknown", "runs"), [("hold", False), ("rerun", True)])
def test_a_block_treats_the_unknown_as_its_operation_was_declared(
    shop: Shop, connection: Any, unknown: str, runs: bool
) -> None:
    @shop.once.operation("pay", key=lambda key: key, unknown=unknown, lease=30, keep=77)
    def pay(key: str) -> str:
        return key

    if not runs:
        with pytest.raises(OutcomeUnknown), shop.once.joined(connection, "pay", key="k"):
            raise AssertionError("it ran")
        return
    with shop.once.joined(connection, "pay", key="k") as attempt:
        attempt.succeed("ran")
    connection.commit()
    record = shop.once.get("pay", "k")
    assert record is not None
    assert record.expires_at == record.updated_at + 77_000, "it is kept as declared"


@pytest.mark.parametrize("ending", ["commit", "executescript"])
def test_a_block_that_was_committed_in_the_middle_is_noticed_and_never_run_twice(
    shop: Shop, connection: Any, caplog: pytest.LogCaptureFixture, ending: str
) -> None:
    with shop.once.joined(connection, "send", key="1") as attempt:
        connection.execute("CREATE TABLE IF NOT EXISTS sent (n)")
        connection.execute("INSERT INTO sent VALUES (1)")
        connection.commit() if ending == "commit" else connection.executescript("SELECT 1")
        attempt.succeed("sent")

    assert "ended inside its block" in caplog.text
    connection.rollback()  # the process died before it could commit the outcome
    shop.clock.advance(31)
    with pytest.raises(OutcomeUnknown), shop.once.joined(connection, "send", key="1"):
        raise AssertionError("it ran a second time")


def test_a_block_that_leaves_its_transaction_alone_says_nothing(
    shop: Shop, connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with shop.once.joined(connection, "send", key="1") as attempt:
        attempt.checkpoint("half")
        attempt.succeed("sent")
    connection.commit()

    assert not caplog.records


class Kept(Exception):
    """Ends a block."""


class Till:
    """A file with a table of its own beside the engine's, and a connection whose transactions are the caller's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.store = SqliteStore(path, "delete", clock=self.clock)
        self.once = Once(self.store, scope="shop")
        self.store.migrate()
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("CREATE TABLE paid (key TEXT)")

    def begin(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.execute("INSERT INTO paid VALUES ('k')")

    def stands(self) -> tuple[Status | None, int]:
        record = self.once.get("pay", "k")
        return None if record is None else record.status, self.connection.execute(
            "SELECT count(*) FROM paid"
        ).fetchone()[0]


@pytest.fixture
def till(tmp_path: Path) -> Iterator[Till]:
    made = Till(tmp_path / "till.db")
    with closing(made.store), closing(made.connection):
        yield made


def test_a_claim_made_in_the_callers_transaction_is_committed_with_it_and_settled_apart(till: Till) -> None:
    till.begin()
    with till.once.attempt("pay", key="k", unknown="hold", connection=till.connection) as attempt:
        assert not attempt.replayed
        till.connection.execute("COMMIT")
        assert till.stands() == (Status.PENDING, 1)
        attempt.renew()
        attempt.succeed("ran")
    assert till.stands() == (Status.SUCCESS, 1)


def test_a_claim_that_was_rolled_back_is_none_and_its_end_is_not_written(till: Till) -> None:
    till.begin()
    with (
        pytest.raises(ClaimLost),
        till.once.attempt("pay", key="k", unknown="hold", connection=till.connection) as attempt,
    ):
        till.connection.execute("ROLLBACK")
        assert (till.stands(), attempt.replayed) == ((None, 0), False)
        attempt.succeed("ran")
    assert till.stands() == (None, 0)


def test_an_error_after_the_commit_is_recorded_as_of_any_attempt(till: Till) -> None:
    till.begin()
    with (
        pytest.raises(Kept),
        till.once.attempt("pay", key="k", unknown="hold", connection=till.connection) as attempt,
    ):
        till.connection.execute("COMMIT")
        assert not attempt.replayed
        raise Kept
    assert till.stands() == (Status.UNKNOWN, 1)


@pytest.mark.parametrize(("end", "status", "rows"), [("COMMIT", Status.SUCCESS, 1), ("ROLLBACK", Status.PENDING, 0)])
def test_an_end_in_the_callers_transaction_shares_its_fate(till: Till, end: str, status: Status, rows: int) -> None:
    with till.once.attempt("pay", key="k", unknown="hold") as attempt:
        assert not attempt.replayed
        till.begin()
        attempt.succeed("ran", connection=till.connection)
        till.connection.execute(end)
    assert till.stands() == (status, rows)


def test_the_end_of_a_lost_claim_leaves_the_callers_transaction_usable(till: Till) -> None:
    with pytest.raises(ClaimLost), till.once.attempt("pay", key="k", unknown="hold", lease=30) as attempt:
        assert not attempt.replayed
        till.connection.execute("UPDATE idempotency_records SET stamp = 'another'")
        till.begin()
        try:
            attempt.succeed("ran", connection=till.connection)
        finally:
            till.connection.execute("COMMIT")
    assert till.stands() == (Status.PENDING, 1)


def test_tasks_claim_and_end_in_the_callers_transaction_too(till: Till) -> None:
    async def main() -> None:
        async with AsyncOnce(AsyncSqliteStore(till.path, "delete", clock=till.clock), scope="shop") as once:
            till.begin()
            async with once.attempt("pay", key="k", unknown="hold", connection=till.connection) as attempt:
                assert not attempt.replayed
                till.connection.execute("COMMIT")
                till.begin()
                await attempt.succeed("ran", connection=till.connection)
                till.connection.execute("COMMIT")

    asyncio.run(main())
    assert till.stands() == (Status.SUCCESS, 2)


class Within(MemoryStore):
    """An engine's store, and a stand-in for the callers' transactions: in them an attempt apart holds "k"."""

    def __init__(self) -> None:
        super().__init__()
        self.transaction = MemoryStore()
        flow = admit(Intent(Key("shop", "pay", "k")), Policy("hold", lease=30), "apart")
        assert isinstance(drive(flow, self.transaction), Granted)

    def joined(self, connection: object, wait: float = 10.0) -> MemoryStore:
        return self.transaction


@pytest.mark.parametrize("way", ["joined", "attempt"])
def test_a_rival_apart_is_not_waited_for_outside_of_the_callers_transaction(way: str) -> None:
    store = Within()
    once = Once(store, scope="shop")
    once.operation("pay", key=lambda key: key, unknown="hold", wait=5.0)(lambda key: key)
    enter = once.joined(object(), "pay", key="k") if way == "joined" else once.attempt("pay", key="k", connection=1)
    with pytest.raises(OperationInProgress), enter:
        raise AssertionError("entered beside an attempt")
    assert once.get("pay", "k") is None, "claimed where the caller's rollback does not reach"
    assert store.transaction.read(Key("shop", "pay", "k")).current is not None


def test_tasks_do_not_wait_outside_of_the_callers_transaction_either() -> None:
    class AsyncWithin(AsyncMemoryStore):
        def joined(self, connection: object, wait: float = 10.0) -> Any:
            return Awaited(Within().transaction)

    async def main() -> None:
        once = AsyncOnce(AsyncWithin(), scope="shop")
        with pytest.raises(OperationInProgress):
            async with once.attempt("pay", key="k", unknown="hold", wait=5.0, connection=1):
                raise AssertionError("entered beside an attempt")
        assert await once.get("pay", "k") is None, "claimed where the caller's rollback does not reach"

    asyncio.run(main())
