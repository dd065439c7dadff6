"""Explorer: many workers on a simulated store, interleaved at every command by a seeded schedule.

A schedule is one seed: which worker goes next, who dies where, which answer is lost, which swap arrives twice
or late, when time jumps and when the store is swept. Every worker is the engine itself (`AsyncOnce`, its admission and
its attempts), stepped from one command to the next. `explore` runs it through as many schedules as it is given seeds
and judges each by its history. A failure names its seed, and `Schedule(seed).run()` repeats it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from umavez.clock import Clock
from umavez.core.flow import Swap
from umavez.core.key import Key
from umavez.core.policy import Policy
from umavez.core.protocol import Intent
from umavez.stores import Store
from umavez.stores.memory import MemoryStore
from umavez.testing.clock import ManualClock
from umavez.testing.history import Answer, History, Violation
from umavez.testing.worker import Effect, Failing, FarSide, Refusing, Worker

KEEP = 60.0
RETRIES = 1
_TERMS: dict[str, Any] = {
    "lease": 10,
    "keep": KEEP,
    "max_retries": RETRIES,
    "final": (Refusing,),
    "free": (Failing,),
    "heartbeat": False,  # workers beat where the schedule says, not by a timer
}
POLICIES = tuple(Policy(unknown, **_TERMS) for unknown in ("rerun", "hold", lambda _: None))
KEYS = (Key("one", "charge", "42"), Key("two", "charge", "42"))
MOST_STEPS = 500
"""No schedule takes so many; one that does holds a worker that never ends."""
MOST_WORKERS = 9
UNENDED = frozenset(("busy", "lost", "uncertain"))


class ScheduleFailed(AssertionError):
    """A schedule broke an invariant; `seed` repeats it."""

    def __init__(self, seed: int, violation: Violation) -> None:
        super().__init__(f"schedule {seed} breaks {violation}")
        self.seed = seed
        self.violation = violation


class Schedule:
    """One seeded run. `seen` counts the rare paths that it took."""

    def __init__(
        self, seed: int, store_of: Callable[[Clock], Store] = MemoryStore, seen: Counter[str] | None = None
    ) -> None:
        self.seen: Counter[str] = Counter() if seen is None else seen
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.store = store_of(self.clock)
        self.policy = self.chance.choice(POLICIES)
        self.history = History(self.policy, self.clock)
        self.far_side = FarSide(self.history, self.chance, fenced=not self.policy.reruns())
        self.begun = 0
        self.living: list[Worker] = []
        self.late: list[Swap] = []

    def run(self) -> None:
        """Let workers loose on two keys, with faults; then stop the faults. Raises Violation."""
        try:
            self._run()
        finally:
            for worker in self.living:
                worker.die()

    def _run(self) -> None:
        for _ in range(self.chance.randint(2, 4)):
            self._begin()
        for _ in range(MOST_STEPS):
            if not self.living:
                self._come_to_rest()
                return
            self._disturb(self.chance.random())
            self._step(self.chance.choice(self.living), self.chance.random())
        raise Violation("I7", "a worker never ends")

    def _begin(self) -> None:
        self.begun += 1
        meaning = "1:other" if self.chance.random() < 0.15 else "1:same"
        key = KEYS[self.chance.random() < 0.2]
        ending = self.chance.random()
        manner = "fails" if ending < 0.15 else "refuses" if ending < 0.25 else "succeeds"
        beats = self.chance.choice((0, 0, 1, 2))
        self.living.append(Worker(f"w{self.begun}", Intent(key, meaning), self.policy, beats, manner))

    def _disturb(self, luck: float) -> None:
        """Between two steps time may jump, the sweeper come, a late swap arrive or a new caller come."""
        if luck < 0.12:
            self.clock.advance(self.chance.choice((1.0, 11.0, 11.0, KEEP + 1)))
        elif luck < 0.20:
            self.seen["sweep during claim"] += self.history.running()
            self.seen["swept"] += self.store.sweep(10)
        elif luck < 0.24 and self.late:
            self.seen["late swap"] += 1
            self._swap(self.late.pop(self.chance.randrange(len(self.late))))
        elif luck < 0.34 and self.begun < MOST_WORKERS:
            self._begin()

    def _step(self, worker: Worker, luck: float) -> None:
        """Carry out one worker's command; some die before it, some after it, some never hear the answer."""
        if luck < 0.05:
            self._die(worker)
            return
        try:
            if worker.command is None:
                worker.step()
                return
            reply = self._carry_out(worker)
            if luck < 0.09:
                self._die(worker)
            elif luck < 0.15 and isinstance(worker.command, Swap):
                self.seen["lost answer"] += 1
                worker.lose()
            else:
                worker.step(reply)
        except StopIteration as end:
            self.living.remove(worker)
            self._hear(end.value)

    def _die(self, worker: Worker) -> None:
        self.seen["death"] += 1
        self.living.remove(worker)
        worker.die()
        if isinstance(worker.command, Swap) and self.chance.random() < 0.3:
            # Its last words are still on the way.
            self.late.append(worker.command)

    def _carry_out(self, worker: Worker) -> object:
        command = worker.command
        if not isinstance(command, Swap):
            return self._affect(worker)
        reply = self._swap(command)
        luck = self.chance.random()
        if luck < 0.06:
            self.seen["repeated swap"] += 1
            return self._swap(command)
        if luck < 0.10:
            self.late.append(command)
        return reply

    def _affect(self, worker: Worker) -> object:
        assert isinstance(worker.command, Effect)
        return self.far_side.carry_out(worker, worker.command)

    def _swap(self, swap: Swap) -> object:
        reply = self.store.swap(swap.expected, swap.draft)
        self.history.swapped(swap, reply)
        return reply

    def _hear(self, answer: Answer) -> None:
        self.seen[answer.kind] += 1
        self.seen["taken over"] += answer.took_over
        self.history.hear(answer)

    def _come_to_rest(self) -> None:
        """Faults have stopped: after a lease each key must be settled, used up or in a human's hands."""
        for key in KEYS:
            current = self.store.read(key).current
            intent = Intent(key, "1:same" if current is None else current.fingerprint)
            for number in range(2):
                self.clock.advance(11)
                answer = self._undisturbed(Worker(f"{key.scope}-last{number}", intent, self.policy, 0, "succeeds"))
                if answer.kind in UNENDED:
                    raise Violation("I7", f"{key} is {answer.kind} though no lease is left")

    def _undisturbed(self, worker: Worker) -> Answer:
        try:
            worker.step()
            while True:
                worker.step(self._swap(worker.command) if isinstance(worker.command, Swap) else self._affect(worker))
        except StopIteration as end:
            answer: Answer = end.value
            self._hear(answer)
            return answer
        finally:
            worker.die()


def explore(seeds: Iterable[int], store_of: Callable[[Clock], Store] = MemoryStore) -> Counter[str]:
    """Run one schedule for each seed; returns how often each path was taken. Raises ScheduleFailed."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        try:
            Schedule(seed, store_of, seen).run()
        except Violation as violation:
            raise ScheduleFailed(seed, violation) from violation
    return seen
