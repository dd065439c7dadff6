"""What callers get, what an asked far side is told, and what observers hear."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Generic, NamedTuple, TypeVar, final

from umavez.core.key import Key
from umavez.core.record import Record
from umavez.core.telling.origin import Origin

T = TypeVar("T")


@final
class Outcome(NamedTuple, Generic[T]):
    """The value of an operation; whether it was replayed; which attempt made it; and its key."""

    value: T
    replayed: bool
    attempt: int
    key: Key


class Question(NamedTuple):
    """What a callable given as `unknown=` is asked about: an attempt that ended without an answer.

    `fence` is the asker's, and higher than that attempt's: a far side that compares fences and is told it here can
    refuse the attempt if it wakes up after the answer.
    """

    key: Key
    number: int
    progress: Any
    record: Record
    fence: int = 0

    def downstream_key(self, purpose: str = "") -> str:
        """The key the attempt handed to the far side; see Attempt.downstream_key."""
        return downstream_key(self.key, purpose)


class Event(NamedTuple):
    """Something countable happened to a key. `kind` is one of the words in KINDS.

    `seconds`: how long it took, where it took time. `fence`: of the claim it happened to, 0 where there was none.
    `error`: the type of the error that an attempt failed with, as tracing names it. `origin`: of what is replayed,
    where the call came from that made it, if an observer of this engine has a trace.
    """

    kind: str
    key: Key
    attempt: int
    seconds: float = 0.0
    fence: int = 0
    error: str = ""
    origin: Origin | None = None


KINDS = (
    "succeeded",
    "replayed",
    "refused",
    "failed",
    "unknown",
    "held",
    "taken_over",
    "asked",
    "adopted",
    "waited",
    "busy",
    "mismatched",
    "exhausted",
    "lost",
    "resolved",
    "released",
    "issued",
    "rejected",
    "cancelled",
    "expired",
    "acquired",
)
"""`unknown` is an attempt that ended so, or whose holder is gone; `held` a caller who was refused because of one.
`waited` is told before whatever the wait for a rival came to."""

Observer = Callable[[Event], None]
"""Hears every event. It runs in the caller's thread or task: it must be quick, and must not raise."""


def downstream_key(key: Key, purpose: str) -> str:
    """A key for the far side: the same for every attempt at `key`, different for every purpose; 64 characters."""
    return sha256(b"downstream" + key.digest + purpose.encode()).hexdigest()
