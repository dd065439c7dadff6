"""Zombies: a worker frozen (SIGSTOP) past its lease wakes after another has settled; none of its writes may stand."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path

from chaos import STORES, Report, Setting, Trial
from chaos.engine_board import Board, History, lines
from chaos.engine_swarm import PATIENCE, Job, Lifeline, end, spawn
from umavez import AsyncOnce, Once
from umavez.core.record import Status
from umavez.errors import ClaimLost, OperationInProgress, StoreError

OPERATION = "freeze"
LEASE = 0.4
HERD = 5
POINTS = ("before settling", "before a checkpoint", "before failing", "after a beat", "in a task")
OPTIONS = {"unknown": "rerun", "lease": LEASE, "max_retries": 1000}


def freeze() -> None:
    """Stop this whole process, heartbeat and all, until somebody sends SIGCONT."""
    os.kill(os.getpid(), signal.SIGSTOP)


def work(job: Job, slot: int, seed: int) -> None:
    """Claim a key, freeze inside, wake, and try to write what a holder may write; over and over."""
    board, history, alive = Board(job.board), History(job.history), None
    once, chance = Once(job.url, scope=job.scope), random.Random(seed)
    alive = Lifeline(board)
    for number in count():
        if not alive:
            return
        key, point = f"{slot}-{number}", chance.choice(POINTS)
        try:
            if point == "in a task":
                asyncio.run(_tasked(job, key))
            else:
                _threaded(once, key, point)
            history.note("accepted", key, point)
        except ClaimLost:
            history.note("lost", key, point)
        except RuntimeError:
            history.note("raised", key, point)
        except Exception as error:  # noqa: BLE001  # whatever else it is, the trial has to hear of it
            history.note("strange", key, f"{point}: {type(error).__name__}")


def _threaded(once: Once, key: str, point: str) -> None:
    with once.attempt(OPERATION, key=key, **OPTIONS) as attempt:
        if point == "after a beat":
            time.sleep(LEASE * 0.6)
        freeze()
        if point == "before a checkpoint":
            attempt.checkpoint("half done")
        if point == "before failing":
            raise RuntimeError("the zombie's own failure, which must not be recorded over the rival's success")
        attempt.succeed("zombie")


async def _tasked(job: Job, key: str) -> None:
    async with AsyncOnce(job.url, scope=job.scope) as once, once.attempt(OPERATION, key=key, **OPTIONS) as attempt:
        freeze()
        await attempt.succeed("zombie")


def run(setting: Setting) -> Report:
    """Freeze a herd, take over and settle each of its keys, wake it, and look whether anything changed."""
    report, chance = Report(), random.Random(setting.seed)
    job = Job(setting.backend, setting.url, setting.folder, setting.scope)
    History(job.history).close()
    once = Once(job.url, scope=job.scope)
    once.migrate()
    board = Board(job.board)
    herd = [spawn(work, job, slot, chance.getrandbits(32)) for slot in range(HERD)]
    try:
        for number in count():
            if report.done >= setting.count:
                break
            wake_after_takeover(once, herd, number, job.history, report)
            setting.advance(len(herd))
    finally:
        board.stop()
        for worker in herd:
            end(worker)
        once.close()
        board.close()
    report.sometimes.update(f"frozen {line.value}" for line in lines(job.history) if line.kind in ("lost", "raised"))
    return report


def wake_after_takeover(once: Once, herd: list[BaseProcess], number: int, history: Path, report: Report) -> None:
    """One round: the whole herd frozen, overtaken, woken."""
    for worker in herd:
        await_frozen(worker)
    keys = [f"{slot}-{number}" for slot in range(len(herd))]
    before = {key: taken_over(once, key, report) for key in keys}
    for worker in herd:
        os.kill(worker.pid or 0, signal.SIGCONT)
    said = await_said(history, keys)
    for key in keys:
        report.done += 1
        record = once.get(OPERATION, key)
        if said.get(key) not in ("lost", "raised"):
            report.blame(f"the zombie of {key} was told {said.get(key, 'nothing')}, not ClaimLost")
        if record is None or record.status is not Status.SUCCESS or record.stamp != before[key]:
            report.blame(f"the zombie of {key} changed the record after it was overtaken")


def taken_over(once: Once, key: str, report: Report) -> str:
    """Settle `key` as soon as its lease is over; returns the stamp that must stay."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            outcome = once.run(OPERATION, key=key, call=lambda: "rival", **OPTIONS)
        except OperationInProgress as busy:
            report.sometimes["waited for a lease"] += 1
            time.sleep(min(busy.retry_after, LEASE))
            continue
        except StoreError:
            continue
        report.sometimes["taken over"] += outcome.attempt > 1
        if outcome.value != "rival":
            report.blame(f"{key} was settled by the frozen worker")
        record = once.get(OPERATION, key)
        return record.stamp if record else ""
    report.blame(f"{key} could not be taken over in {PATIENCE:.0f} s (I7)")
    return ""


def await_frozen(worker: BaseProcess) -> None:
    """Wait until the kernel says that the process is stopped."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return
        time.sleep(0.002)
    raise TimeoutError(f"process {worker.pid} does not freeze")


def await_said(history: Path, keys: list[str]) -> dict[str, str]:
    """What the zombies were told, as soon as all of them have said so."""
    deadline = time.monotonic() + PATIENCE
    said: dict[str, str] = {}
    while len(said) < len(keys) and time.monotonic() < deadline:
        time.sleep(0.005)
        said = {line.key: line.kind for line in lines(history) if line.key in keys}
    return said


TRIALS = (
    Trial(
        "zombies: frozen past the lease",
        run,
        STORES,
        short=10,
        long=2000,
        sometimes=("taken over", "waited for a lease"),
    ),
)
