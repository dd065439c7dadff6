"""The laws of a broker. Each takes a bench and raises AssertionError; `BROKER` holds them in reading order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from umavez.messaging.broker import UNANSWERED, Broker, Delivery, Hopeless, Subscription
from umavez.messaging.message import Message
from umavez.testing.clock import ManualClock


class BrokerBench:
    """A broker whose topics and subscribers begin with `prefix`, and how its unfinished deliveries come to lapse."""

    def __init__(self, broker: Broker, prefix: str, clock: ManualClock) -> None:
        self.broker = broker
        self.prefix = prefix
        self.clock = clock

    async def subscription(self, name: str = "one") -> Subscription:
        """Subscribe to the topic of the laws."""
        return await self.broker.subscribe(f"{self.prefix}{name}", [self.topic])

    @property
    def topic(self) -> str:
        """The topic of the laws."""
        return f"{self.prefix}topic"

    async def published(self, *bodies: str) -> list[Message]:
        """Publish and see that all are confirmed."""
        messages = [Message(self.topic, body, headers={"trace": "1"}, aggregate=None) for body in bodies]
        assert list(await self.broker.publish(messages)) == [None] * len(messages), "not confirmed"
        return messages

    async def taken(self, subscription: Subscription, count: int) -> list[Delivery]:
        """Exactly `count` deliveries, within five seconds."""
        found: list[Delivery] = []
        async with asyncio.timeout(5):
            while len(found) < count:
                found += await subscription.take(count - len(found), 0.2)
        return found

    async def nothing(self, subscription: Subscription) -> None:
        """See that nothing comes."""
        assert await subscription.take(1, 0.05) == [], "something came that should not"


async def what_nobody_wants_is_refused(bench: BrokerBench) -> None:
    """A confirmed message that goes nowhere would be lost without a word."""
    (answer,) = await bench.broker.publish([Message(f"{bench.prefix}nowhere", "1")])
    assert answer, "an unroutable message was confirmed"


async def behind_a_refused_message_its_aggregate_waits(bench: BrokerBench) -> None:
    """And the others are taken: a later message must not arrive before an earlier one that is tried again."""
    subscription = await bench.subscription()
    answers = await bench.broker.publish(
        [
            Message(bench.topic, "1", aggregate="a"),
            Message(f"{bench.prefix}nowhere", "2", aggregate="a"),
            Message(bench.topic, "3", aggregate="a"),
            Message(bench.topic, "4", aggregate="b"),
            Message(bench.topic, "5"),
        ]
    )
    assert [answers[0], answers[3], answers[4]] == [None, None, None], "an innocent message was not confirmed"
    assert isinstance(answers[1], str), "an unroutable message was confirmed"
    assert answers[2] is UNANSWERED, "a message was sent before the earlier one of its aggregate"
    got = await bench.taken(subscription, 3)
    assert sorted(delivery.message.body for delivery in got) == ["1", "4", "5"]
    await subscription.finish(got)
    await subscription.close()


async def what_cannot_be_written_is_hopeless_and_its_neighbours_are_taken(bench: BrokerBench) -> None:
    """It may stand in an outbox that others fill."""
    subscription = await bench.subscription()
    answers = await bench.broker.publish(
        [
            Message(bench.topic, '"\ud800"'),
            Message(bench.topic, "1", headers={"n": "\ud800"}),
            Message(bench.topic, "2"),
        ]
    )
    assert isinstance(answers[0], Hopeless), "half a surrogate pair was sent"
    assert isinstance(answers[1], Hopeless), "half a surrogate pair was sent as a header"
    assert answers[2] is None
    got = await bench.taken(subscription, 1)
    await subscription.finish(got)
    await subscription.close()


async def every_subscriber_gets_every_message_whole(bench: BrokerBench) -> None:
    """Also those that come while nobody takes them."""
    one, two = await bench.subscription("one"), await bench.subscription("two")
    sent = await bench.published('{"ç":1}', "2")
    for subscription in (one, two):
        got = await bench.taken(subscription, 2)
        assert sorted(map(repr, (d.message for d in got))) == sorted(map(repr, sent)), "a message came changed"
        await subscription.finish(got)
        await subscription.close()


async def what_is_finished_does_not_come_again(bench: BrokerBench) -> None:
    """Not even to a new subscription after the lease."""
    subscription = await bench.subscription()
    await bench.published("1", "2", "3")
    await subscription.finish(await bench.taken(subscription, 3))
    await subscription.close()
    bench.clock.advance(3600)
    again = await bench.subscription()
    await bench.nothing(again)
    await again.close()


async def what_is_not_finished_comes_again_and_is_counted(bench: BrokerBench) -> None:
    """A subscriber that dies in the middle loses nothing."""
    subscription = await bench.subscription()
    await bench.published("1")
    (first,) = await bench.taken(subscription, 1)
    await subscription.close()
    bench.clock.advance(3600)
    again = await bench.subscription()
    (second,) = await bench.taken(again, 1)
    assert second.message.id == first.message.id
    assert (first.attempts, second.attempts) == (1, 2), "the attempts were not counted"
    await again.finish([second])
    await again.close()


async def what_is_postponed_comes_after_its_pause(bench: BrokerBench) -> None:
    """With its attempts counted on."""
    subscription = await bench.subscription()
    await bench.published("1")
    (first,) = await bench.taken(subscription, 1)
    await subscription.postpone(first, 100, "not now")
    await bench.nothing(subscription)
    bench.clock.advance(101)
    (second,) = await bench.taken(subscription, 1)
    assert (second.message.id, second.attempts) == (first.message.id, 2)
    await subscription.finish([second])
    await subscription.close()


async def what_is_buried_does_not_come_again(bench: BrokerBench) -> None:
    """And the others flow on."""
    subscription = await bench.subscription()
    await bench.published("1", "2")
    first, second = await bench.taken(subscription, 2)
    await subscription.bury(first, "hopeless")
    await subscription.finish([second])
    bench.clock.advance(3600)
    await bench.nothing(subscription)
    await subscription.close()


async def what_is_given_back_comes_again_at_once(bench: BrokerBench) -> None:
    """A consumer that stops hands its prefetched deliveries to the others."""
    subscription = await bench.subscription()
    await bench.published("1")
    await subscription.give_back(await bench.taken(subscription, 1))
    (again,) = await bench.taken(subscription, 1)
    await subscription.finish([again])
    await subscription.close()


BROKER: tuple[Callable[[BrokerBench], Awaitable[None]], ...] = (
    what_nobody_wants_is_refused,
    behind_a_refused_message_its_aggregate_waits,
    what_cannot_be_written_is_hopeless_and_its_neighbours_are_taken,
    every_subscriber_gets_every_message_whole,
    what_is_finished_does_not_come_again,
    what_is_not_finished_comes_again_and_is_counted,
    what_is_postponed_comes_after_its_pause,
    what_is_buried_does_not_come_again,
    what_is_given_back_comes_again_at_once,
)
