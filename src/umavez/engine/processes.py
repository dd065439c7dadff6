"""This process, as people find it: host and number, what runs in it, and the prefix of its stamps."""

from __future__ import annotations

import os
import socket
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from umavez.core.encoding.texts import legible
from umavez.core.telling.events import Process
from umavez.engine.stamps import STAMPS

BEGAN = time.monotonic()
LONGEST = 200
"""Characters of a host's or a program's name."""


def this_process() -> Process:
    """Who holds what this process claims. `UMAVEZ_APP` names the program where its file's name does not."""
    app = os.environ.get("UMAVEZ_APP") or Path(sys.argv[0] if sys.argv else "").name or "python"
    age = int((time.monotonic() - BEGAN) * 1000)
    return Process(STAMPS.prefix, _short(socket.gethostname()), os.getpid(), _short(app), _version(), age)


def _version() -> str:
    try:
        return version("umavez")
    except PackageNotFoundError:
        return "unknown"


def _short(text: str) -> str:
    return legible(text)[:LONGEST]
