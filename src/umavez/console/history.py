"""Where the moments of a key's page come from: its record, its events and its messages; and what others tell of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from umavez.console.search import Search
from umavez.core.key import Key
from umavez.core.reconciliation import CANNOT_TELL
from umavez.core.record import Instant, Record
from umavez.core.telling.events import Process
from umavez.core.telling.history import Moment, Names, entries, moments, name_of
from umavez.core.telling.origin import Origin
from umavez.errors import ConfigurationError, InvalidKey, SchemaOutdated, StoreError
from umavez.messaging.inspection import Entry, Inspection
from umavez.sql.flow import Ask, SqlFlow
from umavez.stores import Chronicle, Provenance, Store

if TYPE_CHECKING:
    from umavez.console.books import Books

MOST_PROCESSES = 1000
"""Processes that a page knows by name."""
MOST_MESSAGES = 50
"""Messages of one key that its page shows."""
_ENDS = {"DONE": "message handed on", "DEAD": "message dead", "DISCARDED": "message discarded"}
_CLAIMS = frozenset({"began", "began anew", "retried", "taken over"})


class About(NamedTuple):
    """What is known of a record beside itself: the processes by name, its request, the message that it handles."""

    names: Names
    origin: Origin | None
    handled: Entry | None


class History(Protocol):
    """Where moments come from. The page draws what it gets; it is asked in a thread, and may look into a store."""

    def moments(self, record: Record, now: Instant) -> list[Moment]:
        """What is known of `record`, in any order."""
        ...


class RecordHistory:
    """What a record and the store's events tell: who claimed, failed, took over, decided, and came too late."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def moments(self, record: Record, now: Instant) -> list[Moment]:
        """The moments, the oldest first."""
        events = self._store.history(record.key) if isinstance(self._store, Chronicle) else []
        names = named(announced(self._store))
        return _traced(moments(record, now, events, names), origin_of(self._store, record), names)


def _traced(found: list[Moment], origin: Origin | None, names: Names) -> list[Moment]:
    """The moments, with what is known of the request at the last claim of whoever it came to."""
    if origin is None:
        return found
    who = name_of(origin.holder, names)
    claims = [place for place, one in enumerate(found) if one.what in _CLAIMS]
    theirs = [place for place in claims if found[place].who == who or (len(claims) == 1 and not found[place].who)]
    if not theirs:
        return found
    place, claim = theirs[-1], found[theirs[-1]]
    told = claim._replace(trace=claim.trace or origin.trace_id or "", detail=claim.detail or origin.request or "")
    return [*found[:place], told, *found[place + 1 :]]


class MessageHistory:
    """What became of the messages that a key's attempts wrote; for an inbox's record, of the one that it handles."""

    def __init__(self, books: Books) -> None:
        self._books = books

    def moments(self, record: Record, now: Instant) -> list[Moment]:
        """The moments, by message."""
        handled = handled_by(self._books, record)
        written = caused_by(self._books, record)
        return [moment for entry in [*([] if handled is None else [handled]), *written] for moment in _of(entry)]


def _of(entry: Entry) -> Iterator[Moment]:
    yield Moment(entry.created_at, "message written", "", entry.topic, message=entry.id)
    if entry.state in _ENDS and entry.done_at is not None:
        yield Moment(entry.done_at, _ENDS[entry.state], "", entry.error or entry.topic, message=entry.id)


def caused_by(books: Books, record: Record) -> list[Entry]:
    """The messages that attempts of `record` wrote, the oldest first; none where the store keeps no messages."""
    with suppress(ConfigurationError, SchemaOutdated):
        digest = record.key.digest.hex()
        return books.table(lambda sql: Inspection(sql.dialect).caused(digest, MOST_MESSAGES))
    return []


def handled_by(books: Books, record: Record) -> Entry | None:
    """The message whose handling `record` is: an inbox keeps it by the message's topic and id."""
    with suppress(ConfigurationError, SchemaOutdated):
        entry = books.table(lambda sql: Inspection(sql.dialect).entry(record.key.value))
        return entry if entry is not None and entry.topic == record.key.operation else None
    return None


def origin_of(store: Store, record: Record) -> Origin | None:
    """Where the claim of `record` came from, where the store keeps that."""
    return store.origin(record.key) if isinstance(store, Provenance) else None


def origins_of(books: Books, records: list[Record]) -> dict[bytes, Origin]:
    """Where the claims of `records` came from, by their digests; asked for at once where the store is a database."""
    store = books.engine.store
    if not isinstance(store, Provenance) or not records:
        return {}
    if books.tables is None:
        told = {record.key.digest: store.origin(record.key) for record in records}
    else:
        told = {}
        with suppress(StoreError):  # tables that are older than origins
            told = dict(books.table(lambda _: _originated([record.key.digest for record in records])))
    return {digest: origin for digest, origin in told.items() if origin is not None}


def _originated(digests: list[bytes]) -> SqlFlow[list[tuple[bytes, Origin | None]]]:
    places = ", ".join("?" for _ in digests)
    rows = yield Ask(f"SELECT digest, origin FROM idempotency_records WHERE digest IN ({places})", digests)  # noqa: S608  # question marks
    return [(bytes(digest), Origin.of(origin)) for digest, origin in rows]


def about_of(books: Books, record: Record) -> About:
    """What the store knows about `record` beside it."""
    store = books.engine.store
    return About(named(announced(store)), origin_of(store, record), handled_by(books, record))


def announced(store: Store, limit: int = MOST_PROCESSES) -> list[Process]:
    """The processes that hold claims, as far as the store knows them; the last seen first."""
    return store.processes(limit) if isinstance(store, Chronicle) else []


def by_host(store: Store, search: Search) -> Search:
    """`search`, with the processes whose host, or host and number, its holder is."""
    if search.holder is None:
        return search
    wanted = search.holder
    found = [each.prefix for each in announced(store) if wanted in (each.host, f"{each.host}/{each.pid}")]
    return replace(search, holders=tuple(f"{prefix}-" for prefix in found))


def named(known: list[Process]) -> Names:
    """The processes by the prefix of their stamps."""
    return {process.prefix: process for process in known}


def handlings(books: Books, entry: Entry) -> list[Record]:
    """The records of those who handled a message, as far as they subscribed here and have begun to."""

    def flow(_: Any) -> Any:
        return (yield Ask("SELECT subscriber FROM umavez_subscriptions WHERE topic = ? LIMIT 20", (entry.topic,)))

    found = []
    with suppress(ConfigurationError, SchemaOutdated, InvalidKey):
        for (subscriber,) in books.table(flow):
            record = books.engine.store.read(Key(subscriber, entry.topic, entry.id)).current
            found += [] if record is None else [record]
    return found


def told_by(histories: list[History], record: Record, now: Instant) -> list[Moment]:
    """The moments of all `histories`, in no order."""
    return [moment for history in histories for moment in history.moments(record, now)]


def questions(record: Record) -> list[dict[str, Any]]:
    """The entries about questions that the far side could not answer."""
    return [entry for entry in entries(record) if entry.get("what") == CANNOT_TELL]
