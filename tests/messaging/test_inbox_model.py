"""The inbox against a ledger: messages come in any order and any number of times, transactions end in any way."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from umavez import Once
from umavez.messaging import Inbox, Message

IDS = st.sampled_from(["1", "2", "3", " 1", "1 ", "a", "A"])
TOPICS = st.sampled_from(["order.paid", "order.Paid", "order"])
CONSUMERS = st.sampled_from(["mailer", "Mailer"])
Name = tuple[str, str, str]


class Handled(RuleBasedStateMachine):
    """One file; each delivery is a transaction of a connection of its own. The ledger holds no unique constraint."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "inbox.db"
        self.once = Once(f"sqlite:///{self.path}?journal=delete", scope="loja")
        self.once.migrate()
        connection = self.connect()
        connection.execute("CREATE TABLE ledger (consumer TEXT, topic TEXT, id TEXT)")
        connection.close()
        self.wanted: Counter[Name] = Counter()

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path)
        connection.execute("PRAGMA synchronous=OFF")
        return connection

    def teardown(self) -> None:
        self.once.close()
        self.folder.cleanup()

    @rule(
        consumer=CONSUMERS,
        topic=TOPICS,
        name=IDS,
        end=st.sampled_from(["commit", "commit", "rollback", "fail", "vanish"]),
    )
    def delivered(self, consumer: str, topic: str, name: str, end: str) -> None:
        connection, message = self.connect(), Message(topic, "{}", name)
        fresh = not self.wanted[consumer, topic, name]

        def effect(came: Message) -> None:
            assert came is message
            assert fresh, "it took effect twice"
            connection.execute("INSERT INTO ledger VALUES (?, ?, ?)", (consumer, topic, name))
            if end == "fail":
                raise ConnectionResetError

        try:
            assert Inbox(self.once, consumer).handle(connection, message, effect) is fresh
        except ConnectionResetError:
            connection.rollback()
        self._ended(connection, end)
        if fresh and end == "commit":
            self.wanted[consumer, topic, name] = 1

    def _ended(self, connection: sqlite3.Connection, end: str) -> None:
        ends: dict[str, Callable[[], None]] = {"commit": connection.commit, "rollback": connection.rollback}
        ends.get(end, lambda: None)()  # closed without either, as by a process that was killed
        connection.close()

    @rule()
    def swept(self) -> None:
        self.once.sweep()

    @invariant()
    def each_effect_is_there_once(self) -> None:
        connection = self.connect()
        found = Counter(connection.execute("SELECT consumer, topic, id FROM ledger"))
        connection.close()
        assert found == +self.wanted


Handled.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestHandled = Handled.TestCase
