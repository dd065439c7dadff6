"""Books: the store as the console reads it. Every question is bounded in rows and in time; none counts a table."""

# ruff: noqa: S608 - statements are joined from constants of the module; values always travel as parameters

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlencode

from umavez._async.once import AsyncOnce
from umavez._sync.once import Once
from umavez._sync.paging import pages
from umavez.concurrency.threads import ThreadPool
from umavez.console.search import Search, is_digest
from umavez.core.flow import Seen
from umavez.core.key import Key
from umavez.core.record import Instant, Millis, Position, Query, Record, Status
from umavez.core.token import TOKEN_LENGTH, digest_of
from umavez.errors import ConfigurationError, InvalidKey, SchemaOutdated, StoreError, UmavezError
from umavez.sql.connection import Dialect, Sql
from umavez.sql.database import reading
from umavez.sql.flow import Ask, SqlFlow, carry, now_at
from umavez.stores import holds_tables

T = TypeVar("T")
LOOK_SECONDS = 2.0
"""How long a question may take, at the server and here."""
DECIDE_SECONDS = 20.0
THREADS = 4
MOST_COUNTED = 10_000
NEWEST_COUNTED = 20_000
"""The newest records, among which failures of the last hour are counted, and a search begins that no index leads.

Where the hour has more, the number is a least one. Busy neighbours would else make everybody's pages slow: 270,000
newer records of another operation took 350 ms to pass over.
"""
MOST_FOUND = 1_000
"""Where counting ends in stores that can only find."""
LOOKED_AT = 2_000
"""Records that one page looks through where the store cannot filter; the next page goes on from there."""
PAGE = 50
PAIRS = 60
"""Known pairs of scope and operation that a key alone is tried under."""
FRESH = 5.0
"""Seconds that what is shown on every page may be old: one question for all who look."""


class TooSlow(UmavezError):
    """The store did not answer a question in time."""


class Count(NamedTuple):
    """How many there are, as far as was counted; None where that took too long."""

    number: int | None
    more: bool = False


class Found(NamedTuple):
    """A page of records at `now`; `after` is where the next begins, `looked_at` how many were looked through."""

    records: list[Record]
    now: Instant
    after: Position | None
    looked_at: int


class Books:
    """The store behind an engine. `engine` is awaited nowhere: all runs in a few threads of the console's own."""

    def __init__(self, once: Once | AsyncOnce, url: str | None) -> None:
        self.once = once
        self.url = url = once.url if url is None else url
        self.engine = _engine(once, url)
        self.tables = _bounded(url) if url is not None and holds_tables(url) else None
        self.walks = url is not None and url.startswith("redis")
        """Whether the store finds settled records only by reading all of them, which no time-out would end."""
        self._threads = ThreadPool(THREADS, "umavez-console", waiting=32, patience=LOOK_SECONDS)
        self._kept: dict[str, tuple[float, Any]] = {}

    async def look(self, work: Callable[[], T], seconds: float = LOOK_SECONDS) -> T:
        """What `work` finds. Raises TooSlow, Crowded, StoreError; what is late goes on in its thread, for nobody."""
        try:
            async with asyncio.timeout(seconds * 2):
                return await self._threads.run(work)
        except TimeoutError:
            raise TooSlow("The store did not answer in time; narrow the search.") from None

    async def kept(self, name: str, work: Callable[[], T], seconds: float = FRESH) -> T:
        """As `look`, but asked once for everybody who comes within `seconds`."""
        at, value = self._kept.get(name, (0.0, None))
        if time.monotonic() - at < seconds:
            return value  # type: ignore[no-any-return]  # kept under its own name
        value = await self.look(work)
        self._kept[name] = (time.monotonic(), value)
        return value  # type: ignore[no-any-return]  # the same

    def forget(self) -> None:
        """Ask anew for what is shown on every page: somebody has changed it here."""
        self._kept.clear()

    def close(self) -> None:
        """Give back what was opened here."""
        self._threads.close()
        if self.engine is not self.once:
            self.engine.close()

    def digested(self, digest: str) -> Seen | None:
        """The record under a whole digest, with the store's time."""
        found = self.engine.store.find(Query(digest_prefix=digest, limit=1))
        return self.engine.store.read(found[0].key) if found else None

    def now(self) -> Instant:
        """The store's time."""
        return self.engine.store.read(Key("umavez.console", "clock", "now")).now

    def page(self, query: Query, wanted: Callable[[Record, Instant], bool] | None = None) -> Found:
        """Up to `query.limit` records that match and are `wanted`, after looking through LOOKED_AT at most."""
        query = self.led(query)
        chosen: list[Record] = []
        looked, now = 0, 0
        size = query.limit + 1 if wanted is None else 500
        for found in pages(self.engine.store, replace(query, limit=size)):
            now = now or self.engine.store.read(found[0].key).now
            for record in found:
                looked += 1
                if wanted is None or wanted(record, now):
                    chosen.append(record)
                if len(chosen) > query.limit:
                    return Found(chosen[:-1], now, chosen[-2].position, looked)
            if looked >= LOOKED_AT:
                return Found(chosen, now, found[-1].position, looked)
        return Found(chosen, now or self.now(), None, looked)

    def found(self, search: Search, after: Position | None, window: Millis | None = None) -> Found:
        """A page of what a search without bare words finds; within `window`, where no index leads to it."""
        if search.key is not None and (search.scope is None or search.operation is None):
            return self._by_key(search)
        query = replace(search.query(PAGE), after=after)
        if search.windowed and window is not None:
            query = replace(query, newer_than=window)
        return self.page(query, search.wanted if search.sifts else None)

    def reach(self, window: Millis) -> Millis:
        """How far back the newest NEWEST_COUNTED records go, where that is less than `window`."""
        if self.tables is None:
            return window
        rows = self.table(lambda sql: _asked(_AGE.format(age=_age(sql.dialect), skip=NEWEST_COUNTED), ()))
        return min(window, max(int(rows[0][0]), 1_000)) if rows else window

    def _by_key(self, search: Search) -> Found:
        """The record of a key whose scope or operation is not said: tried under the pairs that are known."""
        pairs = [
            (scope, operation)
            for scope, operation in self.pairs()
            if search.scope in (None, scope) and search.operation in (None, operation)
        ]
        records, now = self.under(search.key or "", pairs)
        query = search.query(PAGE)
        wanted = [record for record in records if query.matches(record, now) and search.wanted(record, now)]
        return Found(wanted, now, None, len(pairs))

    def under(self, value: str, pairs: list[tuple[str, str]]) -> tuple[list[Record], Instant]:
        """The records under the key `value` of these pairs, by their digests; and the store's time."""
        records = []
        now = self.now()
        for scope, operation in pairs:
            with suppress(InvalidKey):
                seen = self.engine.store.read(Key(scope, operation, value))
                now = seen.now
                records += [] if seen.current is None else [seen.current]
        return records, now

    def pairs(self) -> list[tuple[str, str]]:
        """Scopes with their operations, as far as they are known: declared here, or among the newest records."""
        declared = [(self.once.scope, operation) for operation in list(self.once.plans.declarations)]
        recent = [(record.key.scope, record.key.operation) for record in self.newest(500)]
        return list(dict.fromkeys(declared + recent))[:PAIRS]

    def leased(self, operation: str, limit: int) -> tuple[list[Record], Instant]:
        """The records of `operation` that somebody holds or held to the end, by the index of leases; and the time."""
        if self.tables is None:
            found = self.page(Query(operation=operation, status=Status.PENDING, limit=limit))
            return found.records, found.now
        names = self.table(lambda _: _asked(_LEASED, (operation, limit)))
        records, now = [], self.now()
        for scope, value in names:
            seen = self.engine.store.read(Key(scope, operation, value))
            records += [] if seen.current is None else [seen.current]
        return records, now

    def held(self, limit: int) -> list[str]:
        """The stamps of so many claims that somebody holds, or held to the end, by the index of leases."""
        if self.tables is None:
            return [record.stamp for record in self.engine.store.find(Query(status=Status.PENDING, limit=limit))]
        return [stamp for (stamp,) in self.table(lambda _: _asked(_HELD, (limit,)))]

    def led(self, query: Query) -> Query:
        """`query`, as this store can answer it without reading everything. Raises TooSlow where it cannot.

        Redis has indexes for what runs, for what is unknown, by age, and for the records of a process instance.
        """
        if not self.walks or query.process_instance is not None or query.value is not None:
            return query
        if query.lapsed or query.status in (Status.UNKNOWN, Status.PENDING):
            return replace(query, newest_first=False)
        raise TooSlow("Redis finds by status unknown, pending or lapsed, by a whole key or digest, or by a process.")

    def newest(self, limit: int) -> list[Record]:
        """The newest records of all scopes; of Redis, those that run or are unknown."""
        store = self.engine.store
        if not self.walks:
            return store.find(Query(limit=limit, newest_first=True))
        open_ = [store.find(Query(status=status, limit=limit)) for status in (Status.UNKNOWN, Status.PENDING)]
        return sorted(open_[0] + open_[1], key=lambda record: record.position, reverse=True)[:limit]

    def word(self, word: str) -> list[Record]:
        """What a bare word may mean: a digest or its beginning, a key, a process instance, a token."""
        found = []
        store = self.engine.store
        if is_digest(word) and (len(word) == 64 or not self.walks):
            found += store.find(Query(digest_prefix=word, limit=PAGE, newest_first=True))
        found += self.under(word, self.pairs())[0]
        found += store.find(Query(process_instance=word, limit=PAGE, newest_first=True))
        if len(word) == TOKEN_LENGTH and is_digest(word):
            found += self.under(digest_of(word), self.pairs())[0]
        return list({record.key: record for record in found}.values())[:PAGE]

    def is_message(self, name: str) -> bool:
        """Whether a message of this id stands in the outbox, where there is one."""
        with suppress(ConfigurationError, SchemaOutdated):
            return name.isascii() and bool(
                self.table(lambda _: _asked("SELECT 1 FROM umavez_outbox WHERE id = ?", (name,)))
            )
        return False

    def count(self, what: str) -> Count:
        """How many records are `unknown`, `lapsed` or `failed` (begun within the last hour)."""
        if self.walks and what == "failed":
            return Count(None)
        if self.tables is None:
            most = self.engine.store.find(replace(_FOUND[what], limit=MOST_FOUND + 1))
            most = [record for record in most if what != "failed" or record.attempt]
            return Count(min(len(most), MOST_FOUND), len(most) > MOST_FOUND)
        if what == "failed":
            return self.table(lambda sql: _failing(_instant(sql.dialect, 3_600_000)))
        return self.table(lambda sql: counting(_WHERE[what](sql.dialect), "idempotency_records"))

    def table(self, make: Callable[[Sql], SqlFlow[T]]) -> T:
        """What a flow finds in the tables beside the records. Raises ConfigurationError where there are none."""
        if self.tables is None:
            raise ConfigurationError("This store keeps no tables beside its records.")
        with reading(self.tables, "tables") as connection:
            sql = Sql(connection)
            return carry(make(sql), sql)

    def number(self, what: str) -> Count:
        """As `count`; None where it took too long or cannot be known."""
        try:
            return self.count(what)
        except StoreError:
            return Count(None)


def _asked(text: str, values: tuple[Any, ...]) -> SqlFlow[list[Any]]:
    rows: list[Any] = yield Ask(text, values)
    return rows


_LEASED = (
    "SELECT scope, idempotency_key FROM idempotency_records WHERE lease_until IS NOT NULL AND operation_name = ?"
    " ORDER BY lease_until DESC LIMIT ?"
)
_AGE = "SELECT {age} FROM idempotency_records ORDER BY created_at DESC LIMIT 1 OFFSET {skip}"
_HELD = "SELECT stamp FROM idempotency_records WHERE status = 'PENDING' AND lease_until IS NOT NULL LIMIT ?"
_FOUND = {
    "unknown": Query(status=Status.UNKNOWN),
    "lapsed": Query(lapsed=True),
    "failed": Query(status=Status.FAILED, newer_than=3_600_000),
}


def _instant(dialect: Dialect, back: int = 0) -> str:
    if dialect is Dialect.POSTGRES:
        return f"now() - interval '{back} milliseconds'"
    return f"{now_at(dialect)} - {back}"


def _age(dialect: Dialect) -> str:
    """How long ago a record began, in milliseconds."""
    if dialect is Dialect.POSTGRES:
        return "(extract(epoch FROM now() - created_at) * 1000)::bigint"
    return f"{now_at(dialect)} - created_at"


_WHERE: dict[str, Callable[[Dialect], str]] = {
    "unknown": lambda _: "status = 'UNKNOWN'",
    "lapsed": lambda dialect: f"status = 'PENDING' AND lease_until <= {_instant(dialect)}",
}


def _failing(since: str) -> SqlFlow[Count]:
    """How many failed of the newest NEWEST_COUNTED that began since: no index leads to them, and an hour may be long.

    A token that waits and a key that was freed have not failed: nobody has tried them.
    """
    newest = (
        f"SELECT status, attempt FROM idempotency_records WHERE created_at >= {since}"
        f" ORDER BY created_at DESC LIMIT {NEWEST_COUNTED}"
    )
    failed = "CASE WHEN status = 'FAILED' AND attempt > 0 THEN 1 ELSE 0 END"
    rows = yield Ask(f"SELECT coalesce(sum(1), 0), coalesce(sum({failed}), 0) FROM ({newest}) newest")
    return Count(int(rows[0][1]), int(rows[0][0]) >= NEWEST_COUNTED)


def _engine(once: Once | AsyncOnce, url: str | None) -> Once:
    """An engine whose statements end in time; the given one where the store is in this process, or unnamed."""
    near = url is None or url.startswith(("memory:", "sqlite:"))
    if isinstance(once, Once) and near:
        return once
    if url is None or url.startswith("memory:"):
        raise ConfigurationError("The console reads in threads: give url=, or an engine that is not awaited.")
    engine = Once(_bounded(url), scope=once.scope, codec=once.codec)
    engine.plans = once.plans
    return engine


def _bounded(url: str) -> str:
    """`url` with the time that a question may take, and one lane for what is decided here."""
    place, _, parameters = url.partition("?")
    # Kept as written: read and written again, a plus sign would be another one to the next reader.
    given = [part for part in parameters.split("&") if part]
    own = {"timeout": f"{LOOK_SECONDS:g}"}
    if url.startswith(("postgres", "mariadb", "mysql")):
        own["lanes"] = "1"
    if url.startswith("postgres"):
        # Planned for each question: a plan for any status cannot know the index of those that are unknown.
        options = [unquote(part.removeprefix("options=")) for part in given if part.startswith("options=")]
        own["options"] = " ".join([*options, "-c plan_cache_mode=force_custom_plan"])
    kept = [part for part in given if part.partition("=")[0] not in own]
    return f"{place}?{'&'.join([*kept, urlencode(own, quote_via=quote)])}"


def counting(where: str, table: str, values: tuple[Any, ...] = ()) -> SqlFlow[Count]:
    """How many rows of `table` match, counted up to MOST_COUNTED. Both texts are ours, never a stranger's."""
    text = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {where} LIMIT {MOST_COUNTED + 1}) counted"
    rows = yield Ask(text, values)
    number = int(rows[0][0])
    return Count(min(number, MOST_COUNTED), number > MOST_COUNTED)
