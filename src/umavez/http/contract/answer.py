"""Answers: what of a response is final, what is kept of it, and what a replay is made of.

Kept is a flat list of plain values, so that any codec of the engine (a sealing one too) can hold it. `Kept` names
them, and nobody else knows their order.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple

from umavez.errors import NotStorable

Headers = list[tuple[bytes, bytes]]
VERSION = 1

KEPT_HEADERS = frozenset(
    (
        b"content-type",
        b"content-encoding",
        b"content-language",
        b"content-disposition",
        b"content-location",
        b"allow",
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

BODILESS = frozenset((204, 304))
"""Statuses whose responses end with their headers; a length of another's body would be a lie, or is forbidden."""

NO_STORE = (b"cache-control", b"no-store")
REPLAYED = (b"idempotent-replayed", b"true")
UNPROTECTED = b"idempotency-unprotected"
"""Marks an answer that was made without protection, and why: no-principal, store-outage or not-recorded."""


_REQUEST = re.compile(r"[A-Z]+ (?:/|\*$)")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\xa0-\xff]*")


class Answer(NamedTuple):
    """A whole response."""

    status: int
    headers: Headers
    body: bytes


class Form(IntEnum):
    """What the text of a kept answer is."""

    TEXT = 0
    BASE64 = 1
    STREAMED = 2
    """Nothing: the body went out unkept. It happened, and cannot be repeated."""
    BY_REFERENCE = 3
    """Nothing: the answer only says where its entity is."""


class Kept(NamedTuple):
    """A stored answer, in the order in which it is stored."""

    version: int
    status: int
    lines: str
    text: str
    form: int

    def stored(self) -> list[Any]:
        """The plain values, for a codec."""
        return [*self[:-1], int(self.form)]


class NotFinal(Exception):
    """The app answered, but the answer is no outcome; it goes to this caller only."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"the app answered {answer.status}")
        self.answer = answer


class TryAgain(NotFinal):
    """The app said "not now": nothing happened, the key is free."""


class ServerFault(NotFinal):
    """The app answered 5xx: whether something happened is what the operation's `unknown=` is about."""


def kept(answer: Answer, allowed: frozenset[bytes], form: Form = Form.TEXT) -> list[Any]:
    """What is stored of `answer`: of a `form` without text, only what leads to the entity.

    A header with a line break is left out. Servers refuse to send one; kept, it would come back as several.
    """
    lines = "\n".join(
        [
            f"{name.decode('latin-1')}: {value.decode('latin-1')}"
            for name, value in answer.headers
            if name in allowed and b"\n" not in value and b"\r" not in value
        ]
    )
    if form is not Form.TEXT:
        return Kept(VERSION, answer.status, lines, "", form).stored()
    try:
        return Kept(VERSION, answer.status, lines, answer.body.decode(), form).stored()
    except UnicodeDecodeError:
        return Kept(VERSION, answer.status, lines, base64.b64encode(answer.body).decode(), Form.BASE64).stored()


def restored(value: list[Any]) -> Answer:
    """The answer that `kept` was given, with the allowed headers only."""
    kept = Kept(*value)
    headers = []
    for line in kept.lines.split("\n") if kept.lines else ():
        name, _, content = line.partition(": ")
        headers.append((name.encode("latin-1"), content.encode("latin-1")))
    body = base64.b64decode(kept.text) if kept.form == Form.BASE64 else kept.text.encode()
    return Answer(kept.status, headers, body)


def replayed(value: list[Any]) -> Answer:
    """The answer to a repeat: what was kept, marked, not to be cached."""
    return marked(restored(value))


def marked(answer: Answer) -> Answer:
    """A repeat's answer, given its marks, and its length where its status has one: RFC 9110, 8.6."""
    status, headers, body = answer
    if status in BODILESS:
        headers.extend((NO_STORE, REPLAYED))
        return Answer(status, headers, b"")
    headers.extend(((b"content-length", b"%d" % len(body)), NO_STORE, REPLAYED))
    return answer


def replay_marks(replayed: bool) -> dict[str, str]:
    """The headers of an answer to a keyed request: no cache keeps it, and a replay says that it is one."""
    marks = {"Cache-Control": "no-store"}
    if replayed:
        marks["Idempotent-Replayed"] = "true"
    return marks


def no_store(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The app's headers with its own caching words replaced: a shared cache must not keep a keyed answer."""
    marked = [pair for pair in headers if pair[0] != b"cache-control"]
    marked.append(NO_STORE)
    return marked


def lowered(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers with lower-case names, as ASGI asks and not every app does."""
    return [(bytes(name).lower(), bytes(value)) for name, value in headers]


def is_request(operation: str) -> bool:
    """Whether an operation's name is that of an HTTP request: a method and a path."""
    return _REQUEST.match(operation) is not None


def check(value: Any) -> None:
    """Raise NotStorable for a value that is no answer in the stored form: a repeat could not be answered with it."""
    if not isinstance(value, list) or len(value) != 5 or value[0] != VERSION:
        raise NotStorable("An HTTP outcome is a response; make it with umavez.http.answer_with(status, content).")
    _, status, lines, text, mark = value
    if type(status) is not int or not 200 <= status <= 599:
        raise NotStorable("The status of an HTTP outcome is a number from 200 to 599; give the one that was meant.")
    if not isinstance(lines, str) or not isinstance(text, str) or mark not in (0, 1, 2, 3):
        raise NotStorable("The headers and the body of an HTTP outcome are text; make it with umavez.http.answer_with.")
    for line in lines.split("\n") if lines else ():
        _check_header(line)
    try:
        base64.b64decode(text, validate=True) if mark == 1 else text.encode()
    except ValueError as error:
        raise NotStorable("The body of an HTTP outcome cannot be sent as it is; give text or base64.") from error


def _check_header(line: str) -> None:
    name = line.partition(":")[0]
    if _HEADER.fullmatch(line) is None:
        raise NotStorable(f"{line[:60]!r} is no header; write it as name: value, without line breaks.")
    if name.lower().encode() in NEVER_KEPT:
        raise NotStorable(f"{name} is never replayed, since it is a credential or made anew each time; leave it out.")


def answer_by_decision(status: int, body: str, headers: Iterable[str]) -> list[Any]:
    """The stored form of a response that somebody decided on. Raises NotStorable where it could not be replayed."""
    lines = [f"{name.strip().lower()}: {text.strip()}" for name, _, text in (line.partition(":") for line in headers)]
    for line in lines:  # each by itself: a line break in one must not make two of it
        _check_header(line)
    if body and not any(line.startswith("content-type:") for line in lines):
        lines.insert(0, f"content-type: {'application/json' if _is_json(body) else 'text/plain; charset=utf-8'}")
    value = [VERSION, status, "\n".join(lines), body, 0]
    check(value)
    return value


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def answer_with(status: int, content: Any = None, headers: dict[str, str] | None = None) -> list[Any]:
    """What an `unknown=` callable gives as Happened(…): the response that the lost attempt would have made.

    Raises NotStorable for a header that could not be replayed.
    """
    named = {"content-type": "application/json"} | {name.lower(): text for name, text in (headers or {}).items()}
    body = "" if content is None else json.dumps(content)
    lines = [f"{name}: {text}" for name, text in named.items()]
    for line in lines:
        _check_header(line)
    return Kept(VERSION, status, "\n".join(lines), body, Form.TEXT).stored()
