"""Numbers: the squares of the overview, and what the doctor says about the store's settings."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from umavez.console.books import Books, Count, counting
from umavez.console.history import announced
from umavez.console.looks import ago
from umavez.console.panels import LOG
from umavez.console.visit import Visit
from umavez.core.record import Instant, Query, Status
from umavez.core.telling.history import SILENT
from umavez.errors import ConfigurationError, SchemaOutdated
from umavez.sql.flow import SqlFlow

EXAMINED = 300.0
"""Seconds that what the doctor said may be old: settings change rarely."""
MOST_ALIVE = 1000


class Number(NamedTuple):
    """A square of the overview with a number that leads to what it counts."""

    name: str
    total: Count
    href: str
    tone: str = ""
    age: str = ""


async def numbers_of(visit: Visit, now: Instant) -> list[Number]:
    """How much needs somebody, with the age of the oldest; and how many processes are at work."""
    books, pulse = visit.desk.books, visit.desk.pulse
    unknown, lapsed = (Count(None), Count(None)) if pulse is None else (pulse.unknown, pulse.lapsed)
    oldest = await books.kept("oldest", lambda: _oldest(books))
    ages = [ago(visit.lang, instant, now) if instant else "" for instant in oldest]
    failed = await books.kept("failed", lambda: books.number("failed"))
    dead = await books.kept("dead", lambda: _dead(books))
    alive = await books.kept("alive", lambda: _alive(books, now))
    found = [
        Number("unknown", unknown, "/unknown", "unknown" if unknown.number else "", ages[0]),
        Number("holder gone", lapsed, "/records?q=status%3Alapsed", "lapsed" if lapsed.number else "", ages[1]),
        Number("failed, begun within the hour", failed, "/records?q=status%3Afailed+age%3A%3C1h"),
        Number("process alive" if alive.number == 1 else "processes alive", alive, "/processes"),
    ]
    if dead is not None:
        name = "dead message" if dead.number == 1 else "dead messages"
        found.insert(2, Number(name, dead, "/messages?state=DEAD", "failed" if dead.number else ""))
    return found


def _oldest(books: Books) -> list[Instant | None]:
    """When the oldest began whose outcome is unknown, and the oldest whose holder is gone."""
    asked = (Query(status=Status.UNKNOWN, limit=1), Query(lapsed=True, limit=1))
    found = [books.engine.store.find(query) for query in asked]
    return [records[0].created_at if records else None for records in found]


def _dead(books: Books) -> Count | None:
    """How many messages no broker took, or no subscriber; None where there are no tables of messages."""
    with suppress(ConfigurationError, SchemaOutdated):
        return books.table(lambda _: _both())
    return None


def _both() -> SqlFlow[Count]:
    sent = yield from counting("state = 'DEAD'", "umavez_outbox")
    taken = yield from counting("state = 'DEAD'", "umavez_deliveries")
    return Count((sent.number or 0) + (taken.number or 0), sent.more or taken.more)


def _alive(books: Books, now: Instant) -> Count:
    seen = [process for process in announced(books.engine.store, MOST_ALIVE) if now - process.seen_at < SILENT]
    return Count(len(seen), len(seen) == MOST_ALIVE)


async def findings_of(visit: Visit) -> list[Any]:
    """The settings of the store that put records at risk; nothing where the doctor cannot look, or is not installed."""
    books = visit.desk.books
    if books.url is None:
        return []
    try:
        found: list[Any] = await books.kept("doctor", lambda: _findings(str(books.url)), EXAMINED)
    except Exception as error:  # noqa: BLE001  # the doctor's trouble is its own, and the page is drawn without it
        LOG.warning("The doctor could not look (%s)", type(error).__name__)
        return []
    return found


def _findings(url: str) -> list[Any]:
    try:
        examine = import_module("umavez.cli.doctor.command").examine
    except ModuleNotFoundError:
        return []
    return [finding for finding in examine(url).findings if finding.level.counts]
