"""One message that cannot be read or sent stops nobody: it is buried with its reason, and its neighbours go on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing

import pytest

from tests.messaging.places import Place
from tests.messaging.test_relay import Wire, append, states
from umavez.messaging import Answer, Database, LocalBroker, Message, Relay

HEADERS = ['{"n": 1180591620717411303424}', "no json", "[1]", "[" * 100_000]


def spoil(place: Place, poisoned: Message, headers: str) -> None:
    """As an older version, or somebody's own SQL, may have written it."""
    with closing(place.connect()) as connection:
        place.run(connection, "UPDATE umavez_outbox SET headers = ? WHERE id = ?", headers, poisoned.id)
        connection.commit()


@pytest.mark.parametrize("headers", HEADERS, ids=["huge number", "no json", "list", "deep"])
def test_a_row_with_strange_headers_is_buried_and_its_neighbours_go_out(
    place: Place, database: Database, runner: asyncio.Runner, headers: str
) -> None:
    poisoned = Message("t", '"poison"', aggregate="a", headers={"n": "1"})
    append(place, Message("t", "1"), poisoned, Message("t", "2", aggregate="a"), Message("t", "3"))
    spoil(place, poisoned, headers)

    async def work() -> None:
        broker = LocalBroker(database)
        await broker.subscribe("mailer", ["t"])
        relay = Relay(database, broker)
        await relay.step()
        await relay.step()

    runner.run(work())
    assert states(place) == {"DONE": 2, "DEAD": 1, "WAITING": 1}
    ((reason,),) = place.look("SELECT error FROM umavez_outbox WHERE state = 'DEAD'")
    assert "never be published" in reason


@pytest.mark.parametrize("headers", HEADERS[:3], ids=["huge number", "no json", "list"])
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_rabbitmq_is_spared_the_same(
    rabbitmq_url: str, rabbitmq_prefix: str, place: Place, database: Database, runner: asyncio.Runner, headers: str
) -> None:
    from umavez.messaging.rabbitmq import RabbitBroker, Topology

    topic = f"{rabbitmq_prefix}t"
    poisoned = Message(topic, '"poison"', headers={"n": "1"})
    append(place, Message(topic, "1"), poisoned, Message(topic, "2"))
    spoil(place, poisoned, headers)

    async def work() -> None:
        broker = RabbitBroker(rabbitmq_url, topology=Topology(rabbitmq_prefix))
        subscription = await broker.subscribe(f"{rabbitmq_prefix}mailer", [topic])
        await Relay(database, broker).step()
        got = await subscription.take(10, 1)
        await subscription.finish(got)
        await subscription.close()
        await broker.close()

    runner.run(work())
    assert states(place) == {"DONE": 2, "DEAD": 1}


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_text_that_is_not_utf8_does_not_blind_the_claims_of_others(
    place: Place, database: Database, runner: asyncio.Runner
) -> None:
    append(place, Message("t", "1"), Message("t", '"poison"'), Message("t", "2"))
    with closing(place.connect()) as connection:
        place.run(connection, "UPDATE umavez_outbox SET body = CAST(X'22EDA08022' AS TEXT) WHERE body LIKE '%poison%'")
        connection.commit()

    async def work() -> None:
        broker = LocalBroker(database)
        await broker.subscribe("mailer", ["t"])
        await Relay(database, broker).step()

    runner.run(work())
    assert states(place) == {"DONE": 2, "DEAD": 1}


def test_a_broker_that_stumbles_over_one_message_gets_the_others_alone(
    place: Place, database: Database, runner: asyncio.Runner
) -> None:
    class Stumbling(Wire):
        async def publish(self, messages: Sequence[Message]) -> Sequence[Answer]:
            if any(message.body == '"poison"' for message in messages):
                raise OverflowError("int too large to convert")
            return await super().publish(messages)

    append(place, Message("t", "1"), Message("t", '"poison"', aggregate="a"), Message("t", "2", aggregate="a"))
    relay = Relay(database, Stumbling())
    runner.run(relay.step())
    assert states(place) == {"DONE": 1, "DEAD": 1, "WAITING": 1}
    ((reason,),) = place.look("SELECT error FROM umavez_outbox WHERE state = 'DEAD'")
    assert "OverflowError: int too large to convert" in reason
