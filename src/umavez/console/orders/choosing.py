"""Bulk: one decision about many records, each by the stamp that was seen, and none that was not.

What was seen is written into the form: whole digests with a mark of each stamp. The order is a decision like any other,
and its record is the audit; it holds all that is needed to carry it out, so that whoever finds it half done goes on.
Each record is then a decision of its own, under a key made of the order's and its own: done twice, it is done once.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, NamedTuple

from umavez._sync.paging import pages
from umavez.console.books import Books
from umavez.console.decisions import SCOPE, Decisions, Deed, told_by
from umavez.console.history import by_host
from umavez.console.people import Who
from umavez.console.search import Search
from umavez.core.key import Key
from umavez.core.policy import Answer, NotHappened
from umavez.core.reconciliation import askable
from umavez.core.record import Instant, Record, Status
from umavez.core.resolution import AlreadySettled, NoSuchRecord, RecordChanged
from umavez.core.telling.standing import is_lease, token_state
from umavez.core.token import TokenState
from umavez.errors import ConfigurationError, OperationInProgress, UmavezError

FREE, HAPPENED = "not-happened", "happened"
MOST = 5_000
"""Records that one order may be about."""
MOST_WALKED = 50_000
MOST_TOLD = 20
"""Errors of single records that are kept."""
WINDOW = 30 * 86_400_000
_DIGEST, _MARK = 32, 8


class TooMany(UmavezError):
    """A search finds more than one order may be about."""


class Sight(NamedTuple):
    """What somebody saw: digests, each with a mark of the stamp that stood there."""

    seen: tuple[tuple[bytes, bytes], ...]

    @classmethod
    def of(cls, records: list[Record]) -> Sight:
        """What these records look like now."""
        return cls(tuple((record.key.digest, mark_of(record)) for record in records))

    @property
    def written(self) -> str:
        """As a form carries it."""
        return b64encode(b"".join(digest + mark for digest, mark in self.seen)).decode()

    @classmethod
    def read(cls, text: str) -> Sight:
        """What `written` wrote. Raises ConfigurationError."""
        size = _DIGEST + _MARK
        try:
            raw = b64decode(text, validate=True)
        except (ValueError, NotBase64):
            raw = b"?"
        if len(raw) % size or not 0 < len(raw) <= MOST * size:
            raise ConfigurationError("What was seen cannot be read; open the page again.")
        parts = [raw[place : place + size] for place in range(0, len(raw), size)]
        return cls(tuple((part[:_DIGEST], part[_DIGEST:]) for part in parts))


def mark_of(record: Record) -> bytes:
    """A mark of a record's stamp."""
    return sha256(record.stamp.encode()).digest()[:_MARK]


class Chosen(NamedTuple):
    """The records that a search finds and that may be decided about, at the store's `now`.

    `for_two` are left out: so many of those found are decided by two people, each on its own page.
    """

    records: list[Record]
    now: Instant
    for_two: int = 0


def chosen(books: Books, search: Search, action: str, before: Instant | None = None) -> Chosen:
    """What an order of `action` would be about; unchanged since `before`, where that is given.

    Raises TooMany, and ConfigurationError for a search that no order can be about.
    """
    refuse_unfit(search, action)
    now = books.now()
    search = by_host(books.engine.store, search)
    query = books.led(search.query(500))
    if search.windowed:
        query = replace(query, newer_than=WINDOW)
    found: list[Record] = []
    for_two = 0
    for walked, record in enumerate(each for page in pages(books.engine.store, query) for each in page):
        if walked >= MOST_WALKED or len(found) > MOST:
            raise TooMany(f"The search finds more than {MOST:,} records, or looks through too many; narrow it.")
        if (before is None or record.updated_at <= before) and search.wanted(record, now):
            fits = may_be_decided(record, now, action)
            for_two += fits and takes_two(books, record)
            found += [record] if fits and not takes_two(books, record) else []
    if len(found) > MOST:
        raise TooMany(f"The search finds more than {MOST:,} records; narrow it.")
    return Chosen(found, now, for_two)


def refuse_unfit(search: Search, action: str) -> None:
    """Raise ConfigurationError unless the search names what is in doubt, or has failed and is to be freed."""
    doubt = search.lapsed or search.status is Status.UNKNOWN
    if search.words or search.key is not None or not (doubt or (action == FREE and search.status is Status.FAILED)):
        raise ConfigurationError(
            "Many are decided about at once by status:unknown or status:lapsed, or status:failed to free them."
        )
    if action == HAPPENED and search.operation is None:
        raise ConfigurationError("One answer is for one operation: say which, as in op:charge.")


def may_be_decided(record: Record, now: Instant, action: str) -> bool:
    """Whether an order may close the record: not what has an outcome, a lease, a token or the console's own."""
    if record.settled is not None or is_lease(record) or record.key.scope == SCOPE:
        return False
    if token_state(record, now) is TokenState.UNUSED:
        return False
    failed = record.status is Status.FAILED and record.attempt > 0 and token_state(record, now) is None
    return askable(record, now) or (action == FREE and failed)


def takes_two(books: Books, record: Record) -> bool:
    """Whether its operation was declared to be decided by two people: here, or where the record was claimed."""
    plan = books.once.plans.declarations.get(record.key.operation)
    return record.takes_two or (plan is not None and plan.policy.four_eyes)


@dataclass(slots=True)
class Tally:
    """How far an order got."""

    total: int
    done: int = 0
    changed: int = 0
    failed: int = 0
    stopped: bool = False
    errors: list[list[str]] = field(default_factory=list)

    @property
    def rest(self) -> int:
        """How many were not looked at yet."""
        return self.total - self.done - self.changed - self.failed

    def written(self) -> dict[str, Any]:
        """As it is kept."""
        return {name: getattr(self, name) for name in ("total", "done", "changed", "failed", "stopped", "errors")}


class Order(NamedTuple):
    """Who decides what about which records, and why. `answer` is what the form said happened."""

    who: str
    address: str
    action: str
    search: str
    reason: str
    sight: Sight
    at: Instant
    answer: Mapping[str, str] = {}

    def written(self) -> dict[str, Any]:
        """As the audit keeps it."""
        return {**self._asdict(), "sight": self.sight.written, "answer": dict(self.answer)}

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> Order:
        """What `written` wrote."""
        return cls(**{**kept, "sight": Sight.read(kept["sight"])})


class Porter:
    """Carries an order out, record by record; to be called in a thread."""

    def __init__(self, books: Books, decisions: Decisions, name: str, order: Order) -> None:
        self._books = books
        self._decisions = decisions
        self._name = name
        self._order = order
        self.tally = Tally(len(order.sight.seen))

    def steps(self) -> Iterator[Tally]:
        """Decide about one record at a time; what was done before under this name is not done again."""
        for digest, mark in self._order.sight.seen:
            try:
                word = self._decided(digest, mark)
            except UmavezError as error:
                self.tally.failed += 1
                if len(self.tally.errors) < MOST_TOLD:
                    self.tally.errors.append([digest.hex(), str(error)[:300]])
            else:
                self.tally.done += word
                self.tally.changed += not word
            yield self.tally

    def _decided(self, digest: bytes, mark: bytes) -> bool:
        """Whether it is decided as ordered; False where the record is another than was seen."""
        form = f"{self._name}.{digest.hex()[:40]}"
        seen = self._books.digested(digest.hex())
        record = None if seen is None else seen.current
        if seen is None or record is None:
            return False
        if mark_of(record) != mark:
            return told_by(self._books, form) is not None
        order = self._order
        if takes_two(self._books, record) or not may_be_decided(record, seen.now, order.action):
            return False
        who = Who(order.who, frozenset())
        deed = Deed(
            who,
            order.address,
            order.action,
            form,
            digest.hex(),
            record.stamp,
            order.reason,
            record.key,
            {"bulk": self._name},
        )
        try:
            self._decisions.resolve(deed, self._answer(record.key))
        except (RecordChanged, AlreadySettled, NoSuchRecord, OperationInProgress):
            return False
        return True

    def _answer(self, key: Key) -> Answer:
        if self._order.action == FREE:
            return NotHappened()
        return self._decisions.answer(key, self._order.answer)


def ordered(books: Books, name: str) -> Order | None:
    """The order of this name, as the audit keeps it."""
    told = told_by(books, name)
    return Order.read(told["order"]) if told and "order" in told else None


def place_order(decisions: Decisions, deed: Deed, order: Order) -> None:
    """Keep the order in the audit, once. Raises KeyReused for a form that was sent with other content."""
    decisions.carry_out(deed._replace(order=order.written()), lambda _: f"{len(order.sight.seen)} records")
