"""Stamps: unique marks of writes. The owner's name stands before the slash, the write's number after it."""

from __future__ import annotations

import secrets
from itertools import count

from umavez.concurrency.after_fork import reset_after_fork


class Stamps:
    """Makes owner names that no other process, host or time repeats."""

    def __init__(self) -> None:
        self.reset()
        # A forked child would go on with its parent's names, and two owners could then hold one stamp.
        reset_after_fork(self)

    def reset(self) -> None:
        """Take a new prefix."""
        self.prefix = secrets.token_hex(9)
        """What every owner's name of this process begins with; under it the process is announced."""
        self._counter = count()
        self.era = object()
        """Another object in every process, to notice cheaply that one was forked."""

    def owner(self) -> str:
        """A new owner's name; its first write is stamped with it as it is."""
        return f"{self.prefix}-{next(self._counter):x}"


STAMPS = Stamps()
"""One for the process: names only have to be unique, so there is nothing to configure."""
