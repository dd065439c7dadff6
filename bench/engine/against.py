"""Compares sources of the engine: `python -m bench.engine.against REVISION [REVISION ...] [.] [--only postgres]`.

The first is what the others are held against, and it is measured twice, to tell how far it is from itself; `.` is the
work tree. Each source has databases of its own on the same private servers. Those of a cell are measured one right
after the other, in an order that changes, and a ratio is taken within its round. What is read is the CPU time of one
call, client and server together. Exits with 0 whatever it finds: a shared machine is no judge.
"""

from __future__ import annotations

import argparse
import io
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.engine.cell import OPS, ROOT, measure
from bench.engine.grid import SHELLS
from bench.engine.servers import Servers, database, running

STORES = ("postgres", "sqlite", "mariadb", "redis")
AGAIN = "again"
SLACK = 1.03
"""What a call may cost, times the highest that the first source costs against itself."""


class Place(NamedTuple):
    """A line of the table."""

    store: str
    op: str
    shell: str
    callers: int

    def __str__(self) -> str:
        return f"{self.store} {self.op}, {self.callers} {self.shell}"


class Cost(NamedTuple):
    """CPU microseconds of one call. SQLite has no server: all of it is the client's."""

    client: float
    server: float

    @property
    def whole(self) -> float:
        return self.client + self.server


Round = dict[str, Cost]
"""By source."""


def main(words: list[str]) -> int:
    options = _options(words)
    print(f"seed {options.seed}; against {options.source[0]}", flush=True)
    found: dict[Place, list[Round]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="umavez-against-") as folder, running(options.only) as servers:
        for store in [name for name in options.only if name in servers.missing]:
            print(f"{store}: not measured, {servers.missing[store]}")
        cells = Cells(servers, _unpacked(options.source, Path(folder)), options)
        for number in range(options.rounds):
            print(f"  round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            for place, costs in cells.round():
                found[place].append(costs)
    for line in lines(found, options.source):
        print(line)
    return 0


def _options(words: list[str]) -> argparse.Namespace:
    def some(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(prog="python -m bench.engine.against", description=__doc__)
    parser.add_argument("source", nargs="+", help="a revision that git knows, or . for the work tree")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each operation of a cell (default: 0.5)")
    parser.add_argument("--only", type=some, default=list(STORES), help=f"stores, of {','.join(STORES)}")
    parser.add_argument("--callers", type=some, default=["1", "32", "128"], help="how many (default: 1,32,128)")
    parser.add_argument("--seed", type=int, default=1, help="orders the sources of a cell")
    options = parser.parse_args(words)
    if len(options.source) < 2:
        options.source.append(".")
    return options


def _unpacked(revisions: list[str], folder: Path) -> dict[str, Path]:
    """The folder of each source's packages."""
    found = {}
    for revision in revisions:
        if revision == ".":
            found[revision] = ROOT / "src"
            continue
        command = ["git", "archive", "--format=tar", revision, "src"]
        packed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        found[revision] = folder / str(len(found))
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(found[revision], filter="data")
        found[revision] /= "src"
    return {AGAIN: found[revisions[0]], **found}


class Cells:
    """What is measured, each time in another order of sources."""

    def __init__(self, servers: Servers, sources: dict[str, Path], options: argparse.Namespace) -> None:
        self._servers = servers
        self._sources = sources
        self._stores = [store for store in options.only if store not in servers.missing]
        self._callers = [int(many) for many in options.callers]
        self._seconds = options.seconds
        self._rng = random.Random(options.seed)
        self._urls = {
            (store, source): database(servers, store, f"source_{number}")
            for store in self._stores
            for number, source in enumerate(sources)
        }

    def round(self) -> Iterator[tuple[Place, Round]]:
        """One measurement of everything by every source."""
        for store in self._stores:
            for shell in SHELLS:
                for callers in self._callers:
                    yield from self._cell(store, shell, callers)

    def _cell(self, store: str, shell: str, callers: int) -> Iterator[tuple[Place, Round]]:
        order = self._rng.sample(list(self._sources), len(self._sources))
        server = self._servers.pids.get(store, 0)
        by_op: dict[str, Round] = {op: {} for op in OPS}
        for source in order:
            url = self._urls[store, source]
            subject = f"umavez:{shell}"
            cell = measure(subject, url, callers, self._seconds, server=server, source=self._sources[source])
            for op, problem in cell.problems.items():
                print(f"{store} {op}, {callers} {shell}, {source}: {problem}", flush=True)
            for op, measured in cell.measured.items():
                by_op[op][source] = Cost(measured.cpu_us, measured.server_us)
        for op, costs in by_op.items():
            if len(costs) == len(self._sources) and all(cost.whole for cost in costs.values()):
                yield Place(store, op, shell, callers), costs


def lines(found: dict[Place, list[Round]], sources: list[str]) -> Iterator[str]:
    """The table: medians and ranges, client and server behind them; a source that costs more than it may is marked."""
    first, *others = sources
    yield " | ".join(["cell", f"us of {first}", AGAIN, *others])
    for place, rounds in found.items():
        ratios = {name: [costs[name].whole / costs[first].whole for costs in rounds] for name in (AGAIN, *others)}
        most = SLACK * max(*ratios[AGAIN], 1.0)
        cells = [_parts(rounds, first)]
        for name, values in ratios.items():
            median = statistics.median(values)
            mark = " MISSED" if median > most else " over" if median > SLACK else ""
            cells.append(f"{median:.3f} ({min(values):.2f}-{max(values):.2f}){mark} {_parts(rounds, name)}")
        yield " | ".join([str(place), *cells])


def _parts(rounds: list[Round], name: str) -> str:
    client, server = (statistics.median(costs[name][part] for costs in rounds) for part in (0, 1))
    return f"{client:.1f} + {server:.1f}" if server else f"{client:.1f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
