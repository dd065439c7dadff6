"""Every database obeys the laws of a backlog, and every broker those of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.messaging.places import Place
from umavez.messaging import Database, LocalBroker
from umavez.testing import ManualClock
from umavez.testing.laws.instruments.messaging import BACKLOG, BROKER, BacklogBench, BrokerBench


def name(law: object) -> str:
    return str(getattr(law, "__name__", law))


@pytest.mark.parametrize("law", BACKLOG, ids=name)
def test_a_backlog_obeys(law, place: Place, database: Database, clock: ManualClock, runner: asyncio.Runner) -> None:
    law(BacklogBench(database, clock, runner))


@pytest.mark.parametrize("law", BROKER, ids=name)
def test_a_local_broker_obeys(
    law, place: Place, database: Database, clock: ManualClock, runner: asyncio.Runner
) -> None:
    runner.run(law(BrokerBench(LocalBroker(database), "local-", clock)))


@pytest.fixture
def parking(request: pytest.FixtureRequest, tmp_path, clock: ManualClock, runner: asyncio.Runner) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path}/parked.db?journal=delete", clock=clock)
    runner.run(database.migrate())
    yield database
    runner.run(database.close())


@pytest.mark.parametrize("law", BROKER, ids=name)
def test_rabbitmq_obeys(
    law, rabbitmq_url: str, rabbitmq_prefix: str, parking: Database, clock: ManualClock, runner: asyncio.Runner
) -> None:
    from umavez.messaging.rabbitmq import RabbitBroker, Topology

    broker = RabbitBroker(rabbitmq_url, topology=Topology(rabbitmq_prefix), parking=parking)

    async def work() -> None:
        try:
            await law(BrokerBench(broker, rabbitmq_prefix, clock))
        finally:
            await broker.close()

    runner.run(work())
