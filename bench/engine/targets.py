"""What the engine is to reach, as ratios in the same run."""

from __future__ import annotations

LIMITS: dict[tuple[str, str, int], float] = {
    ("postgres", "first", 1): 0.7,
    ("postgres", "first", 32): 1.5,
    ("postgres", "first", 128): 2.5,
    ("postgres", "replay", 1): 0.7,
    ("postgres", "replay", 32): 1.5,
    ("postgres", "replay", 128): 2.5,
    ("sqlite", "first", 1): 0.8,
    ("sqlite", "first", 32): 4,
    ("sqlite", "replay", 1): 0.5,
    ("sqlite", "replay", 32): 0.5,
    ("redis", "first", 32): 0.7,
    ("redis", "replay", 32): 0.7,
    ("mariadb", "first", 1): 0.8,
    ("mariadb", "first", 32): 2,
    ("mariadb", "replay", 1): 0.8,
    ("mariadb", "replay", 32): 2,
}
"""By store, operation and callers: at least this many times the limit."""

PEERS: dict[tuple[str, int], float] = {
    ("postgres", 1): 5,
    ("postgres", 32): 20,
    ("redis", 1): 1,
    ("redis", 32): 6,
    ("sqlite", 1): 1.3,
    ("sqlite", 32): 8,
}
"""By store and callers: at least this many times the best peer."""

COUNTS: dict[tuple[str, str, str], float] = {
    ("postgres", "first", "statements"): 2,
    ("postgres", "first", "wal_syncs"): 2,
    ("postgres", "replay", "statements"): 1,
    ("postgres", "replay", "wal_syncs"): 0,
    ("redis", "first", "commands"): 2,
    ("redis", "replay", "commands"): 1,
}
"""By store, operation and what: at most this many for each call. Opening a connection adds a few hundredths."""

SLACK = 0.05
MEMORY = {"first": 12.0, "replay": 5.0}
"""CPU microseconds of a call on memory:, at most."""

GROWTH = 0.8
SWEEP_COST = 15.0
WAKE_MS = 5.0
