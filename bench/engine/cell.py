"""One cell of the table, in a process of its own: `python -m bench.engine.cell '{"subject": …}'` prints JSON."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from bench.engine.load import Keys, Measured, by_tasks, by_threads
from bench.engine.subjects import Subject, subject

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0
"""Seconds a cell may take beyond its measured time before it counts as failed."""


def measure(
    name: str, url: str, callers: int, seconds: float, *, python: str = sys.executable
) -> tuple[dict[str, Measured], str | None]:
    """Measure first and replay of a subject in another process; the second value says why it could not be."""
    words = json.dumps({"subject": name, "url": url, "callers": callers, "seconds": seconds})
    command = [python, "-m", "bench.engine.cell", words]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE + 4 * seconds
        )
    except subprocess.TimeoutExpired:
        return {}, f"did not finish within {PATIENCE + 4 * seconds:.0f} s"
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {}, (done.stderr.strip().splitlines() or ["ended without a word"])[-1][:200]
    return {op: Measured(*values) for op, values in json.loads(lines[-1]).items()}, None


def main(text: str) -> None:
    words = json.loads(text)
    chosen = subject(words["subject"], words["url"], words["callers"])
    if chosen.awaited:
        results = _loop(_by_tasks(chosen, words["seconds"]))
    else:
        results = _by_threads(chosen, words["seconds"])
    print(json.dumps(results), flush=True)


def _by_threads(chosen: Subject, seconds: float) -> dict[str, Measured]:
    keys = Keys(secrets.token_hex(4))
    chosen.open()
    results = {"first": by_threads(chosen.first, keys.new, chosen.callers, seconds, keys.completed)}
    results["replay"] = by_threads(chosen.replay, keys.known(), chosen.callers, seconds, keys.completed)
    chosen.close()
    return results


async def _by_tasks(chosen: Subject, seconds: float) -> dict[str, Measured]:
    keys = Keys(secrets.token_hex(4))
    await chosen.open()
    results = {"first": await by_tasks(chosen.first, keys.new, chosen.callers, seconds, keys.completed)}
    results["replay"] = await by_tasks(chosen.replay, keys.known(), chosen.callers, seconds, keys.completed)
    await chosen.close()
    return results


def _loop(work: Coroutine[Any, Any, dict[str, Measured]]) -> dict[str, Measured]:
    """On uvloop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415  # not everywhere
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


if __name__ == "__main__":
    main(sys.argv[1])
