"""Explorer: many workers on a simulated store, interleaved at every command by a seeded schedule.

A schedule is one seed: which worker goes next, who dies where, which answer is lost, which swap arrives twice
or late, when time jumps and when the store is swept. `explore` runs the protocol of this package through as
many schedules as asked for and judges each by its history. A failure names its seed; `Schedule(seed).run()`
repeats it.

The far side keeps a ledger without unique constraint. It refuses a fence below one it has seen, and that is
all it does for us.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from umavez.clock import Clock
from umavez.core.flow import Swap, Swapped
from umavez.core.key import Key
from umavez.core.policy import Policy
from umavez.core.protocol import Intent
from umavez.core.record import Status
from umavez.errors import StoreUncertain
from umavez.stores import Store
from umavez.stores.memory import MemoryStore
from umavez.testing.clock import ManualClock
from umavez.testing.history import Answer, History, Violation
from umavez.testing.worker import Effect, FarSide, Work, answered, work

KEEP = 60.0
POLICIES = (
    Policy("rerun", lease=10, keep=KEEP, max_retries=1),
    Policy("hold", lease=10, keep=KEEP, max_retries=1),
    Policy(lambda: None, lease=10, keep=KEEP, max_retries=1),
)
SCOPES = ("one", "two")
MOST_STEPS = 400
"""No schedule takes so many; one that does is a worker that never ends."""


class ScheduleFailed(AssertionError):
    """A schedule broke an invariant; `seed` repeats it."""

    def __init__(self, seed: int, violation: Violation) -> None:
        super().__init__(f"schedule {seed}: {violation}")
        self.seed = seed
        self.violation = violation


@dataclass(slots=True)
class Worker:
    """One caller: its work, and the reply it waits to be sent (None: not begun)."""

    name: str
    steps: Work
    command: Swap | Effect | None = None
    alive: bool = True


@dataclass(slots=True)
class Schedule:
    """One seeded run: `run` raises Violation when an invariant breaks; `seen` counts the rare paths it took."""

    seed: int
    store_of: Callable[[Clock], Store] = MemoryStore
    seen: Counter[str] = field(default_factory=Counter)
    clock: ManualClock = field(init=False)
    store: Store = field(init=False)
    history: History = field(init=False)
    far_side: FarSide = field(init=False)
    chance: random.Random = field(init=False)
    late: list[Swap] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    policy: Policy = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.clock = ManualClock()
        self.store = self.store_of(self.clock)
        self.policy = self.chance.choice(POLICIES)
        self.history = History(self.policy, self.clock)
        self.far_side = FarSide(self.history, fenced=not self.policy.reruns())

    def run(self) -> None:
        """Let workers loose on few keys, with faults; then let the faults stop and everything come to its end."""
        for number in range(self.chance.randint(2, 5)):
            self.workers.append(self._worker(f"w{number}"))
        for _ in range(MOST_STEPS):
            living = [worker for worker in self.workers if worker.alive]
            if not living:
                break
            self._disturb()
            self._step(self.chance.choice(living))
        else:
            raise Violation("I7", "a worker never ends")
        self._come_to_rest()
        self.history.check()

    def _worker(self, name: str) -> Worker:
        scope = SCOPES[self.chance.random() < 0.2]
        meaning = "1:other" if self.chance.random() < 0.15 else "1:same"
        return self._caller(name, Intent(Key(scope, "charge", "42"), meaning))

    def _caller(self, name: str, intent: Intent) -> Worker:
        beats = self.chance.choice((0, 0, 0, 1, 2))
        ends = self.chance.random()
        manner = "fails" if ends < 0.15 else "refuses" if ends < 0.25 else "succeeds"
        return Worker(name, work(name, intent, self.policy, self.history, self.far_side, beats, manner))

    def _disturb(self) -> None:
        """Between two steps: time may jump, the sweeper may come, a late swap may arrive, a caller may come back."""
        luck = self.chance.random()
        if luck < 0.12:
            self.clock.advance(self.chance.choice((1.0, 11.0, 11.0, KEEP + 1)))
        elif luck < 0.18:
            running = self.history.running()
            swept = self.store.sweep(10)
            self.seen["swept"] += swept
            self.seen["sweep during claim"] += bool(running)
        elif luck < 0.22 and self.late:
            late = self.late.pop(self.chance.randrange(len(self.late)))
            self.store.swap(late.expected, late.draft)
            self.seen["late swap"] += 1
        elif luck < 0.30 and len(self.workers) < 9:
            self.workers.append(self._worker(f"w{len(self.workers)}"))

    def _step(self, worker: Worker) -> None:
        """Let one worker carry out its command; some die before, some after, some never hear the answer."""
        try:
            if worker.command is None:
                worker.command = next(worker.steps)
                return
            luck = self.chance.random()
            if luck < 0.05:
                self._die(worker)
                return
            reply = self._carried_out(worker)
            if luck < 0.09:
                self._die(worker)
            elif luck < 0.14 and isinstance(worker.command, Swap):
                self.seen["lost answer"] += 1
                worker.command = worker.steps.throw(StoreUncertain("lost"))
            else:
                worker.command = worker.steps.send(reply)
        except StopIteration as end:
            worker.alive = False
            self._hear(worker, end.value)

    def _carried_out(self, worker: Worker) -> object:
        command = worker.command
        if isinstance(command, Effect):
            return self.far_side.carry_out(command)
        assert command is not None
        reply = self.store.swap(command.expected, command.draft)
        self.history.swapped(worker.name, command, reply)
        luck = self.chance.random()
        if luck < 0.06:
            self.seen["repeated swap"] += 1
            return self.store.swap(command.expected, command.draft)
        if luck < 0.12:
            self.late.append(command)
        return reply

    def _die(self, worker: Worker) -> None:
        worker.alive = False
        worker.steps.close()
        self.seen["death"] += 1

    def _hear(self, worker: Worker, answer: Answer) -> None:
        self.seen[answer.kind] += 1
        self.seen["taken over"] += answer.took_over
        self.history.hear(answer)

    def _come_to_rest(self) -> None:
        """Faults have stopped. After one lease every key must be settled, used up or in a human's hands."""
        self.late.clear()
        for scope in SCOPES:
            intent = Intent(Key(scope, "charge", "42"), self.history.meaning_of(Key(scope, "charge", "42")))
            for number in range(3):
                self.clock.advance(11)
                caller = work(f"{scope}-last{number}", intent, self.policy, self.history, self.far_side, 0, "succeeds")
                answer = self._undisturbed(Worker(f"{scope}-last{number}", caller))
                if answer.kind in {"busy", "lost", "uncertain"}:
                    raise Violation("I7", f"{intent.key} is {answer.kind} though its lease is over")

    def _undisturbed(self, worker: Worker) -> Answer:
        command: Swap | Effect = next(worker.steps)
        try:
            while True:
                if isinstance(command, Effect):
                    command = worker.steps.send(self.far_side.carry_out(command))
                    continue
                reply = self.store.swap(command.expected, command.draft)
                self.history.swapped(worker.name, command, reply)
                command = worker.steps.send(reply)
        except StopIteration as end:
            self._hear(worker, end.value)
            return answered(end.value)


def explore(seeds: Iterable[int], store_of: Callable[[Clock], Store] = MemoryStore) -> Counter[str]:
    """Run one schedule for each seed; returns how often each rare path was taken. Raises ScheduleFailed."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        try:
            Schedule(seed, store_of, seen).run()
        except Violation as violation:
            raise ScheduleFailed(seed, violation) from violation
    return seen


__all__ = ["Schedule", "ScheduleFailed", "Status", "Swapped", "explore"]
