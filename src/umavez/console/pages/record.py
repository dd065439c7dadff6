"""Pages that only look: the overview, the inbox of what is unknown, the search, and one key."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

from umavez.console.books import LOOKED_AT, PAGE, Books, Count
from umavez.console.charts.pages import hour_of
from umavez.console.history import About, about_of, drawn, questions
from umavez.console.looks import ago, cursor, human, position
from umavez.console.orders.choosing import FREE, HAPPENED, refuse_unfit
from umavez.console.panels import LOG, Link, Panel, safe_page
from umavez.console.search import Search, Unreadable, parsed, quoted
from umavez.console.standing import (
    MEANINGS,
    acts_on,
    column_of,
    command_line,
    fields_of,
    policy_of,
    private_of,
)
from umavez.console.together.eyes import proposal_of
from umavez.console.together.notes import ASIDE, Note, notes
from umavez.console.visit import Visit
from umavez.core.flow import Seen
from umavez.core.key import Key
from umavez.core.lease import OPERATION as LEASE
from umavez.core.reconciliation import Pace
from umavez.core.record import Instant, Query, Record, Status
from umavez.core.resolution import NoSuchRecord
from umavez.core.telling.standing import state_of
from umavez.errors import ConfigurationError

NEWEST = 200
MOST_OPERATIONS = 200
INBOX = 100
DAY = 86_400_000
WINDOWS = ("1", "30", "3650")
"""Days that a search looks back in which no index leads to the records; each is one click wider than the last."""
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
NOTICES = {
    "happened": "Done: it is recorded as happened, and every repeat gets this answer.",
    "freed": "Done: the key is free, and the next who repeats it runs it.",
    "cancelled": "Done: the token can no longer be used.",
    "adopted": "The far side has it: its answer is the outcome.",
    "left": "The far side could not tell; it stays unknown.",
    "exhausted": "The far side never did it, and no retry is left.",
    "reran": "The far side never did it, and it was run again.",
    "running": "The far side never did it, and it runs again now.",
    "waiting": "Done: the message waits for its turn again.",
    "discarded": "Done: the message is given up.",
    "proposed": "Proposed: it is done when a second person agrees within 15 minutes.",
    "again": "This form had been sent already; nothing was done twice.",
}
"""What a page says about the form that led to it."""


class Number(NamedTuple):
    """A square of the overview with a number that leads to what it counts."""

    name: str
    total: Count
    href: str
    tone: str
    age: str = ""


class Operation(NamedTuple):
    """A line of the overview."""

    name: str
    search: str
    policy: str
    counts: Counter[str]
    newest: Instant | None


class Item(NamedTuple):
    """A record in doubt, with what was asked about it."""

    record: Record
    state: str
    asked: int
    answer: str
    due: Instant | None
    note: Note | None


class Group(NamedTuple):
    """Records in doubt that look alike."""

    operation: str
    error: str
    policy: str
    asks: bool
    records: list[Item]
    search: str


async def overview(visit: Visit) -> Response:
    """What stands in the store, in a few numbers, and what each system says."""
    books = visit.desk.books
    newest = await books.kept("newest", lambda: books.newest(NEWEST))
    now = await books.look(books.now)
    failed = await books.kept("failed", lambda: books.number("failed"))
    oldest = await books.kept("oldest", lambda: books.engine.store.find(Query(status=Status.UNKNOWN, limit=1)))
    tiles, late = await _tiles(visit)
    pulse = visit.desk.pulse
    unknown, lapsed = (Count(None), Count(None)) if pulse is None else (pulse.unknown, pulse.lapsed)
    age = ago(visit.lang, oldest[0].created_at, now) if oldest else ""
    numbers = [
        Number("unknown", unknown, "/unknown", "unknown" if unknown.number else "", age),
        Number("holder gone", lapsed, "/records?q=status%3Alapsed", "lapsed" if lapsed.number else ""),
        Number("failed, begun within the hour", failed, "/records?q=status%3Afailed+age%3A%3C1h", ""),
    ]
    hour = await hour_of(visit)
    return visit.page(
        "overview.html",
        numbers=numbers,
        tiles=tiles,
        late=late,
        operations=_operations(books, newest, now, [] if hour is None else list(hour.paces)),
        looked_at=len(newest),
        now=now,
        hour=hour,
    )


async def _tiles(visit: Visit) -> tuple[list[Any], list[str]]:
    """What the panels show, and the names of those that could not."""
    tiles, late = [], []
    books = visit.desk.books
    for panel in visit.desk.panels:
        try:
            tile = await books.kept(f"tile {panel.name}", panel.tile)
        except Exception as error:  # noqa: BLE001  # a system's trouble is its own, and is said beside the others
            LOG.warning("The panel %s failed (%s)", panel.name, type(error).__name__)
            late.append(panel.name)
            continue
        if tile is not None:
            tiles.append(tile._replace(page=safe_page(tile.page)))
    return tiles, late


def _operations(books: Books, newest: list[Record], now: Instant, counted: list[str]) -> list[Operation]:
    counts: dict[str, Counter[str]] = {name: Counter() for name in (*books.once.plans.declarations, *counted)}
    seen: dict[str, Instant] = {}
    for record in newest:
        name = record.key.operation
        counts.setdefault(name, Counter())[column_of(record, now)] += 1
        seen.setdefault(name, record.created_at)
    return [
        Operation(name, f'op:"{quoted(name)}"', policy_of(books, name), counts[name], seen.get(name))
        for name in sorted(counts)[:MOST_OPERATIONS]
    ]


async def unknown(visit: Visit) -> Response:
    """The inbox: whatever may have happened, grouped, the oldest first."""
    books = visit.desk.books
    after = position(visit.asked("after"))

    def look() -> tuple[list[Record], Instant, str, dict[str, Note]]:
        found = books.page(Query(status=Status.UNKNOWN, limit=INBOX, after=after))
        gone = [] if after else books.page(Query(lapsed=True, limit=INBOX), _in_doubt(books)).records
        records = sorted(found.records + gone, key=lambda record: record.position)
        return records, found.now, cursor(found.after), notes(books)

    records, now, following, noted = await books.look(look)
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
        groups[name].records.append(_item(record, now, note, asks=groups[name].asks))
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


def _bulk_of(search: Search) -> set[str]:
    """What may be decided about all records that a search finds."""
    found = set()
    for action in (FREE, HAPPENED):
        with suppress(ConfigurationError):
            refuse_unfit(search, action)
            found.add(action)
    return found


def _in_doubt(books: Books) -> Any:
    """Whether a record whose holder is gone needs somebody: a lease, or what is simply run again, does not."""

    def wanted(record: Record, _now: Instant) -> bool:
        return record.key.operation != LEASE and policy_of(books, record.key.operation) != "it is run again"

    return wanted


def _item(record: Record, now: Instant, note: Note | None, *, asks: bool) -> Item:
    asked = questions(record)
    since = record.updated_at if record.status is Status.UNKNOWN else record.lease_until or record.updated_at
    answer = str(asked[-1].get("reason", "")) if asked else ""
    due = since + Pace().wait(len(asked)) if asks else None
    return Item(record, state_of(record, now), len(asked), answer, due, note)


async def records(visit: Visit) -> Response:
    """The search."""
    text = visit.asked("q")
    try:
        search = parsed(text)
    except Unreadable as complaint:
        return await _listed(visit, Search(text[:1000]), str(complaint))
    if search.alone is not None:
        return await _by_word(visit, search, search.alone)
    return await _listed(visit, search)


async def _listed(visit: Visit, search: Search, complaint: str = "") -> Response:
    books = visit.desk.books
    after = position(visit.asked("after"))
    days = visit.asked("days") if visit.asked("days") in WINDOWS else ""
    window = int(days or WINDOWS[0]) * DAY
    if search.windowed and not days and not complaint:
        window = await books.look(lambda: books.reach(DAY))
    days = days or (WINDOWS[0] if window == DAY else "")
    found = await books.look(lambda: books.found(Search() if complaint else search, after, window))
    if search.key is not None and (search.scope is None or search.operation is None):
        told = visit.t("Looked for under {number} known pairs of scope and operation.", number=found.looked_at)
    else:
        told = visit.t("Looked through {number} records, the newest first.", number=found.looked_at)
    wider = ""
    if search.windowed and not complaint:
        told = f"{visit.t('Begun within {time}.', time=human(visit.lang, window))} {told}"
        wider = next((each for each in WINDOWS if int(each) * DAY > window), "")
    if found.after is not None and found.looked_at >= LOOKED_AT:
        told += " " + visit.t("There may be more: go on with the older ones.")
    return visit.page(
        "records.html",
        400 if complaint else 200,
        q=search.text,
        records=found.records,
        now=found.now,
        after=cursor(found.after),
        complaint=complaint,
        scope_of_search=told,
        days=days,
        wider=wider,
        links=[],
        bulk=set() if complaint else _bulk_of(search),
        state=lambda record: state_of(record, found.now),
    )


async def _by_word(visit: Visit, search: Search, word: str) -> Response:
    books = visit.desk.books
    found, now = await books.look(lambda: (books.word(word), books.now()))
    links = await _links(visit, lambda panel: panel.find(word))
    if await books.look(lambda: books.is_message(word)):
        links.insert(0, Link(f"{visit.t('Message')} {word}", f"{visit.base}/message?{urlencode({'id': word})}"))
    if len(found) == 1 and not links:
        return visit.to(visit.of(found[0]))
    told = visit.t(
        "Looked for as a digest, a key under {number} pairs, a process instance and a token.",
        number=len(await books.look(books.pairs)),
    )
    return visit.page(
        "records.html",
        q=search.text,
        records=found,
        now=now,
        after="",
        complaint="",
        scope_of_search=told,
        days="",
        wider="",
        links=links,
        bulk=set(),
        state=lambda record: state_of(record, now),
    )


async def _links(visit: Visit, ask: Any) -> list[Link]:
    """What the panels lead to; one that fails leads nowhere."""
    links: list[Link] = []
    for panel in visit.desk.panels:
        try:
            found = await visit.desk.books.look(lambda panel=panel: list(ask(panel))[:PAGE])  # type: ignore[misc]  # bound now
        except Exception as error:  # noqa: BLE001  # the same
            LOG.warning("The panel %s failed (%s)", panel.name, type(error).__name__)
            continue
        links += [link for link in found if safe_page(link.page)]
    return links


def _to_messages(visit: Visit, about: About) -> list[Link]:
    """The message that the record is the handling of, and the record that wrote it."""
    entry = about.handled
    if entry is None:
        return []
    found = [Link(f"{visit.t('Message')} {entry.id}", f"{visit.base}/message?{urlencode({'id': entry.id})}")]
    if entry.cause:
        found.append(Link(visit.t("The record that wrote this message"), f"{visit.base}/records/{entry.cause}"))
    return found


async def record(visit: Visit) -> Response:
    """One key."""
    seen = await seen_at(visit)
    return await shown(visit, seen)


async def seen_at(visit: Visit) -> Seen:
    """The record that the address names, with the store's time. Raises NoSuchRecord."""
    digest = visit.request.path_params["digest"]
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise NoSuchRecord(Key("?", "record", digest[:64] or "?"))
    books = visit.desk.books
    seen = await books.look(lambda: books.digested(digest))
    if seen is None or seen.current is None:
        raise NoSuchRecord(Key("?", "record", digest))
    return seen


async def shown(visit: Visit, seen: Seen, *, revealed: bool = False) -> Response:
    """The page of a record; its private texts only where somebody was allowed to reveal them."""
    record, now = seen.current, seen.now
    if record is None:
        raise NoSuchRecord(Key("?", "record", visit.request.path_params["digest"]))
    books = visit.desk.books

    def ask(panel: Panel) -> Any:
        return panel.links(record)

    left = (record.lease_until or 0) - now
    plan = books.once.plans.declarations.get(record.key.operation)
    lease = {"left": left, "of": max(left, plan.policy.lease_ms if plan else 30_000)}
    state = state_of(record, now)
    about = await books.look(lambda: about_of(books, record))
    return visit.page(
        "record.html",
        record=record,
        now=now,
        digest=record.key.digest.hex(),
        state=state,
        meaning=MEANINGS.get(state, "It stands as the record says."),
        notice=NOTICES.get(visit.asked("done"), ""),
        lease=lease if record.status is Status.PENDING and left > 0 else None,
        acts=acts_on(visit, record, now),
        steps=await books.look(lambda: drawn(visit.desk.histories, record, now)),
        fields=fields_of(visit, record, now, about),
        private=private_of(record, revealed=revealed),
        links=[*_to_messages(visit, about), *await _links(visit, ask)],
        proposal=await books.look(lambda: proposal_of(books, record, now)),
        command=command_line(record, now),
    )
