"""The grid: limits, umavez and peers of every store, measured side by side; rounds are the outer loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.engine import peers
from bench.engine.cell import OPS, measure
from bench.engine.limits import Pgbench, RedisBenchmark, absent, fsyncs
from bench.engine.load import Measured
from bench.engine.servers import Servers, database
from umavez import Once

CALLERS = (1, 32, 128)
PEER_CALLERS = (1, 32)
BARE_CALLERS = (1, 32)
SHELLS = ("threads", "tasks")
BARE = {"sqlite": ("sqlite3",), "mariadb": ("PyMySQL", "asyncmy")}
DISK = "raw 8 kB write + fdatasync"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Size:
    """How long and how often."""

    rounds: int
    seconds: float
    peer_seconds: float
    clients: tuple[int, ...]


@dataclass
class Found:
    """Rates and CPU times by (store, who, op, callers), one entry for each round; and what could not be measured."""

    rates: dict[tuple[str, str, str, int], dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    cpu: dict[tuple[str, str, str, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    server_cpu: dict[tuple[str, str, str, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    problems: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def add(self, place: tuple[str, str, str, int], number: int, measured: Measured) -> None:
        """Keep one measurement of a round; nothing done within its time is no measurement."""
        store, who, op, callers = place
        if not measured.done:
            self.problems[store, who, op] = f"completed no call within the measured time, at {callers}"
            return
        self.rates[place][number] = measured.rate
        self.cpu[place].append(measured.cpu_us)
        self.server_cpu[place].append(measured.server_us)


class Grid:
    """Everything that is measured on the stores of one run."""

    def __init__(self, servers: Servers, stores: list[str], size: Size, absent_peers: dict[str, str] | None) -> None:
        self._servers = servers
        self._stores = stores
        self._size = size
        self._absent_peers = absent_peers
        self.found = Found()
        self._tools: dict[str, Pgbench | RedisBenchmark] = {}
        self._url = {store: database(servers, store, "umavez") for store in stores}
        for url in self._url.values():
            with Once(url, scope="bench") as once:
                once.migrate()
        self._prepare_tools()

    def _prepare_tools(self) -> None:
        if "postgres" in self._stores:
            if absent("pgbench"):
                self.found.problems["postgres", "pgbench", "all"] = "pgbench is not installed"
            else:
                self._tools["postgres"] = Pgbench(self._servers, database(self._servers, "postgres", "limits"))
        if "redis" in self._stores:
            if absent("redis-benchmark"):
                self.found.problems["redis", "redis-benchmark", "all"] = "redis-benchmark is not installed"
            else:
                self._tools["redis"] = RedisBenchmark(self._servers)

    def run(self, say: Say) -> Found:
        """Every round of every store. What is compared is measured one right after the other."""
        for number in range(self._size.rounds):
            for store in self._stores:
                say(f"round {number + 1} of {self._size.rounds}: {store}")
                if store == "sqlite":
                    self.found.rates[store, DISK, "first", 1][number] = fsyncs(self._servers.folder, self._size.seconds)
                for callers in sorted({*CALLERS, *self._size.clients}):
                    for step in (self._tool, self._bare, self._ours, self._peers):
                        step(store, callers, number)
        return self.found

    def _tool(self, store: str, callers: int, number: int) -> None:
        tool = self._tools.get(store)
        if tool is None or callers not in self._size.clients:
            return
        for op in OPS:
            measured = tool.measure(op, callers, self._size.seconds)
            self.found.add((store, tool.name, op, callers), number, measured)

    def _bare(self, store: str, callers: int, number: int) -> None:
        if callers not in BARE_CALLERS:
            return
        for driver in BARE.get(store, ()):
            url = database(self._servers, store, "bare") if store == "sqlite" else self._url[store]
            self._cell(store, f"bare {driver}", f"bare:{driver}", url, callers, number)

    def _ours(self, store: str, callers: int, number: int) -> None:
        if callers not in CALLERS:
            return
        for shell in SHELLS:
            self._cell(store, f"umavez {shell}", f"umavez:{shell}", self._url[store], callers, number)

    def _peers(self, store: str, callers: int, number: int) -> None:
        if self._absent_peers is None or callers not in PEER_CALLERS:
            return
        for peer in peers.ON.get(store, ()):
            if problem := self._absent_peers.get(peer):
                self.found.problems[store, peer, "all"] = problem
                continue
            url = database(self._servers, store, f"peer_{peer.replace('-', '_')}")
            self._cell(store, peer, f"peer:{peer}", url, callers, number)

    def _cell(self, store: str, who: str, subject: str, url: str, callers: int, number: int) -> None:
        is_peer = subject.startswith("peer:")
        server = self._servers.pids.get(store, 0)
        cell = (
            measure(subject, url, callers, self._size.peer_seconds, python=str(peers.PYTHON), server=server)
            if is_peer
            else measure(subject, url, callers, self._size.seconds, server=server)
        )
        for op, measured in cell.measured.items():
            self.found.add((store, who, op, callers), number, measured)
        for op, problem in cell.problems.items():
            self.found.problems[store, who, op] = f"{problem} (at {callers})"
