"""Answers: what of a response is final, what is kept of it, and what a replay is made of.

Kept is a flat list of plain values, so that any codec of the engine (a sealing one too) can hold it:
[version, status, header lines, body text, whether the text is base64].
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

Headers = list[tuple[bytes, bytes]]
VERSION = 1

KEPT_HEADERS = frozenset(
    (
        b"content-type",
        b"content-language",
        b"content-disposition",
        b"content-location",
        b"location",
        b"etag",
        b"last-modified",
        b"link",
        b"deprecation",
        b"sunset",
        b"vary",
    )
)
"""What a replay may repeat. An allow-list: a header nobody thought of (a cookie, a token, a date) is left out."""

NEVER_KEPT = frozenset(
    (
        b"set-cookie",
        b"set-cookie2",
        b"cookie",
        b"authorization",
        b"proxy-authorization",
        b"authentication-info",
        b"proxy-authentication-info",
        b"www-authenticate",
        b"proxy-authenticate",
        b"connection",
        b"keep-alive",
        b"transfer-encoding",
        b"te",
        b"trailer",
        b"upgrade",
        b"date",
        b"content-length",
        b"age",
    )
)
"""What no configuration can add: credentials, hop-by-hop fields, and what the server computes anew."""

TRY_AGAIN = frozenset((408, 409, 425, 429))
"""Statuses that say "not now": nothing has happened, so the key stays free."""

NO_STORE = (b"cache-control", b"no-store")
REPLAYED = (b"idempotent-replayed", b"true")
UNPROTECTED = b"idempotency-unprotected"
"""Marks an answer that was made without protection, and why: no-principal, store-outage or not-recorded."""


class Answer(NamedTuple):
    """A whole response."""

    status: int
    headers: Headers
    body: bytes


class NotFinal(Exception):
    """The app answered, but the answer is no outcome; it goes to this caller only."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"the app answered {answer.status}")
        self.answer = answer


class TryAgain(NotFinal):
    """The app said "not now": nothing happened, the key is free."""


class ServerFault(NotFinal):
    """The app answered 5xx: whether something happened is what the operation's `unknown=` is about."""


def kept(answer: Answer, allowed: frozenset[bytes], *, body: bool = True) -> list[Any]:
    """What is stored of `answer`; without `body`, only what leads to the entity."""
    lines = "\n".join(
        [f"{name.decode('latin-1')}: {value.decode('latin-1')}" for name, value in answer.headers if name in allowed]
    )
    if not body:
        return [VERSION, answer.status, lines, "", 0]
    try:
        return [VERSION, answer.status, lines, answer.body.decode(), 0]
    except UnicodeDecodeError:
        return [VERSION, answer.status, lines, base64.b64encode(answer.body).decode(), 1]


def restored(value: list[Any]) -> Answer:
    """The answer that `kept` was given, with the allowed headers only."""
    _, status, lines, text, encoded = value
    headers = []
    for line in lines.split("\n") if lines else ():
        name, _, content = line.partition(": ")
        headers.append((name.encode("latin-1"), content.encode("latin-1")))
    return Answer(status, headers, base64.b64decode(text) if encoded else text.encode())


def replayed(value: list[Any]) -> Answer:
    """The answer to a repeat: what was kept, marked, not to be cached."""
    status, headers, body = restored(value)
    headers += ((b"content-length", b"%d" % len(body)), NO_STORE, REPLAYED)
    return Answer(status, headers, body)


def no_store(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The app's headers with its own caching words replaced: a shared cache must not keep a keyed answer."""
    marked = [pair for pair in headers if pair[0] != b"cache-control"]
    marked.append(NO_STORE)
    return marked


def lowered(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers with lower-case names, as ASGI asks and not every app does."""
    return [(bytes(name).lower(), bytes(value)) for name, value in headers]


def answer_with(status: int, content: Any = None, headers: dict[str, str] | None = None) -> list[Any]:
    """What an `unknown=` callable gives as Happened(…): the response that the lost attempt would have made."""
    named = {"content-type": "application/json"} | {name.lower(): text for name, text in (headers or {}).items()}
    body = "" if content is None else json.dumps(content)
    return [VERSION, status, "\n".join(f"{name}: {text}" for name, text in named.items()), body, 0]
