"""The engine's measurements: `python -m bench.engine [--quick] [--only postgres,memory] [--no-peers]`.

Parts: postgres, sqlite, mariadb, redis (limits, umavez, peers, counts), memory, growth, wakeup. Exits with 0 even where
a target is missed: a shared machine is no judge. The table says which.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from bench.engine import counts, growth, memory, peers, wakeup
from bench.engine.grid import Grid, Size
from bench.engine.judging import rows_of
from bench.engine.servers import SETTINGS, Servers, database, running
from bench.engine.table import Row, kept, shown
from bench.engine.targets import COUNTS, GROWTH, MEMORY, SLACK, SWEEP_COST, WAKE_MS

STORES = ("postgres", "sqlite", "mariadb", "redis")
PARTS = (*STORES, "memory", "growth", "wakeup")
QUICK = Size(rounds=1, seconds=0.4, peer_seconds=0.5, clients=(1, 32))
FULL = Size(rounds=3, seconds=1.0, peer_seconds=1.0, clients=(1, 8, 32, 128))


def main(words: list[str]) -> int:
    options = _options(words)
    parts = [part for part in PARTS if part in options.only.split(",")]
    began = time.monotonic()
    absent = None if options.no_peers else peers.installed()
    size = QUICK if options.quick else FULL
    wanted = [*parts, *(["postgres"] if {"growth", "wakeup"} & set(parts) else [])]
    with running(wanted) as servers:
        rows = list(_measured(servers, parts, size, absent, quick=options.quick))
    print(shown(rows))
    name = "engine" + ("" if tuple(parts) == PARTS else f"-{'-'.join(parts)}") + ("-quick" if options.quick else "")
    path = kept(name, rows, _facts(servers, size, began))
    missed = [row.what for row in rows if row.met is False]
    judged = [row for row in rows if row.met is not None]
    print(f"\n{len(judged) - len(missed)} of {len(judged)} targets met; kept in bench/results/{path.name}")
    return 0


def _options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round, small tables: about two minutes")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {', '.join(PARTS)}")
    parser.add_argument("--no-peers", action="store_true", help="neither install nor measure other packages")
    return parser.parse_args(words)


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def _facts(servers: Servers, size: Size, began: float) -> dict[str, Any]:
    return {
        "servers": {name: f"{name} {version}" for name, version in servers.versions.items()},
        "settings": SETTINGS,
        "peers": peers.versions() if peers.PYTHON.exists() else {},
        "rounds": size.rounds,
        "seconds": size.seconds,
        "took_s": round(time.monotonic() - began),
    }


def _measured(
    servers: Servers, parts: list[str], size: Size, absent: dict[str, str] | None, *, quick: bool
) -> Iterator[Row]:
    for name, why in servers.missing.items():
        yield Row(f"{name}: not measured", None, (), note=why)
    stores = [part for part in parts if part in STORES and part not in servers.missing]
    grid = Grid(servers, stores, size, absent)
    found = grid.run(_say)
    for store in stores:
        yield from rows_of(found, store)
        yield from _counted(servers, store)
    if "memory" in parts:
        yield from _memory(400, 60 if quick else 500)
    if "wakeup" in parts:
        yield from _wakeup(servers, 20 if quick else 100)
    if "growth" in parts and "postgres" not in servers.missing:
        yield from _growth(servers, size, quick=quick)


def _counted(servers: Servers, store: str) -> Iterator[Row]:
    if store == "sqlite":
        return
    found = counts.counted(servers, store, database(servers, store, "counts"))
    for op, numbers in found.items():
        for what, number in numbers.items():
            target = COUNTS.get((store, op, what))
            limit = None if target is None else target + SLACK
            yield Row(f"{store} {op}: umavez", 1, [number], f"{what} per call", target=limit, at_most=True)


def _memory(calls: int, rounds: int) -> Iterator[Row]:
    _say("memory")
    for (way, op), values in memory.measured(calls, rounds).items():
        target = MEMORY[op] if way in memory.JUDGED else None
        note = f"lowest of {rounds} x {calls:,} calls; median {statistics.median(values):.1f}"
        yield Row(f"memory {op}: {way}", 1, [min(values)], "us CPU", target=target, at_most=True, note=note)


def _wakeup(servers: Servers, rounds: int) -> Iterator[Row]:
    _say("wake-up")
    urls = {"memory": "memory:"}
    if "postgres" in servers.urls:
        urls["postgres"] = database(servers, "postgres", "wakeup")
    for store, url in urls.items():
        for shell in ("threads", "tasks"):
            late = wakeup.threads(url, rounds) if shell == "threads" else asyncio.run(wakeup.tasks(url, rounds))
            what = f"{store}: a waiting duplicate goes on after ({shell})"
            note = f"highest of {len(late)}: {max(late):.1f} ms"
            yield Row(what, wakeup.WAITERS, [statistics.median(late)], "ms", target=WAKE_MS, at_most=True, note=note)


def _growth(servers: Servers, size: Size, *, quick: bool) -> Iterator[Row]:
    many, dead = (300_000, 100_000) if quick else (5_000_000, 1_000_000)
    _say(f"growth: loading {many:,} records")
    small, large = database(servers, "postgres", "small"), database(servers, "postgres", "large")
    growth.loaded(large, many, dead)
    for callers in (1, 8):
        few, lots = growth.claims(small, large, max(size.rounds, 2), size.seconds, callers)
        ratios = [after / before for before, after in zip(few, lots, strict=True)]
        what = f"postgres first at {many:,} records"
        yield Row(what, callers, lots, against=f"at {growth.SMALL:,}", ratios=ratios, target=GROWTH)
    _say("growth: sweeping")
    found = growth.swept(large, max(2 * size.seconds, 1.0))
    cost = 100 * (1 - found["during"] / statistics.mean((found["before"], found["after"])))
    note = f"{found['swept']:,} swept in {found['sweep_seconds']} s; claims/s " + ", ".join(
        f"{when} {found[when]:,.0f}" for when in ("before", "during", "after")
    )
    yield Row("postgres: a sweep costs claims", 4, [cost], "%", target=SWEEP_COST, at_most=True, note=note)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
