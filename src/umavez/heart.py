"""Heart: renews the leases of running attempts, from its own thread, so that busy code cannot starve it."""

from __future__ import annotations

import os
import threading
import time
import weakref

from umavez.attempt import Attempt
from umavez.errors import ClaimLost, UmavezError

BEATS = 3
"""Beats per lease: two may fail before a claim is in danger."""


class Heart:
    """Beats for every attempt between `begin` and `end`.

    The thread looks at its attempts at the pace of the shortest lease, not when each one begins: most
    attempts are over long before their first beat, and waking a thread for each would cost more than they do.
    """

    def __init__(self) -> None:
        self.start_anew()
        # In a forked child the thread does not exist, though everything here says that it does.
        _HEARTS.add(self)

    def start_anew(self) -> None:
        """Know no attempt and no thread."""
        self._attempts: set[Attempt] = set()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._pace = 0.0
        self._closed = False

    def begin(self, attempt: Attempt) -> None:
        """Renew `attempt`'s lease from now on."""
        self._attempts.add(attempt)
        pace = attempt.plan.policy.lease / BEATS
        if self._pace == 0.0 or pace < self._pace:
            self._quicken(pace)

    def end(self, attempt: Attempt) -> None:
        """Stop renewing. A beat under way ends by itself; the attempt's lock orders it with settling."""
        self._attempts.discard(attempt)

    def close(self) -> None:
        """Stop beating. The thread ends by itself."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    def _quicken(self, pace: float) -> None:
        with self._wake:
            self._pace = pace
            self._closed = False
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="umavez-heart", daemon=True)
                self._thread.start()
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait(self._pace or None)
                if self._closed:
                    self._thread, self._pace = None, 0.0
                    return
                if not self._attempts:
                    # Idle: sleep until somebody begins.
                    self._pace = 0.0
                    continue
            for attempt in list(self._attempts):
                if due(attempt, time.monotonic()):
                    self._beat(attempt)

    def _beat(self, attempt: Attempt) -> None:
        try:
            attempt.renew()
        except ClaimLost:
            self.end(attempt)
        except UmavezError:
            missed(attempt, time.monotonic())


def due(attempt: Attempt, now: float) -> bool:
    """Whether an attempt's lease should be renewed at this look; half a beat early rather than a beat late."""
    return not attempt.done and now - attempt.beaten_at >= attempt.plan.policy.lease / BEATS / 2


def missed(attempt: Attempt, now: float) -> None:
    """A beat failed. Once a whole lease has passed without one, nobody may trust the claim any more."""
    if now - attempt.beaten_at >= attempt.plan.policy.lease:
        attempt.lost = True


_HEARTS: weakref.WeakSet[Heart] = weakref.WeakSet()


def _start_all_anew() -> None:
    for heart in _HEARTS:
        heart.start_anew()


os.register_at_fork(after_in_child=_start_all_anew)
