"""Kill relays and consumers at random under load, restart the broker, roll back writers; count effects.

python -m chaos.messaging [--messages 100000] [--broker local|rabbitmq] [--store URL] [--seed N]

Servers: PostgreSQL as the tests find it, in a database of its own; RabbitMQ private to this script, which kills it.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from chaos.messaging_parts import CONSUMER, TOPIC, connect, effects, prepare, rows, waiting
from tests.servers import KINDS, Found, Run
from umavez.messaging import Message, Outbox

WRITERS = 4
BATCH = 20
PATIENCE = 120.0
FORGETFUL = 12.0
"""Seconds. RabbitMQ 3.10 forgets a quorum queue, with what it confirmed, when it is killed right after declaring it."""


def main() -> None:
    """Print what was done to whom, and what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--broker", choices=["local", "rabbitmq"], default="rabbitmq")
    parser.add_argument("--store")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    given = parser.parse_args()
    run = Run.begin()
    try:
        with lent_store(run, given.store) as url:
            broker = run.private(KINDS["rabbitmq"]) if given.broker == "rabbitmq" else None
            print(Chaos(url, broker, given.messages, given.seed).run())
    finally:
        run.end()


@contextmanager
def lent_store(run: Run, url: str | None) -> Iterator[str]:
    """The store at `url`, or a PostgreSQL database of our own."""
    if url is not None:
        yield url
        return
    server = run.server(KINDS["postgres"])
    assert isinstance(server, Found), "no PostgreSQL"
    with run.lend(KINDS["postgres"], server) as lent:
        yield lent


class Chaos:
    """Writers, two relays, two consumers, and somebody who kills them."""

    def __init__(self, url: str, broker: Any, messages: int, seed: int) -> None:
        self.url = url
        self.broker = broker
        self.messages = messages
        self.seed = seed
        self.chance = random.Random(seed)
        self.appended = 0
        self.kills = self.restarts = 0
        self._lock = threading.Lock()
        self._workers: list[tuple[str, subprocess.Popen[bytes]]] = []

    def run(self) -> str:
        """All of it; raises AssertionError when a message is lost or an effect happens twice."""
        prepare(self.url)
        began = time.monotonic()
        for role in ("consumer", "relay", "consumer", "relay"):
            self._workers.append((role, self._started(role)))
        if self.broker is not None:
            time.sleep(FORGETFUL)
        writers = [threading.Thread(target=self._write, args=(index,)) for index in range(WRITERS)]
        for writer in writers:
            writer.start()
        try:
            self._torment(writers)
            self._settle()
        finally:
            for _, worker in self._workers:
                worker.kill()
                worker.wait()
        return self._told(time.monotonic() - began)

    def _started(self, role: str) -> subprocess.Popen[bytes]:
        broker = self.broker.url if self.broker is not None else ""
        return subprocess.Popen([sys.executable, "-m", "chaos.messaging_parts", role, self.url, broker])

    def _write(self, index: int) -> None:
        """Append in transactions of random length and size; every fifth is rolled back, and some commit late."""
        chance = random.Random(self.seed + 1 + index)
        share = self.messages // WRITERS
        with closing(connect(self.url)) as connection:
            while share:
                many = min(share, chance.randint(1, BATCH))
                Outbox().append(connection, [Message(TOPIC, str(index)) for _ in range(many)])
                if chance.random() < 0.02:
                    time.sleep(chance.random() * 0.2)
                if chance.random() < 0.2:
                    connection.rollback()
                    continue
                connection.commit()
                share -= many
                with self._lock:
                    self.appended += many

    def _torment(self, writers: list[threading.Thread]) -> None:
        """Kill somebody every three seconds or so while there is work; the broker about every tenth time."""
        while any(writer.is_alive() for writer in writers) or waiting(self.url) > self.messages // 20:
            time.sleep(1.5 + 3 * self.chance.random())
            if self.broker is not None and self.chance.random() < 0.1:
                self.broker.kill()
                self.broker.restart()
                self.restarts += 1
                continue
            place = self.chance.randrange(len(self._workers))
            role, worker = self._workers[place]
            worker.kill()
            worker.wait()
            self.kills += 1
            self._workers[place] = (role, self._started(role))

    def _settle(self) -> None:
        """Leave them in peace until everything that was appended has had its effect."""
        if self.broker is not None and not self.restarts:
            self.broker.kill()
            self.broker.restart()
            self.restarts += 1
        # Patience counts from the last effect: a slow machine is no loss, a standstill is.
        seen, deadline = -1, time.monotonic() + PATIENCE
        while waiting(self.url) or effects(self.url)[1] < self.appended:
            total, distinct = effects(self.url)
            if distinct > seen:
                seen, deadline = distinct, time.monotonic() + PATIENCE
            assert time.monotonic() < deadline, f"seed {self.seed}: {total, distinct} of {self.appended}, then nothing"
            time.sleep(0.5)
        time.sleep(2)  # whatever would come twice has time to come
        for _, worker in self._workers:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0, "a worker did not stop gracefully"

    def _told(self, seconds: float) -> str:
        total, distinct = effects(self.url)
        again = int(rows(self.url, "SELECT coalesce(sum(attempts), 0) FROM umavez_outbox")[0][0]) - self.appended
        lost, twice = self.appended - distinct, total - distinct
        told = (
            f"N={self.appended} seed={self.seed} kills={self.kills} broker restarts={self.restarts} {seconds:.0f} s:"
            f" {total} effects ({CONSUMER}), {again} claimed again, {lost} lost, {twice} twice"
        )
        assert (lost, twice) == (0, 0), told
        return told


if __name__ == "__main__":
    main()
