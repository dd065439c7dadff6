"""Swarm: worker processes that are killed and replaced. They are forked from a server that has imported everything."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from chaos.engine_board import Board, Phase

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "__main__",
        "psycopg",
        "pymysql",
        "asyncmy",
        "umavez",
        "umavez.stores.postgres.store",
        "umavez.stores.mariadb.store",
        "umavez.stores.redis.store",
        "umavez.stores.sqlite.store",
        "chaos.engine_joined",
        "chaos.engine_outside",
        "chaos.engine_zombies",
    ]
)
PATIENCE = 60.0
AIM = 0.3
"""Seconds that a kill waits for the phase it is meant for."""
AIMS = (Phase.CLAIMED, Phase.EFFECT, Phase.SETTLED, Phase.COMMITTED)


class Job(NamedTuple):
    """What a worker is told: where its store, its board and its history are."""

    backend: str
    url: str
    folder: Path
    scope: str = "chaos"
    authority: int = 0
    dawdle: float = 0.004

    @property
    def board(self) -> Path:
        """The file of the board."""
        return self.folder / "board"

    @property
    def history(self) -> Path:
        """The file of the history."""
        return self.folder / "history"


Work = Callable[[Job, int, int], None]
"""Runs in a process of its own: job, slot on the board, seed."""


def spawn(work: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A forked process that runs `work`; it never outlives the fork server."""
    process = FORKS.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def end(process: BaseProcess) -> None:
    """kill -9, and wait until it is gone."""
    process.kill()
    process.join(PATIENCE)
    process.close()


class Swarm:
    """`size` workers on one job. Leaving the block ends them all."""

    def __init__(self, job: Job, work: Work, size: int, chance: random.Random) -> None:
        self.job = job
        self.board = Board(job.board)
        self._work = work
        self._chance = chance
        self._workers = [self._spawned(slot) for slot in range(size)]

    def _spawned(self, slot: int) -> BaseProcess:
        self.board.enter(slot, Phase.IDLE)
        return spawn(self._work, self.job, slot, self._chance.getrandbits(32))

    def kill_one(self) -> Phase:
        """kill -9 one worker, put another in its place, and say where it stood.

        Half of the kills come at a random time; half wait for a phase, since the dangerous ones are short.
        """
        slot = self._chance.randrange(len(self._workers))
        self._await(slot, [phase for phase in Phase if phase is not Phase.IDLE], PATIENCE)
        if self._chance.random() < 0.5:
            time.sleep(self._chance.random() * 0.05)
        else:
            self._await(slot, [self._chance.choice(AIMS)], AIM)
        end(self._workers[slot])
        stood = self.board.phase(slot)
        self._workers[slot] = self._spawned(slot)
        return stood

    def phases(self) -> list[Phase]:
        """Where every worker stands."""
        return [self.board.phase(slot) for slot in range(len(self._workers))]

    def _await(self, slot: int, phases: list[Phase], patience: float) -> None:
        """Wait until the worker is in one of `phases`, or no longer."""
        deadline = time.monotonic() + patience
        while self.board.phase(slot) not in phases and time.monotonic() < deadline:
            time.sleep(0.0005)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.board.stop()
        deadline = time.monotonic() + PATIENCE
        for worker in self._workers:
            worker.join(0 if error else max(deadline - time.monotonic(), 0))
            end(worker)
        self.board.close()


class Lifeline:
    """Tells a worker whether to go on: not after the sign to stop, nor when whoever started it is gone."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._parent = os.getppid()

    def __bool__(self) -> bool:
        return not self._board.stopped and os.getppid() == self._parent


def chosen(board: Board, chance: random.Random) -> str:
    """A key to work on: mostly a new one, often one of the last few, as a client that retries would."""
    newest = board.cursor
    if newest and chance.random() < 0.4:
        return f"k{chance.randrange(max(newest - 8, 0), newest)}"
    return f"k{board.take()}"


def dawdle(chance: random.Random, longest: float) -> None:
    """Stay a moment, so that a kill at a random time can fall between any two steps."""
    if chance.random() < 0.5:
        time.sleep(chance.random() * longest)
