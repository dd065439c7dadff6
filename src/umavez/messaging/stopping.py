"""Stopping: pauses that end early when the work is to end, and signals that ask for it."""

from __future__ import annotations

import asyncio
import signal


async def paused(stop: asyncio.Event, seconds: float) -> None:
    """Wait for `seconds`, or less when `stop` is set."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return


def stop_on_signals(stop: asyncio.Event) -> None:
    """SIGTERM and SIGINT set `stop`; the work under way is finished, not cut off."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
