"""The short form of chaos/failover.py: one failover of a real cluster, where etcd and Patroni can be had."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from chaos import Setting
from chaos.engine_servers import joined
from chaos.failover import killed, on_a_cluster
from tests.servers import CannotStart
from tests.servers.cluster import Cluster


@pytest.mark.slow
def test_a_failover_loses_nothing_and_does_nothing_twice(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    try:
        cluster = Cluster(os.getpid(), patience=45)
    except CannotStart as error:
        pytest.skip(str(error))
    try:
        report = on_a_cluster(joined, killed)(Setting("cluster", cluster.url, 1, seed, tmp_path, server=cluster))
    finally:
        cluster.stop()
    assert not report.violations, f"seed {seed}: {report.violations}"
    assert report.sometimes["failovers"] == 1, f"seed {seed}"
