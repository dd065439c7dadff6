"""Joined mode under kill -9: claim, effect and outcome commit together, so every key has one effect and one record."""

from __future__ import annotations

import random
import secrets
import time
from pathlib import Path
from typing import Any

from chaos import SQL, Report, Setting, Trial
from chaos.engine_board import Board, History, Phase, answers, kinds
from chaos.engine_ledger import DRIVER_ERRORS, connected, create, drop, effects, insert
from chaos.engine_swarm import Job, Lifeline, Swarm, chosen, dawdle
from umavez import Once
from umavez.core.record import Status
from umavez.errors import UmavezError

OPERATION = "book"
WORKERS = 3
EVERYTHING = 10_000_000


def joinable(setting: Setting) -> str:
    """The URL to join on: a WAL file cannot be joined on every SQLite library."""
    return f"{setting.url}?journal=delete" if setting.backend == "sqlite" else setting.url


def work(job: Job, slot: int, seed: int) -> None:
    """Book key after key, each in a transaction of its own, until told to stop or killed."""
    chance = random.Random(seed)
    board, history = Board(job.board), History(job.history)
    once = Once(job.url, scope=job.scope, observers=[lambda event: history.note(event.kind, event.key.value)])
    connection = None
    alive = Lifeline(board)
    while alive:
        try:
            connection = connection or connected(job.backend, job.url)
            book(once, job, connection, chosen(board, chance), (board, slot, chance, history))
        except (UmavezError, *DRIVER_ERRORS) as error:
            history.note("error", "-", type(error).__name__)
            drop(connection)
            connection = None
            time.sleep(0.01)
    drop(connection)
    once.close()


def book(once: Once, job: Job, connection: Any, key: str, at: tuple[Board, int, random.Random, History]) -> None:
    """One key: claim, effect, outcome, commit; then the answer is noted, as a client would have it."""
    board, slot, chance, history = at
    board.enter(slot, Phase.ENTERING)
    with once.joined(connection, OPERATION, key=key) as attempt:
        if not attempt.replayed:
            board.enter(slot, Phase.CLAIMED)
            token = secrets.token_hex(8)
            dawdle(chance, job.dawdle)
            insert(job.backend, connection, key, token)
            board.enter(slot, Phase.EFFECT)
            dawdle(chance, job.dawdle)
            attempt.succeed(token)
            board.enter(slot, Phase.SETTLED)
            dawdle(chance, job.dawdle)
    connection.commit()
    board.enter(slot, Phase.COMMITTED)
    dawdle(chance, job.dawdle)
    history.note("answer", key, attempt.outcome)


def count_kill(report: Report, stood: Phase) -> None:
    """Add one kill to the report, by where the worker stood."""
    report.done += 1
    report.sometimes["between effect and commit"] += stood in (Phase.EFFECT, Phase.SETTLED)
    report.sometimes["between commit and answer"] += stood is Phase.COMMITTED
    report.sometimes["before the effect"] += stood in (Phase.ENTERING, Phase.CLAIMED)


def run(setting: Setting) -> Report:
    """Kill workers at random times, then let every key come to its end and count."""
    report, chance = Report(), random.Random(setting.seed)
    job = prepared(setting)
    with Swarm(job, work, WORKERS, chance) as swarm:
        while report.done < setting.count:
            count_kill(report, swarm.kill_one())
            setting.advance(1)
    finish(job)
    examine(job, report)
    return report


def prepared(setting: Setting) -> Job:
    """The tables are there, and the files of the trial empty."""
    job = Job(setting.backend, joinable(setting), setting.folder, setting.scope)
    with Once(job.url, scope=job.scope) as once:
        once.migrate()
    create(job.backend, job.url)
    History(job.history).close()
    return job


def finish(job: Job) -> None:
    """With the faults over, book every key that is not settled; each must come to an end now (I7)."""
    board, history = Board(job.board), History(job.history)
    connection = connected(job.backend, job.url)
    with Once(job.url, scope=job.scope) as once:
        for key in sorted(expected(job.board) - settled(once)):
            book(once, job._replace(dawdle=0), connection, key, (board, 60, random.Random(), history))
    drop(connection)
    history.close()
    board.close()


def examine(job: Job, report: Report) -> None:
    """Every key has one effect, one SUCCESS record, and all its answers say what the effect said (I1, I2, I3)."""
    booked, given = effects(job.backend, job.url), answers(job.history)
    with Once(job.url, scope=job.scope) as once:
        done = settled(once)
    for key in expected(job.board):
        tokens = booked.get(key, [])
        if len(tokens) != 1:
            report.blame(f"{key} has {len(tokens)} effects")
        if key not in done:
            report.blame(f"{key} has no SUCCESS record")
        if not given[key] <= set(tokens):
            report.blame(f"{key} was answered {sorted(given[key])}, booked {tokens}")
    noted = kinds(job.history)
    report.sometimes.update({"keys": len(booked), "replayed": noted["replayed"], "errors": noted["error"]})


def settled(once: Once) -> set[str]:
    """Every key whose record says SUCCESS."""
    return {record.key.value for record in once.find(status=Status.SUCCESS, limit=EVERYTHING)}


def expected(board: Path) -> set[str]:
    """Every key that was handed out."""
    shared = Board(board)
    keys = {f"k{number}" for number in range(shared.cursor)}
    shared.close()
    return keys


TRIALS = (
    Trial(
        "joined: workers killed",
        run,
        SQL,
        short=60,
        long=3000,
        sometimes=("between effect and commit", "between commit and answer", "before the effect", "replayed"),
    ),
)
