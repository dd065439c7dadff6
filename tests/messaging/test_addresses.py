"""Several nodes in one URL: read within limits, tried in turn."""

from __future__ import annotations

import asyncio

import pytest

from umavez import ConfigurationError
from umavez.messaging import BrokerUnavailable, Message
from umavez.messaging.rabbitmq import RabbitBroker, Topology
from umavez.messaging.rabbitmq.addresses import addresses_of


@pytest.mark.parametrize(
    ("url", "nodes"),
    [
        ("amqp://localhost", ("amqp://localhost",)),
        ("amqp://u:p@a:1/v?heartbeat=5", ("amqp://u:p@a:1/v?heartbeat=5",)),
        ("amqp://u:p@a:1,b:2,c/", ("amqp://u:p@a:1/", "amqp://u:p@b:2/", "amqp://u:p@c/")),
        ("amqps://u@a,b/%2f?x=1,2", ("amqps://u@a/%2f?x=1,2", "amqps://u@b/%2f?x=1,2")),
        ("amqp://a,b?heartbeat=5", ("amqp://a?heartbeat=5", "amqp://b?heartbeat=5")),
        ("amqp://u:p@[::1]:1,b/", ("amqp://u:p@[::1]:1/", "amqp://u:p@b/")),
    ],
)
def test_each_node_gets_the_whole_url(url: str, nodes: tuple[str, ...]) -> None:
    assert addresses_of(url) == nodes


@pytest.mark.parametrize(
    "url",
    [
        "",
        "amqp://",
        "amqp:",
        "http://a",
        "amqp://a,,b",
        "amqp://a:x/",
        "amqp://a:99999/",
        "amqp://" + ",".join("a" * 17),
    ],
)
def test_what_names_no_node_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match="names no RabbitMQ"):
        addresses_of(url)
    with pytest.raises(ConfigurationError) as told:
        addresses_of("amqp://u:secret@a,,b/")
    assert "secret" not in str(told.value)


def _beside(url: str, *others: str) -> str:
    head, at, rest = url.rpartition("@")
    if not at:
        head, at, rest = "amqp:/", "/", url.partition("://")[2]
    return f"{head}{at}{','.join(others)},{rest}"


def test_a_node_that_is_away_is_passed_over(rabbitmq_url: str, rabbitmq_prefix: str, runner: asyncio.Runner) -> None:
    """Port 1 refuses; whoever publishes or subscribes notices nothing."""
    broker = RabbitBroker(_beside(rabbitmq_url, "127.0.0.1:1", "127.0.0.1:2"), topology=Topology(rabbitmq_prefix))

    async def work() -> list[str]:
        subscription = await broker.subscribe("mailer", ["t"])
        assert list(await broker.publish([Message("t", "1")])) == [None]
        found = []
        async with asyncio.timeout(20):
            while not found:
                found = await subscription.take(1, 0.5)
        await subscription.finish(found)
        await subscription.close()
        await broker.close()
        return [delivery.message.body for delivery in found]

    assert runner.run(work()) == ["1"]


def test_when_no_node_answers_that_is_said(runner: asyncio.Runner) -> None:
    broker = RabbitBroker("amqp://u:secret@127.0.0.1:1,127.0.0.1:2/")
    with pytest.raises(BrokerUnavailable) as told:
        runner.run(broker.publish([Message("t", "1")]))
    assert "secret" not in str(told.value)
