"""From what the grid found to rows: the better shell against the limit, and against the best peer."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from bench.engine import peers
from bench.engine.cell import OPS
from bench.engine.grid import BARE, CALLERS, DISK, PEER_CALLERS, SHELLS, Found
from bench.engine.limits import Pgbench, RedisBenchmark
from bench.engine.table import Row
from bench.engine.targets import LIMITS, PEERS

Rounds = dict[int, float]


def rows_of(found: Found, store: str) -> list[Row]:
    """The rows of one store: its limits, umavez, its peers, and umavez against the best of them."""
    return [
        *_plain(found, store, [DISK, *limits(store)]),
        *(row for op in OPS for callers in CALLERS for row in _ours(found, store, op, callers)),
        *_plain(found, store, peers.ON.get(store, [])),
        *(row for op in OPS for callers in PEER_CALLERS for row in _against_peers(found, store, op, callers)),
        *_problems(found, store),
    ]


def _problems(found: Found, store: str) -> list[Row]:
    return [
        Row(f"{store} {op}: {who}", None, (), note=problem)
        for (where, who, op), problem in found.problems.items()
        if where == store
    ]


def limits(store: str) -> list[str]:
    """Who sets the limit of a store."""
    tools = {"postgres": [Pgbench.name], "redis": [RedisBenchmark.name]}
    return tools.get(store, [f"bare {driver}" for driver in BARE.get(store, ())])


def _plain(found: Found, store: str, names: list[str]) -> list[Row]:
    return [
        Row(f"{store} {op}: {who}", callers, list(rounds.values()), **_noted(_cpu(found, (place, who, op, callers))))
        for (place, who, op, callers), rounds in found.rates.items()
        if place == store and who in names
    ]


def _cpu(found: Found, place: tuple[str, str, str, int]) -> dict[str, float]:
    client, server = found.cpu.get(place), found.server_cpu.get(place)
    if not client or not server or not any(client):
        return {}
    return {
        "client_cpu_us": round(statistics.median(client), 1),
        "server_cpu_us": round(statistics.median(server), 1),
    }


def _noted(cpu: dict[str, float]) -> dict[str, Any]:
    return {"details": cpu, "note": f"CPU {_shown(cpu)}" if cpu else ""}


def _shown(cpu: dict[str, Any]) -> str:
    """CPU time of client and server for one call: it moves little when others use the machine too."""
    return f"{cpu.get('client_cpu_us', 0):.0f}+{cpu.get('server_cpu_us', 0):.0f} us"


def _best(found: Found, store: str, who: Iterable[str], op: str, callers: int | None) -> Rounds:
    """The best rate of each round among `who`, at one number of callers or at any."""
    best: Rounds = {}
    for (place, name, what, count), rounds in found.rates.items():
        if place != store or what != op or name not in who or callers not in (None, count):
            continue
        for number, rate in rounds.items():
            best[number] = max(rate, best.get(number, 0.0))
    return best


def _ratios(ours: Rounds, theirs: Rounds) -> list[float]:
    return [rate / theirs[number] for number, rate in ours.items() if theirs.get(number)]


def _better(found: Found, store: str, op: str, callers: int) -> tuple[str, Rounds]:
    """The shell with the higher median, and its rounds."""
    shells = [(shell, found.rates.get((store, f"umavez {shell}", op, callers), {})) for shell in SHELLS]
    return max(shells, key=lambda entry: statistics.median(entry[1].values()) if entry[1] else 0.0)


def _ours(found: Found, store: str, op: str, callers: int) -> list[Row]:
    shell, ours = _better(found, store, op, callers)
    if not ours:
        return []
    limit = _best(found, store, limits(store), op, 1 if callers == 1 else None)
    both: dict[str, Any] = {
        name: {
            "ops_per_s": [round(rate) for rate in found.rates.get((store, f"umavez {name}", op, callers), {}).values()],
            **_cpu(found, (store, f"umavez {name}", op, callers)),
        }
        for name in SHELLS
    }
    note = "; ".join(
        f"{name} {statistics.median(entry['ops_per_s'] or [0]):,.0f}/s, CPU {_shown(entry)}"
        for name, entry in both.items()
    )
    if saved := _saved(found, store, shell, op, callers):
        note += f"; the limit takes {saved:.1f} x its CPU"
        both["cpu_ratio"] = {"to_limit": round(saved, 2)}
    against = {1: "limit at 1"}.get(callers, "limit's best")
    target = LIMITS.get((store, op, callers))
    return [
        Row(
            f"{store} {op}: umavez ({shell})",
            callers,
            list(ours.values()),
            against=against,
            ratios=_ratios(ours, limit),
            target=target,
            note=note,
            details=both,
        )
    ]


def _saved(found: Found, store: str, shell: str, op: str, callers: int) -> float | None:
    """How many times less CPU, of client and server together, a call takes than the limit's best; None if not known."""
    places = [
        place
        for place in found.rates
        if place[0] == store and place[1] in limits(store) and place[2] == op and (callers > 1 or place[3] == 1)
    ]
    if not places:
        return None
    best = max(places, key=lambda place: statistics.median(found.rates[place].values()))
    theirs, ours = (sum(_cpu(found, place).values()) for place in (best, (store, f"umavez {shell}", op, callers)))
    return theirs / ours if theirs and ours else None


def _against_peers(found: Found, store: str, op: str, callers: int) -> list[Row]:
    shell, ours = _better(found, store, op, callers)
    names = peers.ON.get(store, [])
    theirs = _best(found, store, names, op, callers)
    if not ours or not theirs:
        return []
    medians = {
        name: statistics.median(rounds.values())
        for name in names
        if (rounds := found.rates.get((store, name, op, callers)))
    }
    best = max(medians, key=lambda name: medians[name])
    return [
        Row(
            f"{store} {op}: umavez ({shell}) against peers",
            callers,
            list(ours.values()),
            against="best peer",
            ratios=_ratios(ours, theirs),
            target=PEERS.get((store, callers)),
            note=f"best peer: {best}",
        )
    ]
