"""Worker: one caller of the explorer, which is the real engine stepped by hand; and the far side it talks to.

No event loop runs. The store of a worker's engine hands each command to whoever steps the coroutine, and so does the
worker's own code with what it asks of the far side.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Generator, Iterator
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from umavez._async.admission import AsyncAdmission
from umavez._async.once import AsyncOnce
from umavez.concurrency.aside import AsyncAside
from umavez.concurrency.heartbeat import async_beat
from umavez.core.flow import Read, Seen, Stale, Swap, Swapped
from umavez.core.key import Key
from umavez.core.policy import CannotTell, Happened, NotHappened, Policy
from umavez.core.protocol import Intent
from umavez.core.record import Draft
from umavez.engine.current import CURRENT
from umavez.engine.declaration import Plan
from umavez.engine.outcome import Event, Question
from umavez.errors import (
    ClaimLost,
    KeyReused,
    MaxRetriesExceeded,
    OperationInProgress,
    OutcomeUnknown,
    StoreUncertain,
)
from umavez.testing.history import Answer, History


def twice_at_once(left: float) -> Iterator[float]:  # noqa: ARG001  # an Insistence
    """A worker whose write failed tries again at once: here time passes only when the schedule says so."""
    return iter((0.0, 0.0))


class AtOnce(AsyncAside):
    """Asks in the worker's own course: there is no loop to do it aside, and the schedule says how long it takes."""

    async def call(self, seconds: float, work: Any, stop: Any = None, *, end: bool = True) -> Any:
        """What `work` returns."""
        return await work()


class Failing(Exception):
    """The worker's code failed, and nothing happened."""


class Refusing(Exception):
    """The worker's code refused, for good."""


class FencedOff(Exception):
    """The far side refused the worker's fence."""


class Gone(BaseException):
    """A dead worker asked for something."""


KINDS: dict[type[Exception], str] = {
    OperationInProgress: "busy",
    KeyReused: "mismatched",
    MaxRetriesExceeded: "exhausted",
    OutcomeUnknown: "doubtful",
    ClaimLost: "lost",
    StoreUncertain: "uncertain",
    Failing: "failed",
    FencedOff: "fenced off",
}
"""What a caller was told, by the error it got."""


class Effect(NamedTuple):
    """A step that goes to the far side: an effect, or (`asks`) the question whether there was one."""

    fence: int
    asks: bool = False


class Handed:
    """Awaited, it hands `command` to whoever steps the coroutine; what comes back is its value."""

    __slots__ = ("_command",)

    def __init__(self, command: Read | Swap | Effect) -> None:
        self._command = command

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self._command)


class SteppedStore:
    """The store of one worker: its commands are carried out by the schedule, when and if it likes."""

    alive = True

    async def read(self, key: Key) -> Seen:
        """See Store.read."""
        return await self._hand(Read(key))  # type: ignore[no-any-return]  # the schedule's answer

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """See Store.swap."""
        return await self._hand(Swap(expected, draft))  # type: ignore[no-any-return]  # the schedule's answer

    async def _hand(self, command: Read | Swap) -> Any:
        if not self.alive:
            raise Gone
        return await Handed(command)


class Worker:
    """One caller under way: who it is, what it wants, how its code ends, and the command it waits to have done."""

    def __init__(self, name: str, intent: Intent, policy: Policy, beats: int, manner: str) -> None:
        self.name = name
        self.intent = intent
        self.owner = ""
        """The name under which it claimed last."""
        self.command: Swap | Effect | None = None
        """None: it has not begun."""
        self._beats = beats
        self._manner = manner
        self._body = f"{intent.key.scope}:{name}"
        self._heard: list[str] = []
        self._store = SteppedStore()
        store: Any = self._store  # it has no other verbs than those that a call needs
        self._once = AsyncOnce(store, scope=intent.key.scope, observers=(self._hear,))
        observe = self._once.observers
        self._once._admission = AsyncAdmission(store, observe, twice_at_once, AtOnce)  # noqa: SLF001  # the engine's own explorer
        declared = replace(policy, unknown=self._ask) if policy.asks else policy
        self._plan = Plan(intent.key.scope, intent.key.operation, declared, self._once.codec)
        self._context = copy_context()
        self._course: Coroutine[Any, Any, Answer] | None = None

    def step(self, reply: object = None) -> None:
        """Begin, or go on with `reply` to the command. Raises StopIteration with the Answer."""
        if self._course is None:
            self._course = self._work()
        self._wait_for(self._context.run(self._course.send, reply))

    def lose(self) -> None:
        """Go on without ever hearing the answer to the command."""
        assert self._course is not None
        self._wait_for(self._context.run(self._course.throw, StoreUncertain("The answer was lost.")))

    def die(self) -> None:
        """Stop here, and do nothing any more."""
        self._store.alive = False
        if self._course is None:
            return
        try:
            self._context.run(self._course.close)
        except Gone:
            return

    def _wait_for(self, command: Any) -> None:
        while command is None:  # a pause of no length
            command = self._context.run(self._course.send, None)  # type: ignore[union-attr]  # it has begun
        self.command = command
        if isinstance(command, Swap):
            self.owner = command.draft.stamp.partition("/")[0]

    async def _work(self) -> Answer:
        try:
            outcome = await self._once.perform(self._plan, self.intent, self._code, (), {})
        except Refusing as refusal:
            if "replayed" in self._heard:
                return self._told("replayed", str(refusal))
            # The caller gets its own error with a note where the engine could not record it, as one that was overtaken.
            return self._told("lost") if hasattr(refusal, "__notes__") else self._told("refused", str(refusal))
        except tuple(KINDS) as error:
            return self._told(KINDS[type(error)])
        return self._told("replayed" if "replayed" in self._heard else "succeeded", outcome.value)

    async def _code(self) -> str:
        """What the caller does once it is let in."""
        attempt = CURRENT.get()
        for _ in range(self._beats):
            await async_beat(attempt)
        if self._manner == "fails":
            raise Failing("no")
        if self._manner == "refuses":
            raise Refusing(self._body)
        if not await Handed(Effect(attempt.fence)):
            raise FencedOff
        return self._body

    async def _ask(self, question: Question) -> Happened | NotHappened | CannotTell:
        answer: Happened | NotHappened | CannotTell = await Handed(Effect(question.fence, asks=True))
        return Happened(self._body) if isinstance(answer, Happened) else answer

    def _hear(self, event: Event) -> None:
        self._heard.append(event.kind)

    def _told(self, kind: str, body: str | None = None) -> Answer:
        took_over = "taken_over" in self._heard or "asked" in self._heard
        return Answer(kind, self.intent.key, self.intent.fingerprint, body, took_over)


@dataclass(slots=True)
class FarSide:
    """Whoever has the effect. Keeps every effect; where `fenced`, refuses a fence below one it has seen."""

    history: History
    chance: random.Random
    fenced: bool
    highest: dict[Key, int] = field(default_factory=dict)
    ledger: list[tuple[Key, int]] = field(default_factory=list)

    def carry_out(self, worker: Worker, effect: Effect) -> Any:
        """Whether the effect took place; or what the far side says about an earlier one."""
        key = worker.intent.key
        if self.fenced and effect.fence < self.highest.get(key, 0):
            return CannotTell() if effect.asks else False
        self.highest[key] = effect.fence
        if effect.asks:
            return self._asked(worker)
        self.ledger.append((key, effect.fence))
        self.history.affected(worker.owner, key, worker.intent.fingerprint, key.value)
        return True

    def _asked(self, worker: Worker) -> Happened | NotHappened | CannotTell:
        if self.chance.random() < 0.1:
            return CannotTell()
        life, _ = self.history.owners[worker.owner]
        return Happened() if life.effects else NotHappened()
