"""The reconciler as a service: a round every so often until it is told to stop. Several may run at once."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from typing import Any

from umavez import UmavezError
from umavez_systems.fiscal.assembly import Sistema
from umavez_systems.problems import Problem

LOG = logging.getLogger("umavez.systems.fiscal")
BUDGET = 100
"""Questions and sends in one round."""


def servir(
    system: Sistema,
    stop: threading.Event,
    every: float,
    told: Callable[[int], None],
    budget: int = BUDGET,
) -> None:
    """Round after round; a database or an authority that is away is met again in the next one.

    Every act is held by one worker at a time, by the engine's claim, and questions are counted in the database: how
    many of these run changes nothing but the speed.
    """
    while not stop.is_set():
        try:
            system.zelar()
            told(system.livros.varrer(budget))
        except (UmavezError, Problem) as error:
            LOG.warning("The fiscal reconciler will try again: %s", error)
        stop.wait(every)


def ate_sinal() -> threading.Event:
    """An event that SIGINT and SIGTERM set: the round under way ends, and no other begins."""
    stop = threading.Event()

    def ended(_number: int, _frame: Any) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ended)
    return stop
