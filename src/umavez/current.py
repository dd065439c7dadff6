"""The running attempt, for code inside a declared operation."""

from __future__ import annotations

from umavez._async.attempt import AsyncAttempt
from umavez._sync.attempt import Attempt
from umavez.engine.current import CURRENT
from umavez.errors import NoAttempt


def current_attempt() -> Attempt | AsyncAttempt:
    """The attempt around this code: its key, fence, number and `downstream_key()`. Raises NoAttempt outside of one.

    An Attempt where Once runs the operation, an AsyncAttempt where AsyncOnce does.
    """
    attempt: Attempt | AsyncAttempt | None = CURRENT.get()
    if attempt is None:
        raise NoAttempt("No operation of umavez is running here; call current_attempt() from inside one.")
    return attempt
