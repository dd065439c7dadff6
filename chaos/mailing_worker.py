"""A mailing worker as a process of its own, which may be told to die at a step of its work."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

from umavez.messaging import LocalBroker
from umavez.messaging.stopping import stop_on_signals
from umavez_systems.mailing.providers.sink import SinkProvider
from umavez_systems.mailing.providers.smtp import SmtpProvider
from umavez_systems.mailing.sending.holding import Holding, Holdings
from umavez_systems.mailing.service import Service
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier

THIRD = 3


def die() -> None:
    """As kill -9 does."""
    os.kill(os.getpid(), signal.SIGKILL)


def _after(owner: type, name: str, when: Callable[[Any, tuple[Any, ...]], bool]) -> None:
    """Die after a method returned, if `when` says so about its result and arguments."""
    real = getattr(owner, name)

    def sync(self: Any, *given: Any, **named: Any) -> Any:
        found = real(self, *given, **named)
        if when(found, given):
            die()
        return found

    async def awaited(self: Any, *given: Any, **named: Any) -> Any:
        found = await real(self, *given, **named)
        if when(found, given):
            die()
        return found

    setattr(owner, name, awaited if asyncio.iscoroutinefunction(real) else sync)


def _third() -> Callable[[Any, tuple[Any, ...]], bool]:
    calls = iter(range(1, 10**9))
    return lambda *_: next(calls) == THIRD


STEPS: dict[str, Callable[[], None]] = {
    "1 message published": lambda: _after(LocalBroker, "publish", lambda *_: True),
    "2 lock taken": lambda: _after(Holdings, "acquire", lambda found, _: found is not None),
    "3 part of the list kept": lambda: _after(Holding, "add", lambda *_: True),
    "4 list closed": lambda: _after(Holding, "close_list", lambda *_: True),
    "5 intents kept": lambda: _after(Holding, "turn", lambda found, _: bool(found.entries)),
    "6 third mail answered": lambda: _after(SmtpProvider, "_handed_over", _third()),
    "7 group answered": lambda: (
        _after(SmtpProvider, "send", lambda *_: True),
        _after(SinkProvider, "send", lambda *_: True),
    )[0],
    "8 results kept": lambda: _after(Holding, "turn", lambda _, given: bool(given[0])),
    "9 mailing let go": lambda: _after(Holding, "leave", lambda *_: True),
}


def work(given: dict[str, Any], step: str | None = None, relay: bool = True, worker: bool = True) -> None:
    """Relay, worker and recovery, until they are stopped or reach `step`."""
    logging.disable(logging.CRITICAL)
    if step is not None:
        STEPS[step]()
    carrier = Carrier(Settings(**given))

    async def run() -> None:
        stop = asyncio.Event()
        stop_on_signals(stop)
        await Service(carrier.mailing, relay=relay, worker=worker).run(stop)

    asyncio.run(run())
    carrier.close()


def started(given: dict[str, Any], step: str | None = None, *, relay: bool = True, worker: bool = True) -> BaseProcess:
    """Such a process, on its way."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["chaos.mailing_worker"])
    process = context.Process(target=work, args=(given, step, relay, worker), daemon=True)
    process.start()
    return process
