"""Message: what is written with a change and told to others afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4, uuid5

from umavez.core.encoding.json_text import BoundedJson
from umavez.errors import NotStorable

NAMESPACE = UUID("6b1f0f3c-4f0e-5d0a-9c1e-75d6a1c0e0aa")
"""Where ids derived from an attempt's key live; fixed for ever, or a repeated attempt would make a second message."""

MAX_TOPIC = 255
MAX_BODY = 16 * 1024 * 1024
"""Bytes. RabbitMQ 4 refuses more, so it is refused at the desk where it is written, not at three in the morning."""

REASON_LENGTH = 2000
MAX_HEADERS = 32 * 1024
"""Bytes of all names and values; they travel in one frame."""

OWN_HEADERS = ("x-", "umavez-")
"""How headers of brokers and of umavez itself begin; they are not handed to handlers, so nobody else may use them."""

UNREADABLE = (ValueError, TypeError, RecursionError)
NO_HEADERS: Mapping[str, str] = {}

_BOUNDED = BoundedJson(size=MAX_BODY, digits=309, exponent=324)
"""Every float, and whole numbers as large as floats go; a broker carries messages of strangers too."""


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
        """What the body says. Raises InvalidJson for a body that is not JSON, or beyond what a handler should meet."""
        return _BOUNDED.parse(self.body)


def columns(message: Message) -> tuple[str, str, str, str | None, str | None, int | None]:
    """The values of a row: id, topic, body, headers, aggregate, available_at. Raises NotStorable."""
    wrong = complaint(message)
    if wrong:
        raise NotStorable(wrong)
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


def complaint(message: Message) -> str:
    """Why a message cannot be kept or carried; empty if it can."""
    for name in ("topic", "body", "id", "aggregate"):
        value = getattr(message, name)
        if value is not None and not is_plain(value):
            return f"The {name} of a message must be text without NUL or half a surrogate pair; send other text."
    return _complaint_of_size(message) or _complaint_of_headers(message)


def is_plain(value: object) -> bool:
    """Whether every database and broker can carry the value as it is."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def told(reason: str) -> str:
    """`reason` as every database can keep it: an error's text may hold whatever was sent."""
    return reason[:REASON_LENGTH].encode(errors="backslashreplace").decode().replace("\0", "\\0")


def _complaint_of_headers(message: Message) -> str:
    size = 0
    for name, value in message.headers.items():
        if not is_plain(name) or not is_plain(value):
            return f"Headers of a message for {message.topic} must be text without NUL; send other text."
        if name.lower().startswith(OWN_HEADERS):
            return f"The header {name} begins with x- or umavez-, which brokers keep for themselves; call it otherwise."
        if not 0 < len(name.encode()) <= MAX_TOPIC:
            return f"A header of a message for {message.topic} must have a name of 1 to {MAX_TOPIC} bytes; shorten it."
        size += len(name.encode()) + len(value.encode())
    if size > MAX_HEADERS:
        return f"The headers of a message for {message.topic} are above {MAX_HEADERS} bytes; put them into the body."
    return ""


def _complaint_of_size(message: Message) -> str:
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
    """The message in a row of id, topic, body, headers, aggregate. Raises one of UNREADABLE for strange headers."""
    name, topic, body, headers, aggregate = row
    told = json.loads(headers) if headers else NO_HEADERS
    if not isinstance(told, Mapping):
        raise TypeError("its headers are not an object.")
    return Message(topic, body, name, told, aggregate)
