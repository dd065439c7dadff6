"""A nursery of workers on process instances: imports everything once, then forks one for each line it reads."""

from __future__ import annotations

import os
import signal
import sys
import time

from chaos import given
from umavez import open_store
from umavez_systems.database import open_database
from umavez_systems.processos.attempts import Terms
from umavez_systems.processos.database import Reservas
from umavez_systems.processos.engine import builtin
from umavez_systems.processos.operations import Faturamento
from umavez_systems.processos.portal.client import HttpPortal
from umavez_systems.processos.runner import Runner

TERMS = Terms(lease=1.0, quiet=1.0)
"""Short claims, so that a dead worker's are soon over; and a second in which a request may still arrive."""


def runner_of(url: str, portal: str) -> Runner:
    """A runner of its own: connections are never shared with another process."""
    database = open_database(url, 2)
    faturamento = Faturamento(
        open_store(database.store_url), HttpPortal(portal, timeout=5.0), Reservas(database), terms=TERMS
    )
    return Runner(database, faturamento, pause=0.05, hold=TERMS.lease)


def labour(url: str, portal: str) -> None:
    """Move instances on until killed, or until the nursery is gone."""
    runner, nursery = runner_of(url, portal), os.getppid()
    while os.getppid() == nursery:
        if not runner.work(limit=25):
            time.sleep(0.02)


def nurse(url: str, portal: str) -> None:
    """Fork a worker for every line of input and print its process id."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    builtin()
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                labour(url, portal)
            finally:
                os._exit(1)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    nurse(*given(__doc__, "url", "portal"))
