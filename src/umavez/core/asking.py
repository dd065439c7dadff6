"""Asking: what follows the far side's answer about an attempt without one. The rule, once, for whoever asks."""

from __future__ import annotations

from typing import Any, NamedTuple

from umavez.core.encoding.texts import legible
from umavez.core.policy import Answer, CannotTell, Happened, Policy
from umavez.core.record import Record


class Adopt(NamedTuple):
    """It happened: keep `value` as the outcome."""

    value: Any
    evidence: str


class GiveUp(NamedTuple):
    """Nobody can tell: the outcome stays unknown. `silent`: no answer came, and `evidence` is our own word on it."""

    evidence: str
    silent: bool = False


class Exhaust(NamedTuple):
    """It never happened, and no retry is left."""

    evidence: str


class Rerun(NamedTuple):
    """It never happened: the operation may run again."""

    evidence: str


Consequence = Adopt | GiveUp | Exhaust | Rerun


def consequence(answer: Answer, doubtful: Record, policy: Policy) -> Consequence:
    """What to do with the claim under which the far side was asked about `doubtful`."""
    if isinstance(answer, Happened):
        return Adopt(answer.value, "the far side has it")
    if isinstance(answer, CannotTell):
        return GiveUp(legible(answer.reason or "the far side could not tell"))
    if not doubtful.can_retry(policy.max_retries):
        return Exhaust("the far side never did it, and no retry is left")
    return Rerun("the far side never did it")
