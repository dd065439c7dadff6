"""Fork: parent and child go on with the same engine. Each must have its own sockets, and neither may hang."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

from chaos import STORES, Report, Setting, Trial
from chaos.engine_board import History, lines
from chaos.engine_swarm import PATIENCE, Job, end, spawn
from umavez import Once

CALLS = 5
HANG = 20
"""Seconds after which a child that has not finished hangs; the kernel ends it by SIGALRM."""


def sockets() -> set[str]:
    """The sockets of this process, by the kernel's own names for them."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            name = str(entry.readlink())
        except FileNotFoundError:
            continue
        if name.startswith("socket:"):
            found.add(name)
    return found


def calls(once: Once, history: History, who: str) -> None:
    """A few operations whose answers can be nobody else's."""
    for number in range(CALLS):
        key = f"{who}-{number}"
        outcome = once.run("fork", key=key, call=lambda key=key: f"value of {key}", unknown="rerun")
        if outcome.value != f"value of {key}" or outcome.replayed:
            history.note("foreign", key, outcome.value)


def work(job: Job, count: int, seed: int) -> None:
    """Fork again and again, now with other threads inside the store, now inside a running attempt, now at rest."""
    history, once, chance = History(job.history), Once(job.url, scope=job.scope), random.Random(seed)
    for number in range(count):
        way = ("at rest", "inside an attempt", "threads inside")[number % 3]
        if way == "inside an attempt":
            with once.attempt("outer", key=f"{number}", unknown="rerun", lease=0.3):
                fork(once, history, number, way)
        elif way == "threads inside":
            with_threads(once, history, number, chance)
        else:
            calls(once, history, f"warm-{number}")
            fork(once, history, number, way)
    once.close()
    history.note("finished")


def with_threads(once: Once, history: History, number: int, chance: random.Random) -> None:
    """Fork while threads of the parent hold whatever locks there are: in the child nobody will release them."""
    over = threading.Event()

    def load(lane: int) -> None:
        for turn in range(100_000):
            if over.is_set():
                return
            once.run("load", key=f"{number}-{lane}-{turn}", call=lambda: 1, unknown="rerun")

    threads = [threading.Thread(target=load, args=(lane,)) for lane in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(chance.random() * 0.02)
    try:
        fork(once, history, number, "threads inside")
    finally:
        over.set()
        for thread in threads:
            thread.join()


def fork(once: Once, history: History, number: int, way: str) -> None:
    """One fork: both sides work at the same time; then the child closes everything, and the parent still works."""
    before = sockets()
    child = os.fork()
    if not child:
        in_child(once, history, f"child-{number}", before)
    calls(once, history, f"parent-{number}")
    _, status = os.waitpid(child, 0)
    if status:
        history.note("child failed", str(number), f"{way}: status {status}")
    calls(once, history, f"later-{number}")
    if way == "at rest" and before != sockets():
        history.note("reconnected", str(number), way)
    history.note("forked", str(number), way)


def in_child(once: Once, history: History, who: str, inherited: set[str]) -> None:
    """The child's part: work, show that its sockets are new, close the engine, and end."""
    signal.alarm(HANG)
    code = 1
    try:
        calls(once, history, who)
        history.note("own sockets", who, str(len(sockets() - inherited)))
        once.close()
        code = 0
    except BaseException as error:  # noqa: BLE001  # the parent must not go on in two copies, whatever it is
        history.note("child raised", who, type(error).__name__)
    finally:
        os._exit(code)


def run(setting: Setting) -> Report:
    """Let a process of its own fork `count` times; read what parent and children noted."""
    report = Report()
    job = Job(setting.backend, setting.url, setting.folder, setting.scope)
    with Once(job.url, scope=job.scope) as once:
        once.migrate()
    worker = spawn_forking(job, setting)
    worker.join(PATIENCE + setting.count * HANG)
    end(worker)
    noted = list(lines(job.history))
    for line in noted:
        if line.kind in ("foreign", "child failed", "child raised", "reconnected"):
            report.blame(f"{line.kind}: {line.key} ({line.value})")
        if line.kind == "own sockets" and setting.backend != "sqlite" and line.value == "0":
            report.blame(f"{line.key} opened no socket of its own")
        if line.kind == "forked":
            report.done += 1
            report.sometimes[line.value] += 1
    if "finished" not in {line.kind for line in noted}:
        report.blame("the parent did not come to its end")
    return report


def spawn_forking(job: Job, setting: Setting) -> BaseProcess:
    """The process that forks."""
    setting.advance(setting.count)
    return spawn(work, job, setting.count, setting.seed)


TRIALS = (
    Trial(
        "forks: parent and child go on",
        run,
        STORES,
        short=6,
        long=300,
        sometimes=("at rest", "inside an attempt", "threads inside"),
    ),
)
