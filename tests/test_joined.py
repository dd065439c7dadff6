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
from umavez.core.policy import Policy
from umavez.core.protocol import Granted, Intent, admit
from umavez.outcome import Event
from umavez.stores.sqlite import SqliteStore
from umavez.stores.sqlite_aio import AsyncSqliteStore
from umavez.testing import ManualClock
from umavez.testing.drive import drive


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
    with shop.once.joined(connection, "pay", key="k"):
        pass

    assert shop.heard == ["taken_over", "succeeded"]
