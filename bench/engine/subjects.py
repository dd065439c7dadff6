"""Subjects: what a cell measures. `first` runs the operation under a new key, `replay` under a completed one.

Imported by name only, inside the cell that needs it: the peers' virtualenv has no umavez, and ours has no peers.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

HOMES = {"umavez": "bench.engine.ours", "bare": "bench.engine.bare", "peer": "bench.engine.peers_calls"}


class Subject:
    """Something called by threads, or by tasks where `awaited`."""

    awaited = False

    def __init__(self, url: str, callers: int) -> None:
        self.url = url
        self.callers = callers

    def open(self) -> Any:
        """Connect; outside the measured time."""

    def first(self, key: str) -> Any:
        """Claim `key`, do nothing, keep RESULT."""
        raise NotImplementedError

    def replay(self, key: str) -> Any:
        """The same call for a completed key."""
        return self.first(key)

    def close(self) -> Any:
        """Disconnect."""


def subject(name: str, url: str, callers: int) -> Subject:
    """The subject called `home:name`."""
    home, _, inner = name.partition(":")
    found: Subject = import_module(HOMES[home]).SUBJECTS[inner](url, callers)
    return found
