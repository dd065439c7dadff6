"""Hints: whom they reach, and whom they must leave alone."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from umavez.messaging.wakeups import Wakeups


def test_a_hint_reaches_whoever_listens() -> None:
    wakeups = Wakeups()

    async def work() -> bool:
        with wakeups.listening() as event:
            await asyncio.to_thread(wakeups.hint)
            async with asyncio.timeout(5):
                return await event.wait()

    assert asyncio.run(work())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_hints_of_a_forked_child_are_not_kept_for_its_parents_loop(tmp_path: Path) -> None:
    """A process that appends for months must not remember each time for a loop that never runs in it."""
    wakeups, told = Wakeups(), tmp_path / "told"

    async def work() -> int:
        with wakeups.listening():
            return _hinted_in_a_child(wakeups, asyncio.get_running_loop(), told)

    assert asyncio.run(work()) == 0
    assert told.read_text() == "0"


def _hinted_in_a_child(wakeups: Wakeups, loop: Any, told: Path) -> int:
    """The exit status of a child that hints, and says how much more its parent's loop has to do then."""
    before = len(loop._ready)
    with wakeups._lock:  # as a thread of the parent may hold it
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            wakeups.hint()
            told.write_text(str(len(loop._ready) - before))
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
