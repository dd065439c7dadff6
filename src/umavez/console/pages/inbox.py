"""The inbox: whatever may have happened and needs somebody."""

from __future__ import annotations

from typing import Any, NamedTuple

from starlette.responses import Response

from umavez.console.books import Books
from umavez.console.history import origins_of, questions
from umavez.console.looks import cursor, position
from umavez.console.search import quoted
from umavez.console.standing import policy_of
from umavez.console.together.notes import ASIDE, Note, notes
from umavez.console.visit import Visit
from umavez.core.lease import OPERATION as LEASE
from umavez.core.reconciliation import Pace
from umavez.core.record import Instant, Query, Record, Status
from umavez.core.telling.events import holder_of
from umavez.core.telling.origin import Origin
from umavez.core.telling.standing import state_of

INBOX = 100
CAUSES = (
    (
        "Ask now",
        "The far side is asked once. If it has it, its answer becomes the outcome; if it never did, the key is free.",
    ),
    (
        "It happened",
        "Everybody who repeats the key gets your answer, and nothing runs. If it did not happen, it never will.",
    ),
    (
        "It did not happen",
        "The key is free, and the next who repeats it runs it. If it did happen after all, it happens twice.",
    ),
)


class Item(NamedTuple):
    """A record in doubt, with what was asked about it."""

    record: Record
    state: str
    asked: int
    answer: str
    due: Instant | None
    note: Note | None
    origin: Origin | None
    earlier: bool
    """Whether the origin is that of a claim before the last one, which brought none."""


class Group(NamedTuple):
    """Records in doubt that look alike."""

    operation: str
    error: str
    policy: str
    asks: bool
    records: list[Item]
    search: str


class Doubtful(NamedTuple):
    """A page of the inbox as the store has it."""

    records: list[Record]
    now: Instant
    after: str
    notes: dict[str, Note]
    origins: dict[bytes, Origin]


async def unknown(visit: Visit) -> Response:
    """The inbox: whatever may have happened, grouped, the oldest first."""
    books = visit.desk.books
    after = position(visit.asked("after"))

    def look() -> Doubtful:
        found = books.page(Query(status=Status.UNKNOWN, limit=INBOX, after=after))
        gone = [] if after else books.page(Query(lapsed=True, limit=INBOX), _in_doubt(books)).records
        records = sorted(found.records + gone, key=lambda record: record.position)
        return Doubtful(records, found.now, cursor(found.after), notes(books), origins_of(books, records))

    records, now, following, noted, origins = await books.look(look)
    whose = visit.somebody.name if visit.asked("show") == "mine" else ""
    groups: dict[tuple[str, str], Group] = {}
    aside = 0
    for record in records:
        note = noted.get(record.key.digest.hex())
        hidden = note is not None and note.hides(record, now)
        aside += hidden
        if (hidden and visit.asked("show") != "all") or (whose and (note is None or note.to != whose)):
            continue
        name = (record.key.operation, record.error or "")
        if name not in groups:
            asks = policy_of(books, name[0]) == "the far side is asked"
            groups[name] = Group(*name, policy_of(books, name[0]), asks, [], _alike(*name, record))
        origin = origins.get(record.key.digest)
        groups[name].records.append(_item(record, now, note, origin, asks=groups[name].asks))
    return visit.page(
        "unknown.html",
        groups=list(groups.values()),
        now=now,
        after=following,
        causes=CAUSES,
        aside=aside,
        show=visit.asked("show"),
        hours=list(ASIDE),
    )


def _alike(operation: str, error: str, record: Record) -> str:
    """The search for records like these; their error by its beginning, as long as a search may be."""
    said = f' error:"{quoted(error[:200])}"' if error else ""
    status = "unknown" if record.status is Status.UNKNOWN else "lapsed"
    return f'status:{status} op:"{quoted(operation)}"{said}'


def _in_doubt(books: Books) -> Any:
    """Whether a record whose holder is gone needs somebody: a lease, or what is simply run again, does not."""

    def wanted(record: Record, _now: Instant) -> bool:
        return record.key.operation != LEASE and policy_of(books, record.key.operation) != "it is run again"

    return wanted


def _item(record: Record, now: Instant, note: Note | None, origin: Origin | None, *, asks: bool) -> Item:
    asked = questions(record)
    since = record.updated_at if record.status is Status.UNKNOWN else record.lease_until or record.updated_at
    answer = str(asked[-1].get("reason", "")) if asked else ""
    due = since + Pace().wait(len(asked)) if asks else None
    earlier = origin is not None and origin.holder != holder_of(record.stamp)
    return Item(record, state_of(record, now), len(asked), answer, due, note, origin, earlier)
