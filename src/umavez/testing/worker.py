"""Worker: one caller of the explorer, doing what the shells do, one step at a time; and the far side it talks to."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from umavez.core import protocol
from umavez.core.flow import Swap, SwapFlow
from umavez.core.key import Key
from umavez.core.policy import CannotTell, Happened, NotHappened, Policy
from umavez.core.protocol import Asking, Claim, Granted, Intent, Replay, Verdict
from umavez.core.record import Settled
from umavez.errors import ClaimLost, StoreUncertain
from umavez.testing.history import Answer, History

TRIES = 3
"""How often a worker sends a write again whose answer was lost."""


class Effect(NamedTuple):
    """A step that goes to the far side: an effect, or (`asks`) the question whether there was one."""

    owner: str
    intent: Intent
    fence: int
    asks: bool = False


Work = Generator[Swap | Effect, Any, Answer]


@dataclass(slots=True)
class FarSide:
    """Whoever has the effect. Keeps every effect; where `fenced`, refuses a fence below one it has seen."""

    history: History
    chance: random.Random
    fenced: bool
    highest: dict[Key, int] = field(default_factory=dict)
    ledger: list[tuple[Key, int]] = field(default_factory=list)

    def carry_out(self, effect: Effect) -> Any:
        """Whether the effect took place; or what the far side says about an earlier one."""
        key = effect.intent.key
        if self.fenced and effect.fence < self.highest.get(key, 0):
            return CannotTell() if effect.asks else False
        self.highest[key] = effect.fence
        if effect.asks:
            return self._asked(effect)
        self.ledger.append((key, effect.fence))
        self.history.affected(effect.owner, key, effect.intent.fingerprint, key.value)
        return True

    def _asked(self, effect: Effect) -> Happened | NotHappened | CannotTell:
        if self.chance.random() < 0.1:
            return CannotTell()
        life, _ = self.history.owners[effect.owner]
        return Happened() if life.effects else NotHappened()


@dataclass(slots=True)
class Caller:
    """One caller: who it is, what it wants, and how its code ends ("succeeds", "refuses" or "fails")."""

    name: str
    intent: Intent
    policy: Policy
    beats: int
    manner: str
    writes: int = 0

    def work(self) -> Work:
        """Ask, run, settle; the answer is what the caller is told."""
        try:
            verdict = yield from self._admitted()
            if isinstance(verdict, Asking):
                return (yield from self._asked(verdict))
            if isinstance(verdict, Granted):
                return (yield from self._ran(verdict.claim, took_over=verdict.taken_over is not None))
        except ClaimLost:
            return self._told("lost")
        except StoreUncertain:
            return self._told("uncertain")
        if isinstance(verdict, Replay):
            return self._told("replayed", verdict.record.settled.body if verdict.record.settled else None)
        return self._told(type(verdict).__name__.lower())

    def _admitted(self) -> SwapFlow[Verdict]:
        try:
            return (yield from protocol.admit(self.intent, self.policy, self.name))
        except StoreUncertain:
            return (yield from protocol.admit(self.intent, self.policy, self.name))

    def _ran(self, claim: Claim, *, took_over: bool) -> Work:
        for _ in range(self.beats):
            claim = yield from self._renewed(claim)
        keep = self.policy.keep_ms
        if self.manner == "fails":
            yield from self._written(lambda stamp: protocol.fail(claim, "no", keep, stamp))
            return self._told("failed", took_over=took_over)
        ok = self.manner == "succeeds"
        if ok and not (yield Effect(self.name, self.intent, claim.fence)):
            return self._told("fenced off", took_over=took_over)
        settled = Settled(ok, f"{self.intent.key.scope}:{self.name}")
        yield from self._written(lambda stamp: protocol.settle(claim, settled, keep, stamp))
        return self._told("succeeded" if ok else "refused", settled.body, took_over=took_over)

    def _asked(self, asking: Asking) -> Work:
        claim = asking.claim
        answer = yield Effect(self.name, self.intent, claim.fence, asks=True)
        keep = self.policy.keep_ms
        if isinstance(answer, CannotTell):
            yield from self._written(lambda stamp: protocol.doubt(claim, "no answer", stamp))
            return self._told("doubtful", took_over=True)
        if isinstance(answer, Happened):
            settled = Settled(True, f"{self.intent.key.scope}:{self.name}")
            yield from self._written(lambda stamp: protocol.settle(claim, settled, keep, stamp))
            return self._told("succeeded", settled.body, took_over=True)
        if not asking.doubtful.can_retry(self.policy.max_retries):
            yield from self._written(lambda stamp: protocol.fail(claim, "never done", keep, stamp))
            return self._told("exhausted", took_over=True)
        running = yield from self._written(lambda stamp: protocol.rerun(claim, "[]", stamp))
        return (yield from self._ran(running, took_over=True))

    def _renewed(self, claim: Claim) -> SwapFlow[Claim]:
        """A heartbeat: one whose answer was lost is left alone, as the next write recognises it."""
        self.writes += 1
        try:
            return (yield from protocol.renew(claim, f"{self.name}/{self.writes}"))
        except StoreUncertain:
            return claim

    def _written(self, change: Callable[[str], SwapFlow[Claim]]) -> SwapFlow[Claim]:
        """A write that matters: sent again, under its stamp, while answers are lost."""
        self.writes += 1
        for _ in range(TRIES):
            try:
                return (yield from change(f"{self.name}/{self.writes}"))
            except StoreUncertain:
                continue
        return (yield from change(f"{self.name}/{self.writes}"))

    def _told(self, kind: str, body: str | None = None, *, took_over: bool = False) -> Answer:
        return Answer(kind, self.intent.key, self.intent.fingerprint, body, took_over)
