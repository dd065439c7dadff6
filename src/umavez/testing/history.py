"""History: what happened in a schedule, and the invariants that it must keep.

I1 effects: at most one in a key's life; with "rerun", at most one for each attempt and all under one downstream key.
I3 answers: every final answer in a life is the same text. I4 fences rise, and the highest completes.
I5 no answer of one scope reaches another. I6 another content never runs nor gets an answer.
I7 (judged by the explorer) once faults stop, every key comes to an end.
And: nobody acts without a claim, retries are counted, and nobody is overtaken before its lease is
over by the store's clock.

A key's life ends when its last completion has been kept for its time. That is computed here from the times of the
completions alone, so that a store or a rule which forgets a record cannot hide a duplicate.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NamedTuple

from umavez.core.flow import Swap, Swapped
from umavez.core.key import Key
from umavez.core.policy import Policy
from umavez.core.record import Instant, Settled, Status
from umavez.testing.clock import ManualClock

FINAL = frozenset(("succeeded", "refused", "replayed"))


class Violation(AssertionError):
    """An invariant is broken; `invariant` says which."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


class Answer(NamedTuple):
    """What one worker told its caller."""

    kind: str
    key: Key
    meaning: str | None
    body: str | None = None
    took_over: bool = False


def said(settled: Settled) -> str:
    """What a caller hears of what is kept: the value, or the message of the refusal."""
    kept = json.loads(settled.body or '""')
    return str(kept if settled.ok else kept["message"])


@dataclass(slots=True)
class Life:
    """One life of a key: from its first claim until its outcome's time has passed."""

    meaning: str | None
    attempts: int = 0
    effects: list[str] = field(default_factory=list)
    body: str | None = None
    completed_at: Instant | None = None


@dataclass(slots=True)
class History:
    """The lives of all keys, told by those who saw the swaps, effects and answers."""

    policy: Policy
    clock: ManualClock
    lives: dict[Key, list[Life]] = field(default_factory=dict)
    fences: dict[Key, int] = field(default_factory=dict)
    owners: dict[str, tuple[Life, int]] = field(default_factory=dict)
    leases: dict[Key, Instant] = field(default_factory=dict)

    def running(self) -> bool:
        """Whether somebody holds a claim."""
        return bool(self.leases)

    def swapped(self, swap: Swap, reply: object) -> None:
        """A swap was carried out."""
        if type(reply) is not Swapped:
            return
        draft = swap.draft
        owner = draft.stamp.partition("/")[0]
        if draft.claims:
            self._granted(owner, draft.key, draft.fingerprint, reply.fence)
        if draft.status is Status.PENDING:
            self.leases[draft.key] = self.clock.now() + (draft.lease or 0)
        else:
            self._given_up(owner, draft.key)
        if draft.keep is not None:
            self._completed(owner, draft.key, None if draft.settled is None else said(draft.settled))

    def _given_up(self, owner: str, key: Key) -> None:
        until = self.leases.pop(key, 0)
        holder = self.owners.get(owner)
        if until > self.clock.now() and (holder is None or holder[1] != self.fences[key]):
            raise Violation("lease", f"{key} was taken from its owner by {owner} before its lease was over")

    def _granted(self, owner: str, key: Key, meaning: str | None, fence: int) -> None:
        if fence <= self.fences.get(key, 0):
            raise Violation("I4", f"fence {fence} of {key} does not rise")
        if self.leases.get(key, 0) > self.clock.now():
            raise Violation("lease", f"{key} was taken over by {owner} before its lease was over")
        self.fences[key] = fence
        life = self._life(key, meaning)
        if life.meaning != meaning:
            raise Violation("I6", f"{key} was claimed for another content")
        life.attempts += 1
        life.completed_at = None
        self.owners[owner] = (life, fence)
        if self.policy.reruns() and life.attempts > self.policy.max_retries + 1:
            raise Violation("retries", f"{key} was attempted {life.attempts} times")

    def _life(self, key: Key, meaning: str | None) -> Life:
        lives = self.lives.setdefault(key, [])
        if not lives or self._over(lives[-1]):
            lives.append(Life(meaning))
        return lives[-1]

    def _over(self, life: Life) -> bool:
        at = life.completed_at
        return at is not None and at + self.policy.keep_ms <= self.clock.now()

    def _completed(self, owner: str, key: Key, body: str | None) -> None:
        life, fence = self._claimed(owner, key)
        if fence != self.fences[key]:
            raise Violation("I4", f"{key} was completed by {owner}, whose fence is not the highest")
        if body is not None and life.body is not None:
            raise Violation("I3", f"{key} was settled twice in one life")
        life.body = body
        life.completed_at = self.clock.now()

    def _claimed(self, owner: str, key: Key) -> tuple[Life, int]:
        if owner not in self.owners:
            raise Violation("claim", f"{owner} acted on {key} without ever having held it")
        return self.owners[owner]

    def affected(self, owner: str, key: Key, meaning: str | None, downstream: str) -> None:
        """The far side did what `owner` asked for."""
        life, _ = self._claimed(owner, key)
        life.effects.append(downstream)
        if life.meaning != meaning:
            raise Violation("I6", f"{key} ran with another content")
        allowed = life.attempts if self.policy.reruns() else 1
        if len(life.effects) > allowed:
            raise Violation("I1", f"{key} had {len(life.effects)} effects in one life")
        if len(set(life.effects)) > 1:
            raise Violation("I1", f"{key} handed two downstream keys to the far side")

    def hear(self, answer: Answer) -> None:
        """A caller got its answer."""
        if answer.kind not in FINAL:
            return
        lives = self.lives.get(answer.key)
        if not lives or answer.body is None:
            raise Violation("I2", f"{answer.key} was answered though nobody ran it")
        if answer.body.partition(":")[0] != answer.key.scope:
            raise Violation("I5", f"{answer.key} got the answer of another scope")
        life = lives[-1]
        if answer.body != life.body:
            raise Violation("I3", f"{answer.key} was answered {answer.body} and holds {life.body}")
        if answer.kind == "replayed" and answer.meaning != life.meaning:
            raise Violation("I6", f"{answer.key} was replayed for another content")
        if answer.kind == "replayed" and self._over(life):
            raise Violation("I3", f"{answer.key} was replayed after its time")
