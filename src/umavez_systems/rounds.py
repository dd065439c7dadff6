"""Rounds: what the server does again and again beside answering, whatever happens in one of them.

A round that fails is told of and comes again: nobody looks after these tasks, and one that ended unnoticed would leave
offers open, documents undecided and mails unsent until the next start.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterator

from umavez import UmavezError
from umavez_systems.problems import Problem

LOG = logging.getLogger("umavez.systems")
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before work that ended too early is begun again."""

Work = Callable[[], Awaitable[object]]


async def for_ever(name: str, pause: float, *works: Work) -> None:
    """Wait `pause` seconds, do all of `works`, and again, until cancelled. What fails does not keep the others."""
    while True:
        await asyncio.sleep(pause)
        for work in works:
            await _done(name, work)


async def kept_up(name: str, work: Work, stop: asyncio.Event) -> None:
    """Do `work`, which is over when `stop` is set. Where it ends by an error it is begun again, ever more slowly."""
    pause = FIRST_PAUSE
    while not stop.is_set() and not await _done(name, work):
        try:
            async with asyncio.timeout(pause):
                await stop.wait()
        except TimeoutError:
            pause = min(2 * pause, LONGEST_PAUSE)


async def _done(name: str, work: Work) -> bool:
    """Whether `work` came to its end. What was in its way is in the log."""
    try:
        await work()
    except Exception as error:  # noqa: BLE001  # see the module: whatever it is, the next round has to come
        _tell(name, error)
        return False
    return True


def _tell(name: str, error: Exception) -> None:
    for cause in _causes(error):
        if isinstance(cause, UmavezError | Problem):
            LOG.warning("%s will try again: %s", name, cause)
            continue
        # Its place, and not its words: they may quote whatever it met.
        place = "".join(traceback.format_tb(cause.__traceback__))
        LOG.error("%s broke off and will try again: %s at\n%s", name, type(cause).__name__, place)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group, or the one that it is."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _causes(each)
    else:
        yield error
