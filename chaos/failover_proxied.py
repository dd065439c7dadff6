"""A cluster behind HAProxy, for programs that cannot name several hosts: the shipped settings, under load."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from chaos import Report, Setting, Trial
from chaos.engine_servers import joined
from chaos.failover import handed_over, killed, node_killed, on_a_cluster
from tests.servers import CannotStart
from tests.servers.proxy import Proxy


def proxied(doing: Callable[[Setting], None]) -> Callable[[Setting], Report]:
    """The trial in joined mode, whose callers know one address only."""

    def run(setting: Setting) -> Report:
        try:
            proxy = Proxy(setting.server.nodes, os.getpid())
        except CannotStart as error:
            return Report(skipped=str(error))
        try:
            return on_a_cluster(joined, doing)(replace(setting, url=proxy.url))
        finally:
            proxy.stop()

    return run


TRIALS = (
    Trial("failover: through HAProxy, killed", proxied(killed), ("cluster",), 1, 10, ("failovers", "keys")),
    Trial("failover: through HAProxy, switched over", proxied(handed_over), ("cluster",), 1, 5, ("failovers", "keys")),
    Trial("failover: through HAProxy, node lost", proxied(node_killed), ("cluster",), 1, 2, ("failovers", "keys")),
)
