"""Joined attempts at a key whose earlier attempt ended without an answer: from threads and from tasks, on SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from umavez import AsyncOnce, CannotTell, Happened, NotHappened, Once, OutcomeUnknown, Status
from umavez._sync.attempt import drive
from umavez.core.policy import Policy
from umavez.core.protocol import Granted, Intent, admit
from umavez.engine.outcome import Event
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
