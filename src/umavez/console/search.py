"""Search: what an operator types, as a question to the store. Pure, and bounded whatever is typed.

    status:unknown op:charge scope:loja key:A-17 attempt:>1 age:>2h updated:<10m error:Timeout process:p-9 holder:web-3

Values may be quoted; `-status:` and `-op:` leave out. A bare word is a digest or its beginning, a key, a process
instance, a message, a token, or whatever a panel knows. The text is the URL, so that a search can be shared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from umavez.core.record import Instant, Millis, Query, Record, Status
from umavez.core.telling.standing import state_of
from umavez.errors import UmavezError

MOST_TEXT = 1000
MOST_TERMS = 20
FIELDS = ("status", "op", "scope", "key", "attempt", "age", "updated", "error", "process", "holder")
LAPSED = "lapsed"
"""A status that no record has: pending, and its holder gone."""

FAILING = ("failed", "refused")
"""What status:failed finds. Stores also keep free keys and tokens that wait as FAILED, and nobody has tried those."""

_TERM = re.compile(r'\s*(?:(-?)([a-z]+):)?(?:"((?:[^"\\]|\\.)*)"|([^\s"]\S*)|(?=\s|$))')
_BROKEN = re.compile(rf'-?(?:{"|".join(FIELDS)}):"')
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,9})([smhd])")
_NUMBER = re.compile(r"[0-9]{1,9}")
_DIGEST = re.compile(r"[0-9a-f]{8,64}")


class Unreadable(UmavezError, ValueError):
    """The search cannot be understood; the sentence says which part."""


class Comparison(NamedTuple):
    """A number with its sign: above, below, or exactly."""

    sign: str
    number: int

    def holds(self, number: int) -> bool:
        """Whether `number` stands as the sign says."""
        if self.sign == ">":
            return number > self.number
        return number < self.number if self.sign == "<" else number == self.number


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for. `words` are bare words; what the store cannot filter by is left to `wanted`."""

    text: str = ""
    status: Status | None = None
    lapsed: bool = False
    operation: str | None = None
    scope: str | None = None
    key: str | None = None
    process: str | None = None
    attempt: Comparison | None = None
    age: Comparison | None = None
    updated: Comparison | None = None
    error: str | None = None
    holder: str | None = None
    holders: tuple[str, ...] = ()
    """What the stamps of the processes begin with that `holder` is the host of, where somebody has looked that up."""
    not_status: frozenset[Status] = field(default_factory=frozenset)
    not_operation: frozenset[str] = field(default_factory=frozenset)
    words: tuple[str, ...] = ()

    @property
    def sifts(self) -> bool:
        """Whether some of what the store finds has to be left out afterwards."""
        own = (self.attempt, self.updated, self.error, self.holder)
        return (
            self.status is Status.FAILED
            or any(each is not None for each in own)
            or bool(self.not_status or self.not_operation)
        )

    @property
    def windowed(self) -> bool:
        """Whether no index leads to what is looked for, so that only a window of time keeps the look short."""
        led = self.age, self.key, self.process
        if any(each is not None for each in led) or self.lapsed or self.status is Status.UNKNOWN:
            return False
        return any(each is not None for each in (self.status, self.operation, self.scope))

    @property
    def alone(self) -> str | None:
        """The bare word, where nothing else is said."""
        return self.words[0] if len(self.words) == 1 and self == Search(self.text, words=self.words) else None

    def query(self, limit: int) -> Query:
        """The part that a store filters by, the newest first."""
        query = Query(self.scope, self.operation, self.key, self.process, self.status, limit=limit, newest_first=True)
        query = replace(query, lapsed=self.lapsed)
        if self.age is None:
            return query
        if self.age.sign == "<":
            return replace(query, newer_than=self.age.number)
        return replace(query, older_than=self.age.number)

    def wanted(self, record: Record, now: Instant) -> bool:
        """Whether the rest of what was said holds for `record`."""
        if record.status in self.not_status or record.key.operation in self.not_operation:
            return False
        if self.status is Status.FAILED and state_of(record, now) not in FAILING:
            return False
        if self.attempt is not None and not self.attempt.holds(record.attempt):
            return False
        if self.updated is not None and not self.updated.holds(now - record.updated_at):
            return False
        if self.holder is not None and not record.stamp.startswith((self.holder, *self.holders)):
            return False
        return self.error is None or self.error.casefold() in (record.error or "").casefold()


def parsed(text: str) -> Search:
    """The search that `text` says. Raises Unreadable, and nothing else, whatever the text."""
    if len(text) > MOST_TEXT or "\0" in text:
        raise Unreadable(f"A search has at most {MOST_TEXT} characters, and no NUL; shorten it.")
    search = Search(text.strip())
    for count, term in enumerate(_terms(text.strip())):
        if count == MOST_TERMS:
            raise Unreadable(f"A search has at most {MOST_TERMS} parts; leave some out.")
        search = _with(search, *term)
    if search.words and search.alone is None:
        raise Unreadable("A word alone stands by itself; name the fields of the others, as in key:A-17.")
    return search


def is_digest(word: str) -> bool:
    """Whether a word may be the beginning of a digest, as logs and traces print it."""
    return _DIGEST.fullmatch(word) is not None


def _terms(text: str) -> list[tuple[bool, str, str]]:
    """Each part of the text: whether it leaves out, its field ('' for a bare word), its value."""
    found, place = [], 0
    while place < len(text):
        term = _TERM.match(text, place)
        if term is None or term.end() == place:
            raise Unreadable(f"{text[place : place + 30]!r} cannot be read; close the quotation mark.")
        place = term.end()
        minus, name, quoted, plain = term.groups()
        value = re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if quoted is not None else plain
        if value is None and name is None:
            continue
        if name is None or name in FIELDS:
            found.append((bool(minus), name or "", _unbroken(value or "", quoted)))
        elif quoted is None:
            # A key such as urn:isbn:1 is a word of its own.
            found.append((False, "", f"{minus}{name}:{value or ''}"))
        else:
            raise Unreadable(f"{name[:30]}: is no field; known are {', '.join(FIELDS)}.")
    return found


def _unbroken(value: str, quoted: str | None) -> str:
    """`value`, unless it is a field whose quotation mark was not closed and that would pass for a word."""
    if quoted is None and _BROKEN.match(value):
        raise Unreadable(f"{value[:30]!r} cannot be read; close the quotation mark.")
    return value


def _with(search: Search, without: bool, name: str, value: str) -> Search:
    if not value:
        raise Unreadable(f"{name or 'A quoted word'} is empty; say what to look for, as in {name or 'key'}:A-17.")
    if not name:
        return replace(search, words=(*search.words, value))
    if without:
        return _leaving_out(search, name, value)
    if name == "status":
        return _of_status(search, value)
    if name in ("attempt", "age", "updated"):
        return replace(search, **{name: _comparison(name, value)})  # type: ignore[arg-type]  # those three are of one type
    column = {"op": "operation"}.get(name, name)
    return replace(search, **{column: value})  # type: ignore[arg-type]  # the other fields are texts


def _leaving_out(search: Search, name: str, value: str) -> Search:
    if name == "op":
        return replace(search, not_operation=search.not_operation | {value})
    if name == "status":
        return replace(search, not_status=search.not_status | {_status(value)})
    raise Unreadable(f"-{name}: is not known; only -status: and -op: leave something out.")


def _of_status(search: Search, value: str) -> Search:
    if value.casefold() == LAPSED:
        return replace(search, lapsed=True, status=None)
    return replace(search, status=_status(value), lapsed=False)


def _status(value: str) -> Status:
    try:
        return Status(value.upper())
    except ValueError:
        known = ", ".join(status.value.lower() for status in Status)
        raise Unreadable(f"{value[:30]!r} is no status; known are {known}, {LAPSED}.") from None


def _comparison(name: str, value: str) -> Comparison:
    sign = value[0] if value[0] in "<>" else "="
    rest = value.removeprefix(sign)
    if name == "attempt":
        if _NUMBER.fullmatch(rest):
            return Comparison(sign, int(rest))
        raise Unreadable("attempt: takes a number, as in attempt:>1.")
    duration = _DURATION.fullmatch(rest)
    if duration is None or sign == "=":
        raise Unreadable(f"{name}: takes < or > and a duration in s, m, h or d, as in {name}:>2h.")
    return Comparison(sign, _millis(duration))


def _millis(duration: re.Match[str]) -> Millis:
    # No further than stores can count back.
    return min(int(duration[1]) * _UNITS[duration[2]], 10**12)


def quoted(text: str) -> str:
    """`text` as it stands between the quotes of a value."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
