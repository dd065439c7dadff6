"""The search, and what the panels lead to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from umavez.console.books import LOOKED_AT, PAGE, Found
from umavez.console.history import announced, by_host, named
from umavez.console.looks import cursor, cut, human, position
from umavez.console.orders.choosing import FREE, HAPPENED, refuse_unfit
from umavez.console.pages.failures import failures
from umavez.console.panels import LOG, Link, safe_page
from umavez.console.search import Search, Unreadable, parsed
from umavez.console.visit import Visit
from umavez.console.words import grouped
from umavez.core.record import Record
from umavez.core.telling.events import holder_of, prefix_of
from umavez.core.telling.history import name_of
from umavez.core.telling.standing import state_of
from umavez.errors import ConfigurationError

DAY = 86_400_000
WINDOWS = ("1", "30", "3650")
"""Days that a search looks back in which no index leads to the records; each is one click wider than the last."""


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
    window, days, wider = await _window(visit, search, fixed=bool(complaint))
    wanted = Search() if complaint else search
    if complaint and books.walks:
        found = Found([], await books.look(books.now), None, 0)
    else:
        found = await books.look(lambda: books.found(by_host(books.engine.store, wanted), after, window))
    groups = [] if after else await books.look(lambda: failures(books, wanted))
    return visit.page(
        "records.html",
        400 if complaint else 200,
        q=search.text,
        records=found.records,
        now=found.now,
        after=cursor(found.after),
        complaint=complaint,
        scope_of_search=_looked_through(visit, search, found, 0 if complaint else window),
        days=days,
        wider=wider,
        links=[],
        bulk=set() if complaint else _bulk_of(search),
        state=lambda record: state_of(record, found.now),
        holder=await _holders(visit),
        groups=groups,
    )


async def _window(visit: Visit, search: Search, *, fixed: bool) -> tuple[int, str, str]:
    """How far back is looked, the days that this is, and those of the next wider look; none where it is `fixed`."""
    books = visit.desk.books
    days = visit.asked("days") if visit.asked("days") in WINDOWS else ""
    window, wider = int(days or WINDOWS[0]) * DAY, ""
    if search.windowed and not fixed:
        if not days:
            window = await books.look(lambda: books.reach(DAY))
        wider = next((each for each in WINDOWS if int(each) * DAY > window), "")
    return window, days or (WINDOWS[0] if window == DAY else ""), wider


def _looked_through(visit: Visit, search: Search, found: Found, window: int) -> str:
    """How far the search looked, so that nobody takes an end of looking for an end of records."""
    if search.key is not None and (search.scope is None or search.operation is None):
        told = visit.t("Looked for under {number} known pairs of scope and operation.", number=found.looked_at)
    else:
        told = visit.t(
            "Looked through {number} records, the newest first.", number=grouped(visit.lang, found.looked_at)
        )
    if search.windowed and window:
        told = f"{visit.t('Begun within {time}.', time=human(visit.lang, window))} {told}"
    if found.after is not None and found.looked_at >= LOOKED_AT:
        told += " " + visit.t("There may be more: go on with the older ones.")
    return told


async def _by_word(visit: Visit, search: Search, word: str) -> Response:
    books = visit.desk.books
    found, now = await books.look(lambda: (books.word(word), books.now()))
    links = await links_of(visit, lambda panel: panel.find(word))
    if await books.look(lambda: books.is_message(word)):
        links.insert(0, Link(f"{visit.t('Message')} {word}", f"{visit.base}/message?{urlencode({'id': word})}"))
    if len(found) == 1 and not links:
        return visit.to(visit.of(found[0]))
    told = visit.t(
        "Looked for as a digest, a key under {number} pairs of scope and operation, a process instance and a token.",
        number=len(await books.look(books.pairs)),
    )
    if ":" in word and not found and not links:
        told += " " + visit.t("No field is called {name}.", name=cut(word.partition(":")[0], 30))
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
        holder=await _holders(visit),
        groups=[],
    )


async def _holders(visit: Visit) -> Callable[[Record], str]:
    """Says which process wrote a record last, as people find it; '' for one that was never announced."""
    store = visit.desk.books.engine.store
    names = await visit.desk.books.kept("names", lambda: named(announced(store)))

    def told(record: Record) -> str:
        holder = holder_of(record.stamp)
        return name_of(holder, names) if prefix_of(holder) in names else ""

    return told


async def links_of(visit: Visit, ask: Any) -> list[Link]:
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


def _bulk_of(search: Search) -> set[str]:
    """What may be decided about all records that a search finds."""
    found = set()
    for action in (FREE, HAPPENED):
        with suppress(ConfigurationError):
            refuse_unfit(search, action)
            found.add(action)
    return found
