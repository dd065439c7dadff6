"""Neighbours: transactions about different keys, side by side. None may fail, and none may be told to wait.

No harm is done here. What a database locks besides the rows it was asked for (gaps, whole index pages) shows only when
others work next to them: as a deadlock, or as an operation in progress that nobody is at.
"""

from __future__ import annotations

import random
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import count
from typing import Any

from chaos import Report, Setting, Trial
from chaos.engine_ledger import connected
from umavez import Once
from umavez.sequences import Sequences
from umavez.tokens import Tokens

JOINING, ALONE = 10, 3
"""Threads with transactions of their own, and threads that call the engine beside them."""


class Street:
    """The engine, its tokens and numbers on one database, and what is to be done there."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._connect: Callable[[], Any] = lambda: connected(setting.backend, setting.url)
        self.once = Once(setting.url, scope=setting.scope)
        self._tokens = Tokens(self.once, "confirm", unknown="rerun")
        self._turns: Iterator[int] = count()
        self._lock = threading.Lock()
        self.report = Report()

    def prepare(self) -> None:
        """Make the tables, and a series for each thread."""
        self.once.migrate()
        with closing(self._connect()) as connection:
            Sequences().migrate(connection)
            for house in range(JOINING):
                Sequences().define(connection, "chaos", f"series {house}")
            connection.commit()

    def live(self, house: int) -> None:
        """Transactions of one thread, each about a key that nobody else knows, until the count is reached."""
        chance = random.Random(self._setting.seed + house)
        ways = {"joined": self._join, "number": self._number, "token": self._redeem}
        with closing(self._connect()) as connection:
            while self._turn():
                way = chance.choice(list(ways))
                try:
                    ways[way](connection, house, secrets.token_hex(8))
                    connection.commit()
                    self._met(way)
                except Exception as error:  # noqa: BLE001  # whatever it is, a neighbour caused it
                    self._blame(f"{way}: {type(error).__name__}: {error}")
                    with suppress(Exception):
                        connection.rollback()

    def pass_by(self, house: int) -> None:
        """Calls of the engine on its own connections; their outcomes expire at once, and are swept."""
        while self._turn():
            try:
                self.once.run("own", key=secrets.token_hex(8), call=lambda: house, unknown="rerun", keep=0.05)
                self._met("own")
                if house == 0 and self.once.sweep(limit=100):
                    self._met("swept")
            except Exception as error:  # noqa: BLE001  # as above
                self._blame(f"own: {type(error).__name__}: {error}")

    def _join(self, connection: Any, house: int, key: str) -> None:
        with self.once.joined(connection, "order", key=key, wait=2) as attempt:
            attempt.succeed(house)

    def _number(self, connection: Any, house: int, key: str) -> None:
        with self.once.joined(connection, "invoice", key=key, wait=2) as attempt:
            attempt.succeed(Sequences().next_number(connection, "chaos", f"series {house}", key=key))

    def _redeem(self, connection: Any, house: int, key: str) -> None:
        issued = self._tokens.issue(key, {"house": house})
        with self._tokens.redeeming(connection, issued.token, key, wait=2) as attempt:
            attempt.succeed(attempt.progress)

    def _turn(self) -> bool:
        with self._lock:
            turn = next(self._turns)
        if turn < self._setting.count:
            self._setting.advance(1)
        return turn < self._setting.count

    def _met(self, way: str) -> None:
        with self._lock:
            self.report.done += 1
            self.report.sometimes[way] += 1

    def _blame(self, problem: str) -> None:
        with self._lock:
            self.report.blame(problem)


def run(setting: Setting) -> Report:
    """Let everybody work at once."""
    street = Street(setting)
    street.prepare()
    threads = [threading.Thread(target=street.live, args=(house,)) for house in range(JOINING)]
    threads += [threading.Thread(target=street.pass_by, args=(house,)) for house in range(ALONE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    street.once.close()
    return street.report


TRIALS = (
    Trial(
        "neighbours: transactions side by side",
        run,
        ("postgres", "mariadb"),
        short=1500,
        long=100_000,
        sometimes=("joined", "number", "token", "own", "swept"),
    ),
)
