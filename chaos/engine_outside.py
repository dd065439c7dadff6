"""Effects outside the store, under kill -9 and with answers lost: rerun, ask and hold on the same stores."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from chaos import STORES, Report, Setting, Trial
from chaos.engine_authority import Authority, Dropped, FarSide, TurnedAway
from chaos.engine_board import Board, History, Phase, answers, kinds
from chaos.engine_joined import EVERYTHING, expected, settled
from chaos.engine_swarm import Job, Lifeline, Swarm, chosen, dawdle
from umavez import CannotTell, Happened, NotHappened, Once
from umavez.core.record import Record, Status
from umavez.engine.outcome import Question
from umavez.errors import OutcomeUnknown, UmavezError

OPERATIONS = ("rerun", "ask", "hold")
WORKERS = 4
LEASE = 0.4
DECIDERS = 8
"""How many bring keys to their end afterwards: a few failovers leave thousands held, each of which is decided alone."""
BOUND = 60.0
"""Seconds within which every key must come to its end once the faults are over (I7)."""


class Teller:
    """The answer to `unknown=`: what the far side says about an attempt, told apart by its fence."""

    def __init__(self, line: FarSide) -> None:
        self._line = line

    def __call__(self, question: Question) -> Happened | NotHappened | CannotTell:
        try:
            reply = self._line.call("ask", key=question.downstream_key(), fence=question.record.fence)
        except Dropped:
            return CannotTell("the far side hung up")
        return NotHappened() if reply["value"] is None else Happened(reply["value"])


def operation_of(key: str) -> str:
    """Each key belongs to one way of dealing with the unknown."""
    return OPERATIONS[int(key[1:]) % 3]


class Caller:
    """Somebody who calls the far side once per key."""

    def __init__(self, job: Job, slot: int, seed: int) -> None:
        self.job, self.line = job, FarSide(job.authority)
        self.board, self.history = Board(job.board), History(job.history)
        self.chance = random.Random(seed)
        self.once = Once(
            job.url, scope=job.scope, observers=[lambda event: self.history.note(event.kind, event.key.value)]
        )
        self._slot, self._dawdle = slot, job.dawdle
        self._unknown: dict[str, Any] = {"rerun": "rerun", "ask": Teller(self.line), "hold": "hold"}

    def call(self, key: str) -> None:
        """Claim, act outside, settle; then the answer is noted."""
        name = operation_of(key)
        self._enter(Phase.ENTERING)
        options = {"unknown": self._unknown[name], "lease": LEASE, "max_retries": 100_000}
        with self.once.attempt(name, key=key, **options) as attempt:
            if not attempt.replayed:
                self._enter(Phase.CLAIMED)
                attempt.check()
                far_key, fence = attempt.downstream_key(), attempt.fence
                reply = self.line.call("do", key=far_key, fence=fence, dedupe=name == "rerun")
                self._enter(Phase.EFFECT)
                attempt.succeed(reply["value"])
                self._enter(Phase.SETTLED)
        self.history.note("answer", key, attempt.outcome)

    def _enter(self, phase: Phase) -> None:
        self.board.enter(self._slot, phase)
        dawdle(self.chance, self._dawdle)

    def close(self) -> None:
        """Give everything back."""
        self.once.close()
        self.line.close()
        self.history.close()
        self.board.close()


def work(job: Job, slot: int, seed: int) -> None:
    """Call key after key until told to stop or killed."""
    caller = Caller(job, slot, seed)
    alive = Lifeline(caller.board)
    while alive:
        try:
            caller.call(chosen(caller.board, caller.chance))
        except (UmavezError, Dropped, TurnedAway) as error:
            caller.history.note("error", "-", type(error).__name__)
            time.sleep(0.002)
    caller.close()


def run(setting: Setting) -> Report:
    """Kill workers at random times while the far side loses answers; then everything comes to its end."""
    report, chance = Report(), random.Random(setting.seed)
    authority = Authority(chance.getrandbits(32))
    try:
        job = prepared(setting, authority)
        with Swarm(job, work, WORKERS, chance) as swarm:
            while report.done < setting.count:
                stood = swarm.kill_one()
                report.done += 1
                report.sometimes["between effect and settle"] += stood is Phase.EFFECT
                report.sometimes["between claim and effect"] += stood is Phase.CLAIMED
                setting.advance(1)
        conclude(job, authority, report)
    finally:
        authority.close()
    return report


def prepared(setting: Setting, authority: Authority) -> Job:
    """The tables are there, and the files of the trial empty."""
    job = Job(setting.backend, setting.url, setting.folder, setting.scope, authority.port)
    with Once(job.url, scope=job.scope) as once:
        once.migrate()
    History(job.history).close()
    return job


def conclude(job: Job, authority: Authority, report: Report) -> None:
    """The faults are over: bring every key to its end, and check what came of it."""
    authority.line.call("calm")
    callers = [Caller(job._replace(dawdle=0), 60 + number, 0) for number in range(DECIDERS)]
    try:
        finish(callers, authority, report)
        dump = authority.line.call("dump")
        records = callers[0].once.find(limit=EVERYTHING)
        examine(callers[0], dump["ledger"], records, report)
        noted = kinds(job.history)
        report.sometimes.update(dump["counts"])
        report.sometimes.update({kind: noted[kind] for kind in ("replayed", "taken_over", "adopted", "error", "lost")})
    finally:
        for caller in callers:
            caller.close()


def finish(callers: list[Caller], authority: Authority, report: Report) -> None:
    """Every key reaches SUCCESS within a bound: by itself, or for "hold" by a decision taken from the ledger."""
    deadline = time.monotonic() + BOUND
    waiting = sorted(expected(callers[0].job.board) - settled(callers[0].once))
    # Nobody else acts any more, so what the books say about a held key will not change.
    books = dict(authority.line.call("dump")["ledger"])
    with ThreadPoolExecutor(len(callers)) as deciding:
        shares = [waiting[number :: len(callers)] for number in range(len(callers))]
        for found in deciding.map(partial(_finished, books, deadline), callers, shares):
            report.sometimes["held and decided"] += found.sometimes["held and decided"]
            for problem in found.violations:
                report.blame(problem)


def _finished(books: dict[str, str], deadline: float, caller: Caller, keys: list[str]) -> Report:
    """One who brings a share of the keys to their end."""
    report, waiting = Report(), set(keys)
    while waiting and time.monotonic() < deadline:
        for key in sorted(waiting):
            try:
                caller.call(key)
                waiting.discard(key)
            except OutcomeUnknown:
                if operation_of(key) == "hold":
                    decide(caller, books, key, report)
            except UmavezError:
                time.sleep(0.01)
    for key in waiting:
        report.blame(f"{key} did not come to an end in {BOUND:.0f} s (I7)")
    return report


def decide(caller: Caller, books: dict[str, str], key: str, report: Report) -> None:
    """What a human does with a held key: look at the far side's books, and say so."""
    record = caller.once.get("hold", key)
    if record is None or record.attempt != 1:
        report.blame(f"{key} was held after attempt {record and record.attempt}, so it ran again unasked (I9)")
        return
    value = books.get(far_key(record))
    answer = NotHappened() if value is None else Happened(value)
    caller.once.resolve("hold", key, answer, by="the trial", reason="the far side's books")
    report.sometimes["held and decided"] += 1


def far_key(record: Record) -> str:
    """The key under which the far side knows a record."""
    return Question(record.key, record.attempt, None, record).downstream_key()


def examine(caller: Caller, ledger: list[list[str]], records: list[Record], report: Report) -> None:
    """I1: no key has two effects. I2: each answer has exactly one. I9: nothing doubtful was closed without evidence."""
    acted: dict[str, list[str]] = defaultdict(list)
    for key, value in ledger:
        acted[key].append(value)
    given = answers(caller.history.path)
    known = {record.key.value: record for record in records}
    for key in expected(caller.job.board):
        if key not in known:
            report.blame(f"{key} has no record")
            continue
        record = known[key]
        values = acted[far_key(record)]
        if record.status is not Status.SUCCESS or len(values) != 1:
            report.blame(f"{key} ({operation_of(key)}) is {record.status} with {len(values)} effects (I1, I2)")
        if not given[key] <= set(values):
            report.blame(f"{key} was answered {sorted(given[key])}, but the far side did {values} (I2, I3)")
        if operation_of(key) != "rerun" and record.attempt > 1 and not record.evidence:
            report.blame(f"{key} ({operation_of(key)}) ran {record.attempt} times without evidence (I9)")


TRIALS = (
    Trial(
        "outside: workers killed",
        run,
        STORES,
        short=40,
        long=2000,
        sometimes=(
            "between effect and settle",
            "between claim and effect",
            "taken_over",
            "adopted",
            "answers dropped",
            "deduped",
            "held and decided",
        ),
    ),
)
