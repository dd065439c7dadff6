"""Shares: threads for use cases, so divided that a system which is stuck leaves the others theirs.

Every system has threads of its own, and the rest is for whoever comes first. A system whose tables are locked may take
all of the rest; then the others go on with their own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from umavez import Crowded
from umavez.concurrency import ThreadPool

T = TypeVar("T")
SYSTEMS = ("propostas", "corridas", "processos", "mailing", "fiscal")
OTHERS = "umavez"
"""The share of what belongs to no system."""
TENTH = 10


def divided(threads: int, shares: int) -> tuple[int, int]:
    """Of so many threads, how many each share has of its own, and how many are for everybody. Each at least one."""
    own = max(1, threads // TENTH)
    return own, max(1, threads - own * shares)


def system_of(case: Callable[..., Any]) -> str:
    """The system in whose folder the code of `case` is, or OTHERS."""
    while isinstance(case, partial):
        case = case.func
    parts = (getattr(case, "__module__", None) or "").split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "umavez_systems" and parts[1] in SYSTEMS else OTHERS


class _Share:
    __slots__ = ("line", "running")

    def __init__(self) -> None:
        self.running = 0
        self.line: deque[tuple[float, asyncio.Future[None]]] = deque()
        """Who waits, and since when."""


class Shares:
    """At most `waiting` calls of a system wait, none for longer than `patience` seconds. For one event loop."""

    def __init__(self, names: Sequence[str], threads: int, waiting: int, patience: float) -> None:
        self._own, self._common = divided(threads, len(names))
        self._waiting = waiting
        self._patience = patience
        self._shares = {name: _Share() for name in names}
        self.most = self._common + self._own * len(names)
        """Calls that run at once, of all systems together."""
        self._threads = ThreadPool(self.most, "umavez-case")

    async def run(self, name: str, call: Callable[..., T], *args: Any) -> T:
        """What `call` returns or raises. It runs to its end even if its caller is cancelled meanwhile.

        Raises Crowded when it was not begun, because too many of its system wait or it waited for too long.
        """
        share = self._shares[name]
        if share.line or not self._room(share):
            await self._turn(share)
        else:
            self._begin(share)
        try:
            future = self._threads.submit(call, *args)
        except BaseException:  # no thread to be had: nothing was begun
            self._end(share)
            raise
        future.add_done_callback(lambda _: self._end(share))
        return await asyncio.shield(future)

    def _room(self, share: _Share) -> bool:
        return share.running < self._own or self._common > 0

    def _begin(self, share: _Share) -> None:
        if share.running >= self._own:
            self._common -= 1
        share.running += 1

    def _end(self, share: _Share) -> None:
        share.running -= 1
        if share.running >= self._own:
            self._common += 1
        self._admit(share)

    def _admit(self, share: _Share) -> None:
        """Let one in: of this share where the thread that came free is its own, else whoever has waited longest."""
        lines = [one for one in self._shares.values() if one.line and self._room(one)]
        if share in lines and share.running < self._own:
            lines = [share]
        if lines:
            first = min(lines, key=lambda one: one.line[0][0])
            _, turn = first.line.popleft()
            self._begin(first)
            turn.set_result(None)

    async def _turn(self, share: _Share) -> None:
        if len(share.line) >= self._waiting:
            raise Crowded(f"{self._waiting} calls wait for a thread already; try again later.")
        loop = asyncio.get_running_loop()
        place = (loop.time(), loop.create_future())
        share.line.append(place)
        timer = loop.call_later(self._patience, self._give_up, share, place)
        try:
            await place[1]
        except asyncio.CancelledError:
            if place in share.line:
                share.line.remove(place)
            elif place[1].done() and not place[1].cancelled() and place[1].exception() is None:
                # Let in and cancelled in one moment: the place is somebody else's.
                self._end(share)
            raise
        finally:
            timer.cancel()

    def _give_up(self, share: _Share, place: tuple[float, asyncio.Future[None]]) -> None:
        if place in share.line:
            share.line.remove(place)
            place[1].set_exception(Crowded(f"No thread was free for {self._patience:g} s; try again later."))

    def close(self) -> None:
        """Let what runs finish. Blocks: not for the loop's thread."""
        self._threads.close()
