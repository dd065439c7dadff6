"""Service: relay, worker and recovery, inside the server or by themselves, until they are told to stop."""

from __future__ import annotations

import asyncio
import logging
import math
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from umavez import ConfigurationError, StoreError
from umavez.concurrency import ThreadPool
from umavez.messaging import (
    Broker,
    Consumer,
    ConsumerSettings,
    LocalBroker,
    MessageObserver,
    Relay,
    RelaySettings,
)
from umavez.messaging import Database as Messages
from umavez_systems.mailing.assembly import Mailing
from umavez_systems.mailing.domain import SUBSCRIBER, TOPIC
from umavez_systems.mailing.ingest.sweeping import sweep_spools, sweep_storage
from umavez_systems.mailing.providers import open_provider
from umavez_systems.mailing.providers.sink import sweep as sweep_sink
from umavez_systems.mailing.sending.worker import Worker

LOG = logging.getLogger("umavez.mailing")
AT_ONCE = 4
"""Mailings that one worker process works on at the same time."""
TIDY_SECONDS = 3600.0


def known_broker(url: str) -> bool:
    """Whether `url` names RabbitMQ, and not the database itself. Raises ValueError where neither can be used."""
    if url in ("local", "local:"):
        return False
    if not url.startswith(("amqp://", "amqps://")):
        raise ValueError("UMAVEZ_BROKER must be local: or amqp://…")
    try:
        from umavez.messaging.rabbitmq import RabbitBroker  # noqa: PLC0415  # needs umavez[rabbitmq], only where it is used
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"UMAVEZ_BROKER needs {missing.name}, which is not installed; run: pip install 'umavez[rabbitmq]'."
        ) from missing
    RabbitBroker(url)
    return True


def open_broker(url: str, messages: Messages, prefix: str, lease: float) -> Broker:
    """The broker that `url` names; `lease`: when a delivery comes again if nobody finished it. Raises ValueError."""
    if not known_broker(url):
        return LocalBroker(messages, lease=lease)
    from umavez.messaging.rabbitmq import RabbitBroker, Topology  # noqa: PLC0415  # as above

    return RabbitBroker(url, topology=Topology(prefix), parking=messages)


class Service:
    """What runs beside the routes. Each part may run elsewhere instead."""

    def __init__(
        self, mailing: Mailing, *, relay: bool, worker: bool, observers: Iterable[MessageObserver] = ()
    ) -> None:
        self._observers = tuple(observers)
        self._mailing = mailing
        self._relay = relay
        self._worker = worker
        # A delivery that comes again too early does no harm: the mailing's own lock decides.
        self._lease = max(mailing.settings.mailing_lock_seconds, 3.0)
        self._threads = ThreadPool(AT_ONCE * 4 + 2, "umavez-mailing")

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then finish the groups under way."""
        settings = self._mailing.settings
        messages = Messages(self._mailing.cases.database.store_url)
        broker = open_broker(settings.broker, messages, settings.broker_prefix, self._lease)
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._worker:
                    tasks.create_task(self._work(broker, stop))
                    tasks.create_task(self._recover(stop))
                if self._relay:
                    lanes = RelaySettings(lanes=1, poll=0.3)
                    tasks.create_task(Relay(messages, broker, lanes, observers=self._observers).run(stop))
        finally:
            await broker.close()
            await messages.close()
            await asyncio.to_thread(self._threads.close)

    async def _work(self, broker: Broker, stop: asyncio.Event) -> None:
        provider = open_provider(self._mailing.settings, self._mailing.cases.database)
        worker = Worker(self._mailing, provider, self._threads.run, stop)
        consumer = Consumer(
            broker,
            SUBSCRIBER,
            [TOPIC],
            worker.handle,
            ConsumerSettings(parallel=AT_ONCE, renew=self._lease / 3),
            observers=self._observers,
        )
        try:
            await consumer.run(stop)
        finally:
            await provider.close()

    async def _recover(self, stop: asyncio.Event) -> None:
        """At once, once more when what died with us has gone stale, and then on the schedule."""
        settings = self._mailing.settings
        pause = min(settings.mailing_lock_seconds + 1, settings.mailing_recovery_seconds)
        tidied = -math.inf
        while not stop.is_set():
            if time.monotonic() - tidied >= TIDY_SECONDS:
                tidied = time.monotonic()
                await self._tidy()
            try:
                freed = await self._threads.run(self._mailing.holdings.recover)
                if freed:
                    LOG.warning("Recovered %d mailings whose worker fell silent: %s", len(freed), ", ".join(freed))
            except StoreError as error:
                LOG.warning("The recovery will try again: %s", error)
            try:
                async with asyncio.timeout(pause):
                    await stop.wait()
            except TimeoutError:
                pause = settings.mailing_recovery_seconds

    async def _tidy(self) -> None:
        """Remove what nobody will ask for: lists without a mailing, and old mails of the sink."""
        try:
            cases = self._mailing.cases
            await self._threads.run(sweep_storage, cases.storage, cases.database)
            for folder in {self._mailing.settings.spool, Path(tempfile.gettempdir())} - {None}:
                await self._threads.run(sweep_spools, folder)
            await self._threads.run(sweep_sink, cases.database)
        except (OSError, StoreError) as error:
            LOG.warning("Forgotten files were not removed: %s", error)
