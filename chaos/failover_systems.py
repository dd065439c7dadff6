"""The systems on a cluster: their own storms, unchanged, while the database fails over and RabbitMQ loses nodes."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from chaos import Report, Setting, Trial, fiscal, mailing, propostas
from chaos.fiscal_worker import undecided
from tests.servers import CannotStart
from tests.servers.brokers import Brokers
from tests.servers.cluster import Cluster
from umavez import StoreError

FAILOVERS = 5
PAUSES = (1.0, 4.0)
"""Seconds between a whole cluster and the next harm."""
HOSTS = 2
KILLED_EVERY = (2.0, 6.0)
"""Seconds between two workers killed on each host: a worker needs some to start."""


Began = Callable[..., None]
"""Called by a storm when everything runs: a server that finds no database when it starts ends, and is started again."""


class Breaker(threading.Thread):
    """Kills the primary again and again, each time when the cluster is whole, from `begin` until `end`."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        super().__init__(daemon=True)
        self._cluster, self._chance = cluster, random.Random(seed)
        self._begun, self._ended = threading.Event(), threading.Event()
        self.failovers = 0
        self.trouble = ""

    def begin(self, *_: object) -> None:
        """Do harm from now on."""
        self._begun.set()

    def run(self) -> None:
        """Five times, or until ended."""
        self._begun.wait()
        try:
            while self.failovers < FAILOVERS and not self._ended.wait(self._chance.uniform(*PAUSES)):
                self._cluster.await_whole()
                before = self._cluster.primary()
                self._cluster.kill()
                self._cluster.await_another(before)
                self._cluster.restart()
                self.failovers += 1
        except CannotStart as error:
            self.trouble = str(error)

    def end(self) -> None:
        """No more harm; the cluster is whole again when this returns."""
        self._ended.set()
        self._begun.set()
        self.join(240)


def failing_over(storm: Callable[[Setting, Began], Report]) -> Callable[[Setting], Report]:
    """`storm`, with the database's primary killed meanwhile."""

    def run(setting: Setting) -> Report:
        breaker = Breaker(setting.server, setting.seed)
        breaker.start()
        try:
            report = storm(replace(setting, backend="postgres"), breaker.begin)
        finally:
            breaker.end()
        report.sometimes["failovers"] = breaker.failovers
        if breaker.trouble:
            report.blame(f"the cluster did not come back: {breaker.trouble}")
        return report

    return run


def on_two_hosts(setting: Setting, began: Began) -> Report:
    """Clientes from two servers with two workers each, which are killed too."""
    return propostas.on_hosts(setting, HOSTS, KILLED_EVERY, began)


def mailed(setting: Setting, began: Began) -> Report:
    """Mailings through three RabbitMQ, of which one at a time is killed, by workers that are killed too."""
    try:
        brokers = Brokers(os.getpid())
    except CannotStart as error:
        return Report(skipped=str(error))
    waiting = mailing._wait  # noqa: SLF001  # the storm as it is

    def waited(*given: Any) -> None:
        began()
        waiting(*given)

    try:
        with patch.object(mailing, "_wait", waited):
            # Not "postgres": there the storm cuts every connection by itself, which failovers do here.
            return mailing._stormed(replace(setting, backend="cluster"), brokers)  # noqa: SLF001  # the same
    finally:
        brokers.stop()


def emitted(setting: Setting, began: Began) -> Report:
    """Fiscal documents of all kinds: workers killed, answers lost, the authority restarted."""

    def counted(system: Any, count: int) -> list[int]:
        """The storm's own look at the tables, which waits a failover out."""
        began()
        deadline = time.monotonic() + 60
        while True:
            try:
                return undecided(system, count)
            except StoreError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    with patch.object(fiscal, "undecided", counted):
        return fiscal.run(setting, fiscal.ALL)


TRIALS = (
    Trial(
        "failover: propostas on two hosts", failing_over(on_two_hosts), ("cluster",), 80, 3000, ("failovers", "replays")
    ),
    Trial("failover: mailing", failing_over(mailed), ("cluster",), 11, 30, ("failovers", "killed", "broker killed")),
    Trial("failover: fiscal", failing_over(emitted), ("cluster",), 12, 500, ("failovers", "killed", "emissao")),
)
