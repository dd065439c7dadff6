"""Message: what is written with a change and told to others afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4, uuid5

from umavez.errors import NotStorable

NAMESPACE = UUID("6b1f0f3c-4f0e-5d0a-9c1e-75d6a1c0e0aa")
"""Where ids derived from an attempt's key live; fixed for ever, or a repeated attempt would make a second message."""

MAX_TOPIC = 255
MAX_BODY = 16 * 1024 * 1024
"""Bytes. RabbitMQ 4 refuses more, so it is refused at the desk where it is written, not at three in the morning."""

NO_HEADERS: Mapping[str, str] = {}


def message_id(downstream_key: str) -> str:
    """The id that belongs to a key: the same for every attempt that derives it."""
    return str(uuid5(NAMESPACE, downstream_key))


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `id` never changes, however often it is sent; `body` is JSON text.

    `aggregate` asks for order: of the messages with one aggregate, none is handed on before the earlier ones.
    `available_at` asks for patience: not before that moment.
    """

    topic: str
    body: str
    id: str = field(default_factory=lambda: str(uuid4()))
    headers: Mapping[str, str] = field(default_factory=dict)
    aggregate: str | None = None
    available_at: datetime | None = None

    @classmethod
    def of(
        cls,
        topic: str,
        payload: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        aggregate: str | None = None,
        available_at: datetime | None = None,
    ) -> Message:
        """A message whose body is `payload` as JSON. With `key` (an attempt's downstream_key) a repeat has the same id.

        Raises NotStorable for a payload that JSON cannot hold.
        """
        try:
            body = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            raise NotStorable(
                f"A message for {topic} cannot be written as JSON ({error}); give plain values."
            ) from error
        name = str(uuid4()) if key is None else message_id(key)
        return cls(topic, body, name, headers, aggregate, available_at)

    @property
    def payload(self) -> Any:
        """What the body says."""
        return json.loads(self.body)


def columns(message: Message) -> tuple[str, str, str, str | None, str | None, int | None]:
    """The values of a row: id, topic, body, headers, aggregate, available_at. Raises NotStorable."""
    complaint = _complaint(message)
    if complaint:
        raise NotStorable(complaint)
    headers = json.dumps(dict(message.headers)) if message.headers else None
    moment = message.available_at
    return (
        message.id,
        message.topic,
        message.body,
        headers,
        message.aggregate,
        None if moment is None else int(moment.timestamp() * 1000),
    )


def _complaint(message: Message) -> str:
    if not message.topic or len(message.topic.encode()) > MAX_TOPIC:
        return f"A message's topic must have 1 to {MAX_TOPIC} bytes; shorten or name it."
    if message.aggregate is not None and not 0 < len(message.aggregate) <= 255:
        return f"The aggregate of a message for {message.topic} must have 1 to 255 characters; shorten it."
    if not 0 < len(message.id) <= 255 or not message.id.isascii():
        return f"The id of a message for {message.topic} must be ASCII text; leave it out to get a UUID."
    if len(message.body) > MAX_BODY // 4 and len(message.body.encode()) > MAX_BODY:
        return (
            f"A message for {message.topic} is above {MAX_BODY} bytes; store the body elsewhere and send its address."
        )
    if message.available_at is not None and message.available_at.tzinfo is None:
        return f"available_at of a message for {message.topic} has no time zone; give an aware datetime."
    return ""


def message_of(row: tuple[Any, ...]) -> Message:
    """The message in a row of id, topic, body, headers, aggregate."""
    name, topic, body, headers, aggregate = row
    return Message(topic, body, name, json.loads(headers) if headers else NO_HEADERS, aggregate)
