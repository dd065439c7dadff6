"""Board and History: how processes that may die at any instant tell where they stood.

Both are files, not pipes: what a process wrote before kill -9 is there for others to read, and half a message never is.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

SIZE = 4096
STOP, CURSOR, PHASES = 0, 8, 64


class Phase(IntEnum):
    """Where a worker stands with its key. What lies between EFFECT and SETTLED is the dangerous part."""

    IDLE = 0
    ENTERING = 1
    CLAIMED = 2
    EFFECT = 3
    SETTLED = 4
    COMMITTED = 5
    STOPPING = 6


class Board:
    """Shared memory of one trial: the next key, the phase of each worker, and the sign to stop."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, SIZE)
        self._memory = mmap.mmap(descriptor, SIZE)
        os.close(descriptor)

    def enter(self, slot: int, phase: Phase) -> None:
        """The worker of `slot` has reached `phase`."""
        self._memory[PHASES + slot] = phase

    def phase(self, slot: int) -> Phase:
        """Where the worker of `slot` stands, or stood when it died."""
        return Phase(self._memory[PHASES + slot])

    @property
    def cursor(self) -> int:
        """How many keys were handed out."""
        return int(struct.unpack_from("<q", self._memory, CURSOR)[0])

    @cursor.setter
    def cursor(self, value: int) -> None:
        struct.pack_into("<q", self._memory, CURSOR, value)

    def take(self) -> int:
        """The next key's number. Not atomic on purpose: two workers with one key are rivals, which is wanted."""
        self.cursor = (taken := self.cursor) + 1
        return taken

    @property
    def stopped(self) -> bool:
        """Whether the workers are to end."""
        return bool(self._memory[STOP])

    def stop(self) -> None:
        """Tell every worker to end after its present key."""
        self._memory[STOP] = 1

    def close(self) -> None:
        """Give the memory back; the file stays."""
        self._memory.close()


class Line(NamedTuple):
    """Something that a worker noted."""

    kind: str
    key: str
    value: str


class History:
    """One file that all workers of a trial append to, a line at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, kind: str, key: str = "-", value: str = "-") -> None:
        """Append a line; one write, so that lines of several processes never mix."""
        os.write(self._descriptor, f"{kind}\t{key}\t{value}\n".encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def lines(path: Path) -> Iterator[Line]:
    """Every line noted so far."""
    if path.exists():
        for text in path.read_text().splitlines():
            kind, key, value = text.split("\t")
            yield Line(kind, key, value)


def answers(path: Path) -> dict[str, set[str]]:
    """The values that callers were given for each key."""
    given: dict[str, set[str]] = defaultdict(set)
    for line in lines(path):
        if line.kind == "answer":
            given[line.key].add(line.value)
    return given


def kinds(path: Path) -> Counter[str]:
    """How often each kind of line was noted."""
    return Counter(line.kind for line in lines(path))
