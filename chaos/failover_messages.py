"""Messages over three RabbitMQ and a PostgreSQL cluster: nodes of the broker killed, the database failing over.

Writers, two relays and two consumers with the settings that everybody gets, so that a message can die: none may. The
ledger has no unique constraint. Writers know what they wrote: a commit that was not answered is looked up by its ids.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from chaos import Report, Setting, Trial
from chaos.engine_ledger import connected, drop
from chaos.messaging_parts import TOPIC, effects, prepare, rows
from tests.servers import CannotStart
from tests.servers.brokers import Brokers
from umavez.messaging import Message, Outbox

T = TypeVar("T")
WRITERS = 4
BATCH = 20
FAILOVERS = 5
KILLS = 20
FORGETFUL = 12.0
"""Seconds. RabbitMQ 3.10 forgets a quorum queue, with what it confirmed, when it is killed right after declaring it."""
DOWN = (2.0, 5.0)
"""Seconds that a killed node of RabbitMQ is missing."""
STANDSTILL = 180.0
"""Seconds without a single effect after which messages are called lost."""
STATES = "SELECT (SELECT count(*) FROM {0} WHERE state = 'WAITING'), (SELECT count(*) FROM {0} WHERE state = 'DEAD')"
TABLES = ("umavez_outbox", "umavez_deliveries")


class Writer(threading.Thread):
    """Appends its share in transactions of random size, no more than it is allowed, and counts what stands."""

    def __init__(self, url: str, share: int, seed: int) -> None:
        super().__init__(daemon=True)
        self._url, self._left = url, share
        self._chance = random.Random(seed)
        self._connection: Any = None
        self.appended = self.uncertain = 0
        self.allowed = 0
        """How many it may have appended by now: every harm is to meet messages."""

    def run(self) -> None:
        """Until the share is written."""
        while self._left:
            if self.appended >= self.allowed:
                time.sleep(0.02)
                continue
            messages = [Message(TOPIC, "x") for _ in range(min(self._left, self._chance.randint(1, BATCH)))]
            if insisted(lambda messages=messages: self._stands(messages)):
                self._left -= len(messages)
                self.appended += len(messages)
        drop(self._connection)

    def _stands(self, messages: list[Message]) -> bool:
        """Append and commit; a repeat after an error looks first whether the commit that was not answered was done."""
        if self._connection is None:
            self._connection = connected("postgres", self._url)
            asked = self._connection.execute("SELECT count(*) FROM umavez_outbox WHERE id = %s", (messages[0].id,))
            if asked.fetchone()[0]:
                return True
        try:
            Outbox().append(self._connection, messages)
            self._connection.commit()
        except BaseException:
            self.uncertain += 1
            drop(self._connection)
            self._connection = None
            raise
        return True


def insisted(call: Callable[[], T], seconds: float = 120.0) -> T:
    """What `call` returns, tried again for as long as a failover may take."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except (psycopg.Error, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def run(setting: Setting) -> Report:
    """`count` messages, with 20 nodes killed and 5 failovers spread over them."""
    try:
        brokers = Brokers(os.getpid())
    except CannotStart as error:
        return Report(skipped=str(error))
    try:
        return _stormed(setting, brokers)
    finally:
        brokers.stop()


def _stormed(setting: Setting, brokers: Brokers) -> Report:
    report, chance = Report(), random.Random(setting.seed)
    prepare(setting.url)
    workers = [_started(role, setting.url, brokers.url) for role in ("consumer", "relay", "consumer", "relay")]
    try:
        time.sleep(FORGETFUL)
        harms = _harms(setting, chance)
        share = setting.count // WRITERS
        writers = [Writer(setting.url, share, setting.seed + 1 + one) for one in range(WRITERS)]
        for writer in writers:
            writer.start()
        for place, harm in enumerate(harms):
            for writer in writers:
                writer.allowed = -(-share * (place + 1) // len(harms))
            _await_effects(setting, setting.count * (place + chance.uniform(0.1, 0.5)) / len(harms))
            _do(harm, setting, brokers, chance, report)
        for writer in writers:
            writer.join(600)
        appended = sum(writer.appended for writer in writers)
        report.sometimes["commits without an answer"] = sum(writer.uncertain for writer in writers)
        _settle(setting, appended, workers, report)
        _judge(setting, appended, report)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return report


def _started(role: str, url: str, broker: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "chaos.messaging_parts", role, url, broker, "usual"])


def _harms(setting: Setting, chance: random.Random) -> list[str]:
    """Fewer for few messages: one failover and two nodes at least."""
    share = min(1.0, setting.count / 20_000)
    harms = ["node"] * max(2, round(KILLS * share)) + ["failover"] * max(1, round(FAILOVERS * share))
    chance.shuffle(harms)
    return harms


def _await_effects(setting: Setting, many: float) -> None:
    """Until so many messages have had their effect, or for as long as a standstill lasts."""
    deadline = time.monotonic() + STANDSTILL
    while time.monotonic() < deadline:
        if insisted(lambda: rows(setting.url, "SELECT count(*) FROM ledger"))[0][0] >= many:
            return
        time.sleep(0.2)


def _do(harm: str, setting: Setting, brokers: Brokers, chance: random.Random, report: Report) -> None:
    if harm == "failover":
        setting.server.await_whole()
        before = setting.server.primary()
        setting.server.kill()
        setting.server.await_another(before)
        setting.server.restart()
        report.sometimes["failovers"] += 1
    else:
        brokers.kill()
        time.sleep(chance.uniform(*DOWN))
        brokers.restart()
        report.sometimes["nodes killed"] += 1


def _settle(setting: Setting, appended: int, workers: list[subprocess.Popen[bytes]], report: Report) -> None:
    """Leave them in peace until everything that was appended has had its effect, or nothing moves any more."""
    seen, deadline = -1, time.monotonic() + STANDSTILL
    while True:
        _, distinct = insisted(lambda: effects(setting.url))
        if distinct > seen:
            setting.advance(distinct - max(seen, 0))
            seen, deadline = distinct, time.monotonic() + STANDSTILL
        waiting = sum(insisted(lambda table=table: rows(setting.url, STATES.format(table)))[0][0] for table in TABLES)
        if (distinct >= appended and not waiting) or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    time.sleep(2)  # whatever would come twice has time to come
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
        if worker.wait(60):
            report.blame("a worker did not stop gracefully")


def _judge(setting: Setting, appended: int, report: Report) -> None:
    total, distinct = effects(setting.url)
    dead = sum(rows(setting.url, STATES.format(table))[0][1] for table in TABLES)
    written = rows(setting.url, "SELECT count(*) FROM umavez_outbox")[0][0]
    again = rows(setting.url, "SELECT coalesce(sum(attempts), 0) FROM umavez_outbox")[0][0] - written
    report.sometimes.update({"messages": appended, "claimed again": int(again)})
    report.done = appended
    if written != appended:
        report.blame(f"{appended} were told to be written, {written} stand")
    if distinct != appended or total != distinct or dead:
        report.blame(f"of {appended}: {appended - distinct} lost, {total - distinct} twice, {dead} dead")


TRIALS = (
    Trial(
        "failover: messages, nodes of RabbitMQ killed",
        run,
        ("cluster",),
        1000,
        100_000,
        ("failovers", "nodes killed", "messages"),
    ),
)
