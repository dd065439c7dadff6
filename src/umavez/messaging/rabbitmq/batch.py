"""A batch on its way to RabbitMQ: what goes after what, which answers have come, and when to stop waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aio_pika.abc import DeliveryMode
from pamqp.commands import Basic

from umavez.errors import UmavezError
from umavez.messaging.broker import UNANSWERED, Answer
from umavez.messaging.message import Message


class Unsendable(UmavezError):
    """AMQP has no way to write this message."""


class Batch:
    """Messages and the answers to them. `lost` says why answers are missing, if the connection is to blame."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.answers: list[Answer] = [UNANSWERED] * len(messages)
        self.lost = ""
        self._answered_at = 0.0

    def chains(self) -> list[list[int]]:
        """Places of messages that go one after the other: those of an aggregate; every other is alone."""
        chains: list[list[int]] = []
        by_aggregate: dict[str, list[int]] = {}
        for place, message in enumerate(self.messages):
            if message.aggregate is None:
                chains.append([place])
            elif message.aggregate in by_aggregate:
                by_aggregate[message.aggregate].append(place)
            else:
                chains.append(by_aggregate.setdefault(message.aggregate, [place]))
        return chains

    def answer(self, place: int, answer: Answer) -> None:
        """Note what was said to one message."""
        self.answers[place] = answer
        self._answered_at = asyncio.get_running_loop().time()

    async def awaited(self, chains: Sequence[asyncio.Task[None]], patience: float) -> None:
        """Wait until all chains have ended, `patience` seconds pass without an answer, or twice that in all."""
        loop = asyncio.get_running_loop()
        began = self._answered_at = loop.time()
        pending = set(chains)
        while pending:
            end = min(self._answered_at + patience, began + 2 * patience)
            if loop.time() >= end:
                self.lost = f"silence for {loop.time() - self._answered_at:.1f} s"
                return
            done, pending = await asyncio.wait(pending, timeout=end - loop.time())
            for chain in done:
                chain.result()  # an error that nobody foresaw is the relay's to judge


def carried(message: Message) -> tuple[bytes, Basic.Properties]:
    """How a message travels: persistent, with its own id, topic and ordering key. Raises Unsendable."""
    headers: dict[str, Any] = dict(message.headers)
    if message.aggregate is not None:
        headers["x-umavez-aggregate"] = message.aggregate
    properties = Basic.Properties(
        content_type="application/json",
        delivery_mode=int(DeliveryMode.PERSISTENT),
        message_id=message.id,
        message_type=message.topic,
        headers=headers,
    )
    try:
        properties.marshal()
        return message.body.encode(), properties
    except Exception as error:
        raise Unsendable(f"{type(error).__name__}: {error}") from error
