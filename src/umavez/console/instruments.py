"""Pages about messages, leases, tokens, sequences, processes, and what was decided."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple

from starlette.responses import Response, StreamingResponse

from umavez.console.books import MOST_FOUND, PAGE, Books, Count, Found, counting
from umavez.console.decisions import Audit, month_of
from umavez.console.history import announced, handlings, named
from umavez.console.looks import cursor, human, moment, position
from umavez.console.pages.record import NOTICES
from umavez.console.visit import Refused, Visit
from umavez.core.lease import OPERATION as LEASE
from umavez.core.record import Instant, Position, Query, Record
from umavez.core.telling.events import Process, holder_of, prefix_of
from umavez.core.telling.history import SILENT, name_of
from umavez.core.telling.standing import is_lease, state_of, token_state
from umavez.core.token import expiry
from umavez.errors import ConfigurationError, SchemaOutdated
from umavez.messaging.inspection import BLOCKED_COUNTED, STATES, Entry, Inspection
from umavez.sequences.ranges import ENDLESS
from umavez.sequences.standing import Standing, standings
from umavez.sql.flow import Ask, SqlFlow

MOST_ENTRIES = 100
MOST_SERIES = 200
EXPORTED = 1_000
"""Decisions that an export asks for at once."""
MOST_ID = 255
MOST_HOLDERS = 200
DAYS = 7
_FORMULA = re.compile(
    "(?:^|(?<=[;\t\r\n]))(?=[=+@\t\r\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}"
    "\N{FULLWIDTH COMMERCIAL AT}\N{FULLWIDTH HYPHEN-MINUS}-])"
)
"""Before what begins a formula, where a cell may begin."""
_MONTH = re.compile(r"20[0-9]{2}-(0[1-9]|1[0-2])")


async def messages(visit: Visit) -> Response:
    """The outbox, or the deliveries of one subscriber."""
    subscriber, state = visit.asked("subscriber")[:MOST_ID], visit.asked("state").upper()
    wanted = state if state in STATES else None
    topic = visit.asked("topic")[:MOST_ID].replace("\0", "")
    books = visit.desk.books

    def flow(sql: Any) -> SqlFlow[Any]:
        look = Inspection(sql.dialect, subscriber or None)
        entries = yield from look.entries(wanted, topic or None, MOST_ENTRIES)
        lag = yield from look.lag()
        counts: dict[str, Count] = {}
        for each in STATES:
            counts[each] = yield from _in_state(each, subscriber)
        names = yield Ask("SELECT DISTINCT subscriber FROM umavez_subscriptions ORDER BY subscriber LIMIT 50")
        blocked = yield from look.blocked()
        return entries, lag, list(counts.items()), [name for (name,) in names], blocked

    entries, lag, counts, names, blocked = await _looked(books, flow)
    return visit.page(
        "messages.html",
        entries=entries,
        counts=counts,
        lag_ms=int(lag.seconds * 1000),
        queues=[("", ""), *((name, name) for name in names)],
        subscriber=subscriber,
        state=wanted or "",
        topic=topic,
        blocked=blocked,
        most_blocked=BLOCKED_COUNTED,
        now=await books.look(books.now),
        most=MOST_ENTRIES,
        notice=NOTICES.get(visit.asked("done"), ""),
    )


def _in_state(state: str, subscriber: str) -> SqlFlow[Count]:
    if subscriber:
        return counting("state = ? AND subscriber = ?", "umavez_deliveries", (state, subscriber))
    return counting("state = ?", "umavez_outbox", (state,))


async def _looked(books: Books, flow: Any) -> Any:
    """What a flow finds; a sentence where this store has no such tables."""
    try:
        return await books.look(lambda: books.table(flow))
    except SchemaOutdated:
        raise Refused("The tables are not there yet; make them with: umavez migrate.", 404) from None
    except ConfigurationError as error:
        raise Refused(str(error), 404) from error


async def entry_of(visit: Visit) -> Entry:
    """The message that the address names. Raises Refused."""
    name, subscriber = visit.asked("id")[:MOST_ID], visit.asked("subscriber")[:MOST_ID]

    def flow(sql: Any) -> SqlFlow[Entry | None]:
        return Inspection(sql.dialect, subscriber or None).entry(name)

    entry: Entry | None = await _looked(visit.desk.books, flow)
    if entry is None:
        raise Refused("There is no such message.", 404)
    return entry


def stamp_of(entry: Entry) -> str:
    """A mark of the message as it stands: rows of messages have no stamp of their own."""
    told = (entry.id, entry.state, entry.attempts, entry.due_at, entry.done_at, entry.error)
    return sha256(repr(told).encode("utf-8", "replace")).hexdigest()[:32]


async def message(visit: Visit) -> Response:
    """One message, without its body."""
    entry = await entry_of(visit)
    told = [
        ("Topic", entry.topic),
        ("Aggregate", entry.aggregate),
        ("Attempt", str(entry.attempts)),
        ("Began", moment(entry.created_at)),
        ("Due", moment(entry.due_at)),
        ("Over", moment(entry.done_at)),
        ("Error", entry.error),
    ]
    fields = [(name, value) for name, value in told if value]
    subscriber = visit.asked("subscriber")
    books = visit.desk.books
    handled = await books.look(lambda: handlings(books, entry))
    now = await books.look(books.now)
    return visit.page(
        "message.html",
        entry=entry,
        fields=fields,
        subscriber=subscriber,
        stamp=stamp_of(entry),
        handled=[(record, state_of(record, now)) for record in handled],
        now=now,
    )


async def leases(visit: Visit) -> Response:
    """Named leases: who may work on what. Those that were given back too, where a number of days is asked for."""
    asked = visit.asked("days")
    days = min(max(int(asked), 1), 3650) if asked.isascii() and asked.isdigit() and len(asked) < 6 else 0
    books = visit.desk.books
    if days and not books.walks:
        query = Query(
            operation=LEASE,
            newest_first=True,
            limit=PAGE,
            after=position(visit.asked("after")),
            newer_than=days * 86_400_000,
        )
        found = await books.look(lambda: books.page(query, lambda record, _: is_lease(record)))
        records, now, after = found.records, found.now, cursor(found.after)
    else:
        records, now = await books.look(lambda: books.leased(LEASE, PAGE))
        records, after = [record for record in records if is_lease(record)], ""
    return visit.page(
        "leases.html",
        records=records,
        now=now,
        after=after,
        days=str(days or ""),
        window=human(visit.lang, days * 86_400_000) if days else "",
        state=lambda record: state_of(record, now),
    )


async def tokens(visit: Visit) -> Response:
    """Confirmation tokens of an owner or for a purpose. Tokens themselves are stored nowhere."""
    owner, purpose = visit.asked("owner")[:MOST_ID], visit.asked("purpose")[:MOST_ID]
    window = DAYS * 86_400_000
    rows: list[tuple[Record, str, Instant]] = []
    books = visit.desk.books
    now = await books.look(books.now)
    if purpose and not owner:
        window = await books.look(lambda: books.reach(window))
    if owner or purpose:
        query = Query(
            operation=purpose or None,
            process_instance=owner or None,
            newest_first=True,
            limit=PAGE,
            newer_than=None if owner else window,
        )
        found = await books.look(lambda: books.page(query, lambda record, at: token_state(record, at) is not None))
        now = found.now
        rows = [(record, state_of(record, now), expiry(record)) for record in found.records]
    return visit.page("tokens.html", owner=owner, purpose=purpose, rows=rows, now=now, window=human(visit.lang, window))


async def sequences(visit: Visit) -> Response:
    """Series of numbers, with what is left of them."""
    found: list[Standing] = await _looked(visit.desk.books, lambda _: standings(None, None, MOST_SERIES))
    return visit.page("sequences.html", standings=found, endless=ENDLESS)


class Holder(NamedTuple):
    """A line of the page. `process` is None for one that holds claims and was never announced."""

    name: str
    process: Process | None
    alive: bool | None
    held: Count
    lapsed: int


async def processes(visit: Visit) -> Response:
    """Every process that was announced, the last seen first, and those that hold claims without a name."""
    books = visit.desk.books
    holders, now = await books.look(lambda: _holders(books))
    return visit.page("processes.html", holders=holders, now=now, most=MOST_FOUND, silent=SILENT)


def _holders(books: Books) -> tuple[list[Holder], Instant]:
    store = books.engine.store
    known = named(announced(store, MOST_HOLDERS))
    stamps = books.held(MOST_FOUND + 1)
    now = books.now()
    held = Counter(prefix_of(holder_of(stamp)) for stamp in stamps)
    over = store.find(Query(lapsed=True, limit=MOST_FOUND))
    lapsed = Counter(prefix_of(holder_of(record.stamp)) for record in over)
    more = len(stamps) > MOST_FOUND
    nameless = [prefix for prefix, _ in held.most_common(MOST_HOLDERS) if prefix not in known]
    found = [
        Holder(
            name_of(prefix, known) if prefix not in known else f"{known[prefix].host}/{known[prefix].pid}",
            known.get(prefix),
            None if prefix not in known else now - known[prefix].seen_at < SILENT,
            Count(held[prefix], more),
            lapsed[prefix],
        )
        for prefix in [*known, *nameless]
    ]
    return found, now


async def decisions(visit: Visit) -> Response:
    """The audit of a month, the newest first."""
    month, instance = _month(visit)
    books, kept = visit.desk.books, visit.desk.decisions
    after = position(visit.asked("after"))
    (audits, found), joins = await books.look(lambda: (kept.audits(instance, after, PAGE), kept.joins))
    how = (
        "Each decision is written in one transaction with what was decided."
        if joins
        else "This store cannot join: a decision is claimed before it is carried out and settled after it."
    )
    return visit.page(
        "decisions.html",
        audits=audits,
        month=month,
        before=_before(month),
        after=cursor(found.after),
        how=how,
    )


def _month(visit: Visit) -> tuple[str, str]:
    asked = visit.asked("month")
    month = asked if _MONTH.fullmatch(asked) else f"{datetime.now(UTC):%Y-%m}"
    return month, month_of(datetime(int(month[:4]), int(month[5:]), 1, tzinfo=UTC))


def _before(month: str) -> str:
    year, number = int(month[:4]), int(month[5:])
    return f"{year - 1}-12" if number == 1 else f"{year}-{number - 1:02}"


_COLUMNS = (
    "who", "address", "action", "result", "scope", "operation", "key", "subject", "reason", "before", "after",
)  # fmt: skip


async def decisions_csv(visit: Visit) -> Response:
    """The audit of a month as CSV, the newest first: all of it, a bulk's thousands of decisions, too."""
    month, instance = _month(visit)
    first = await _exported(visit, instance, None)
    headers = {"Content-Disposition": f'attachment; filename="decisions-{month}.csv"'}
    return StreamingResponse(_lines(visit, instance, first), media_type="text/csv", headers=headers)


async def _exported(visit: Visit, instance: str, after: Position | None) -> tuple[list[Audit], Found]:
    return await visit.desk.books.look(lambda: visit.desk.decisions.audits(instance, after, EXPORTED))


async def _lines(visit: Visit, instance: str, some: tuple[list[Audit], Found]) -> AsyncIterator[str]:
    """The lines of a month, some at a time. Where the store fails amid them the answer breaks off: it is no whole."""
    yield _line(("at", *_COLUMNS))
    while True:
        audits, found = some
        yield "".join(_line((moment(audit.at), *map(audit.told.get, _COLUMNS))) for audit in audits)
        if found.after is None:
            return
        some = await _exported(visit, instance, found.after)


def _line(values: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text).writerow([cell(value) for value in values])
    return text.getvalue()


def cell(value: object) -> str:
    """A cell that no spreadsheet takes for a formula, whatever a stranger wrote, and wherever it parts the line.

    Spreadsheets of half the world, Brazil's among them, part lines at semicolons, and mind no quotes within a cell.
    """
    return _FORMULA.sub("'", "" if value is None else str(value))
