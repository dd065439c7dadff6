"""Writing rows: any number of messages in one statement."""

# ruff: noqa: S608 - statements are joined from constants of the module; values always travel as parameters

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from umavez.messaging.message import Message, columns
from umavez.messaging.tables.causes import cause_here
from umavez.messaging.wakeups import CHANNEL
from umavez.sql.connection import AsyncSql, Dialect, Sql
from umavez.sql.dialect import strictly
from umavez.sql.flow import SqlFlow, Write, joining, now_at

_INTO = "INSERT INTO umavez_outbox (id, topic, body, headers, aggregate, state, attempts, created_at, due_at) "


def append(sql: Sql | AsyncSql, messages: Message | Iterable[Message], offset: int) -> SqlFlow[list[str]]:
    """Put `messages` into the outbox, in the caller's open transaction; their ids. See Outbox.append."""
    given = [messages] if isinstance(messages, Message) else list(messages)
    if not given:
        return []
    statement = appending(sql.dialect, given, offset)
    yield from joining(sql)
    cause = yield from cause_here(sql)
    yield statement if cause is None else appending(sql.dialect, given, offset, cause)
    return [message.id for message in given]


def appending(dialect: Dialect, messages: Sequence[Message], offset: int = 0, cause: str | None = None) -> Write:
    """The statement that puts `messages` into the outbox. One whose id is there already is left as it is.

    `cause`: the digest of the key whose attempt writes them, for an outbox that can keep it.
    """
    rows = [columns(message) for message in messages]
    now = now_at(dialect, offset)
    into, more, causes = _INTO, "", []
    if cause is not None:
        into, more, causes = _INTO.replace("due_at)", "due_at, cause)"), ", ?", [cause]
    if dialect is Dialect.POSTGRES:
        given = "unnest(?::text[], ?::text[], ?::text[], ?::text[], ?::text[], ?::bigint[])"
        text = (
            f"{into}SELECT id, topic, body, headers, aggregate, 'WAITING', 0, {now}, coalesce(available_at, {now})"
            f"{more and ', ?::text'}"
            f" FROM {given} AS given (id, topic, body, headers, aggregate, available_at),"
            f" (SELECT pg_notify('{CHANNEL}', '')) AS hint ON CONFLICT (id) DO NOTHING"
        )
        return Write(text, [*causes, *(list(column) for column in zip(*rows, strict=True))])
    if dialect is Dialect.SQLITE:
        fields = ", ".join(f"json_extract(value, '$[{place}]')" for place in range(5))
        text = (
            f"{into}SELECT {fields}, 'WAITING', 0, {now}, coalesce(json_extract(value, '$[5]'), {now}){more}"
            " FROM json_each(?) WHERE true ON CONFLICT (id) DO NOTHING"
        )
        return Write(text, (*causes, json.dumps(rows)))
    line = f"(?, ?, ?, ?, ?, 'WAITING', 0, {now}, coalesce(?, {now}){more})"
    text = f"{into}VALUES {', '.join([line] * len(rows))} ON DUPLICATE KEY UPDATE id = VALUES(id)"
    if any(_is_wide(value) for row in rows for value in row[:5]):
        text = strictly(text, dialect)
    return Write(text, [value for row in rows for value in (*row, *causes)])


def _is_wide(value: str | None) -> bool:
    """Whether it holds a character of four bytes, which `utf8` of MariaDB, found in many URLs, does not know.

    Those are the ones that UTF-16 writes as two; to look at each character in turn would take many times as long.
    """
    return value is not None and not value.isascii() and len(value.encode("utf-16-le")) > 2 * len(value)


Parcel = tuple[str, Message, str, int, int, str | None]
"""A delivery to write: subscriber, message, state, attempts, milliseconds until due, error."""


def delivering(dialect: Dialect, parcels: Sequence[Parcel], offset: int = 0) -> Write:
    """The statement that puts deliveries up. One that its subscriber has already is left as it is."""
    now = now_at(dialect, offset)
    into = (
        "INSERT INTO umavez_deliveries"
        " (subscriber, id, topic, body, headers, aggregate, state, attempts, created_at, due_at, error) "
    )
    rows = [
        (subscriber, *columns(message)[:5], state, attempts, pause, error)
        for subscriber, message, state, attempts, pause, error in parcels
    ]
    if dialect is Dialect.POSTGRES:
        kinds = ", ".join(f"?::{kind}[]" for kind in (*["text"] * 7, "integer", "bigint", "text"))
        text = (
            f"{into}SELECT subscriber, id, topic, body, headers, aggregate, state, attempts, {now}, {now} + pause,"
            f" error FROM unnest({kinds}) AS given"
            " (subscriber, id, topic, body, headers, aggregate, state, attempts, pause, error)"
            " ON CONFLICT (subscriber, id) DO NOTHING"
        )
        return Write(text, [list(column) for column in zip(*rows, strict=True)])
    if dialect is Dialect.SQLITE:
        fields = ", ".join(f"json_extract(value, '$[{place}]')" for place in range(8))
        pause = f"{now} + json_extract(value, '$[8]')"
        text = (
            f"{into}SELECT {fields}, {now}, {pause}, json_extract(value, '$[9]')"
            " FROM json_each(?) WHERE true ON CONFLICT (subscriber, id) DO NOTHING"
        )
        return Write(text, (json.dumps(rows),))
    line = f"(?, ?, ?, ?, ?, ?, ?, ?, {now}, {now} + ?, ?)"
    text = f"{into}VALUES {', '.join([line] * len(rows))} ON DUPLICATE KEY UPDATE id = VALUES(id)"
    return Write(text, [value for row in rows for value in row])


def subscribing(dialect: Dialect, subscriber: str, topics: Sequence[str]) -> Write:
    """The statement that notes which topics a subscriber wants; safe to repeat."""
    ending = "ON DUPLICATE KEY UPDATE topic = VALUES(topic)" if dialect is Dialect.MARIADB else "ON CONFLICT DO NOTHING"
    values: list[Any] = [value for topic in topics for value in (topic, subscriber)]
    lines = ", ".join(["(?, ?)"] * len(topics))
    return Write(f"INSERT INTO umavez_subscriptions (topic, subscriber) VALUES {lines} {ending}", values)
