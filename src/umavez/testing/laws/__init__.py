"""The laws that every store obeys. Each is a function of a bench that raises AssertionError when broken.

`ALL` holds them in reading order; `name(law)` is a law as a sentence.
"""

from umavez.testing.laws import (
    claims,
    doubts,
    events,
    finding,
    keys,
    minutes,
    origins,
    outcomes,
    races,
    swaps,
    sweeping,
    times,
)
from umavez.testing.laws.law import Law, name

ALL: tuple[Law, ...] = (
    *claims.LAWS,
    *doubts.LAWS,
    *swaps.LAWS,
    *outcomes.LAWS,
    *times.LAWS,
    *sweeping.LAWS,
    *finding.LAWS,
    *keys.LAWS,
    *races.LAWS,
    *events.LAWS,
    *origins.LAWS,
    *minutes.LAWS,
)

__all__ = ["ALL", "Law", "name"]
