"""One SQLite file, many processes; and a disk that is full at whatever write it happens to be."""

from __future__ import annotations

import os
import random
import secrets
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from chaos import Report, Setting, Trial
from chaos.engine_board import History, answers, lines
from chaos.engine_swarm import PATIENCE, Job, end, spawn
from umavez import Once
from umavez.errors import StoreError, UmavezError

SCOPE = "chaos"
PROCESSES = 6
JOURNALS = ("wal", "delete")
SMALL = 8
"""Megabytes of the small disk: above the size at which SQLite folds its write-ahead log back."""


def hammer(job: Job, count: int, seed: int) -> None:
    """Do every key, in an order of its own, asking again while others hold it."""
    history, keys = History(job.history), [f"k{number}" for number in range(count)]
    random.Random(seed).shuffle(keys)
    with Once(job.url, scope=SCOPE, observers=[lambda event: history.note(event.kind, event.key.value)]) as once:
        while keys:
            key = keys.pop()
            try:
                outcome = once.run("hammer", key=key, call=lambda key=key: act(history, key), unknown="hold", lease=60)
                history.note("answer", key, outcome.value)
            except UmavezError as error:
                history.note("typed", key, type(error).__name__)
                keys.insert(0, key)
                time.sleep(0.002)
            except Exception as error:  # noqa: BLE001  # anything else is what the trial looks for
                history.note("strange", key, type(error).__name__)


def act(history: History, key: str) -> str:
    """The effect: a line in a file that takes as many as come."""
    token = secrets.token_hex(6)
    history.note("effect", key, token)
    return token


def busy(setting: Setting) -> Report:
    """Several processes do the same keys on one file at once, in both journal modes."""
    report = Report()
    for journal in JOURNALS:
        folder = setting.folder / journal
        folder.mkdir()
        job = Job("sqlite", f"sqlite:///{folder / 'busy.db'}?journal={journal}", folder)
        count = max(setting.count // PROCESSES // 2, 1)
        workers = [spawn(hammer, job, count, setting.seed + number) for number in range(PROCESSES)]
        for worker in workers:
            worker.join(PATIENCE * 10)
            setting.advance(count)
            end(worker)
        examine(job, count, report)
        check_file(folder / "busy.db", report)
    return report


def examine(job: Job, count: int, report: Report) -> None:
    """One effect per key, the same answer for all, and nothing but errors of ours."""
    given = answers(job.history)
    acted = Counter(line.key for line in lines(job.history) if line.kind == "effect")
    values = {line.key: {line.value} for line in lines(job.history) if line.kind == "effect"}
    for key in (f"k{number}" for number in range(count)):
        report.done += PROCESSES
        if acted[key] != 1 or given[key] != values[key]:
            report.blame(f"{key} acted {acted[key]} times and was answered {sorted(given[key])}")
    for line in lines(job.history):
        report.sometimes[line.kind] += line.kind in ("typed", "replayed")
        if line.kind == "strange":
            report.blame(f"{line.key} raised {line.value}, which is no error of umavez")


def check_file(path: Path, report: Report) -> None:
    """SQLite itself finds nothing wrong with the file."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("PRAGMA integrity_check").fetchone()[0]
    if found != "ok":
        report.blame(f"{path.name} is damaged: {found}")


@contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """A disk of a few megabytes, or None where it cannot be had."""
    place = folder / "small"
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mounting, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def full(setting: Setting) -> Report:
    """Fill the disk at some write, go on calling, free it again: nothing answered is lost, and all works again."""
    report, chance = Report(), random.Random(setting.seed)
    with small_disk(setting.folder) as place:
        if place is None:
            report.skipped = "a small disk needs root and the right to mount: run as root, or with CAP_SYS_ADMIN"
            return report
        for number in range(setting.count):
            path = place / f"{number}.db"
            left = 0 if number % 3 == 0 else chance.choice([1, 2, 3, 4, 6, 8, 12, 16, 24, 32]) * 4096
            fill(path, JOURNALS[number % 2], left, chance, report)
            for left in place.glob(f"{path.name}*"):
                left.unlink()
            report.done += 1
            setting.advance(1)
    return report


def fill(path: Path, journal: str, left: int, chance: random.Random, report: Report) -> None:
    """One file, one full disk: full in the middle of an operation, or with `left` bytes to go."""
    answered: dict[str, str] = {}
    filler = path.with_name("filler")
    with Once(f"sqlite:///{path}?journal={journal}", scope=SCOPE) as once:
        attempt(once, "before", "x", answered, report)
        if left:
            leave(filler, left)
        elif not attempt(once, "in the body", "x" * 5000, answered, report, lambda: leave(filler, 0)):
            report.sometimes["full between effect and settle"] += 1
        for number in range(12):
            if not attempt(once, f"full-{number}", "x" * chance.choice([10, 5000]), answered, report) and number > 2:
                break
        filler.unlink()
        if not attempt(once, "after", "x", answered, report):
            report.blame(f"nothing works after the space is back ({journal}, {left} bytes left)")
        for key, value in answered.items():
            again = once.run("fill", key=key, call=lambda: "ran again", unknown="hold")
            if again.value != value or not again.replayed:
                report.blame(f"{key} was answered and is lost ({journal}, {left} bytes left)")
    check_file(path, report)


def attempt(
    once: Once,
    key: str,
    value: str,
    answered: dict[str, str],
    report: Report,
    effect: Callable[[], None] = lambda: None,
) -> bool:
    """One operation; whether it was answered. A full disk must show as StoreError."""

    def call() -> str:
        effect()
        return value

    try:
        answered[key] = once.run("fill", key=key, call=call, unknown="hold").value
    except StoreError as error:
        report.sometimes[f"full: {type(error).__name__}"] += 1
        report.sometimes["met a full disk"] += 1
        return False
    except Exception as error:  # noqa: BLE001  # anything else is what the trial looks for
        report.blame(f"{key} raised {type(error).__name__}: {error}")
        return False
    return True


def leave(filler: Path, left: int) -> None:
    """Take all the space but `left` bytes."""
    room = os.statvfs(filler.parent)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(room.f_bavail * room.f_frsize - left, 1))


TRIALS = (
    Trial("sqlite: six processes", busy, ("sqlite",), short=600, long=60_000, sometimes=("replayed", "typed")),
    Trial(
        "sqlite: disk full",
        full,
        ("sqlite",),
        short=12,
        long=300,
        sometimes=("met a full disk", "full between effect and settle"),
    ),
)
