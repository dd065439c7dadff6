"""One cell of the table, in a process of its own: `python -m bench.engine.cell '{"subject": …}'` prints JSON."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple

from bench.engine.load import Keys, Measured, by_tasks, by_threads
from bench.engine.subjects import Subject, subject
from chaos import given

ROOT = Path(__file__).parents[2]
FIRST, REPLAY = OPS = ("first", "replay")
PATIENCE = 30.0
"""Seconds a cell may take beyond its measured time before it counts as failed."""


class Cell(NamedTuple):
    """What a cell found: the operations that could be measured, and why others could not."""

    measured: dict[str, Measured]
    problems: dict[str, str]


def measure(
    name: str,
    url: str,
    callers: int,
    seconds: float,
    *,
    python: str = sys.executable,
    server: int = 0,
    source: Path | None = None,
) -> Cell:
    """Measure first and replay of a subject in another process.

    `server` is the process whose CPU time counts too, `source` a folder whose packages stand before the installed ones.
    """
    words = json.dumps({"subject": name, "url": url, "callers": callers, "seconds": seconds, "server": server})
    command = [python, "-m", "bench.engine.cell", words]
    patience = PATIENCE + 4 * seconds
    around = os.environ if source is None else {**os.environ, "PYTHONPATH": str(source)}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=around, capture_output=True, text=True, check=False, timeout=patience
        )
    except subprocess.TimeoutExpired:
        return Cell({}, dict.fromkeys(OPS, f"did not finish within {patience:.0f} s"))
    lines = done.stdout.splitlines()
    if not lines or not lines[-1].startswith("["):
        problem = (done.stderr.strip().splitlines() or ["ended without a word"])[-1][:200]
        return Cell({}, dict.fromkeys(OPS, problem))
    measured, problems = json.loads(lines[-1])
    return Cell({op: Measured(*values) for op, values in measured.items()}, problems)


def main(text: str) -> None:
    words = json.loads(text)
    chosen = subject(words["subject"], words["url"], words["callers"])
    found = Cell({}, {})
    if chosen.awaited:
        _loop(_by_tasks(chosen, words["seconds"], words["server"], found))
    else:
        _by_threads(chosen, words["seconds"], words["server"], found)
    print(json.dumps(found), flush=True)
    # Some peers leave threads behind that never end.
    os._exit(0)


def _by_threads(chosen: Subject, seconds: float, server: int, found: Cell) -> None:
    keys = Keys(secrets.token_hex(4))
    chosen.open()
    for op, call in ((FIRST, chosen.first), (REPLAY, chosen.replay)):
        try:
            key = keys.new if op == FIRST else keys.known()
            found.measured[op] = by_threads(call, key, chosen.callers, seconds, keys.completed, server)
        except Exception as error:  # noqa: BLE001  # a peer may raise anything, and the table says so
            found.problems[op] = f"{type(error).__name__}: {error}"[:200]
    chosen.close()


async def _by_tasks(chosen: Subject, seconds: float, server: int, found: Cell) -> None:
    keys = Keys(secrets.token_hex(4))
    await chosen.open()
    for op, call in ((FIRST, chosen.first), (REPLAY, chosen.replay)):
        try:
            key = keys.new if op == FIRST else keys.known()
            found.measured[op] = await by_tasks(call, key, chosen.callers, seconds, keys.completed, server)
        except Exception as error:  # noqa: BLE001  # as above
            found.problems[op] = f"{type(error).__name__}: {error}"[:200]
    await chosen.close()


def _loop(work: Coroutine[Any, Any, None]) -> None:
    """On uvloop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415  # not everywhere
    except ImportError:
        asyncio.run(work)
        return
    uvloop.run(work)


if __name__ == "__main__":
    main(*given(__doc__, "words"))
