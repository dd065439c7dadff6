"""The attempt that is running around the code that asks, whichever shell began it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

CURRENT: ContextVar[Any] = ContextVar("umavez_attempt", default=None)
"""An Attempt, an AsyncAttempt or None. One for both shells: a plain function called by a task sees the task's."""


def forget_ended() -> None:
    """Leave the attempts around this code that are over.

    A server may begin the next request of a connection from within the answer to the last one, and it then inherits
    that one's attempt, which is none of its business.
    """
    running = CURRENT.get()
    if running is None:
        return
    while running is not None and running.done:
        running = running.parent
    CURRENT.set(running)


def running(around: Any) -> Any:
    """The innermost attempt from `around` outwards whose code still runs, or None; ended ones between two are let go.

    What an attempt has started may go on after it and begin the next. Kept, all rounds of a job that starts its own
    successor would stay in memory, with their outcomes.
    """
    innermost = inner = _running(around)
    while inner is not None:
        outer = _running(inner.parent)
        inner.parent, inner = outer, outer
    return innermost


def _running(around: Any) -> Any:
    while around is not None and around.home is None:
        around = around.parent
    return around
