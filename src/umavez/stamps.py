"""Stamps: unique marks of writes. The owner's name stands before the slash, the write's number after it."""

from __future__ import annotations

import os
import secrets
from itertools import count


class Stamps:
    """Makes owner names that no other process, host or time repeats."""

    def __init__(self) -> None:
        self._renew()
        # A forked child would go on with its parent's names, and two owners could then hold one stamp.
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._prefix = secrets.token_hex(9)
        self._counter = count()

    def owner(self) -> str:
        """A new owner's name; its first write is stamped with it as it is."""
        return f"{self._prefix}-{next(self._counter):x}"


STAMPS = Stamps()
"""One for the process: names only have to be unique, so there is nothing to configure."""
