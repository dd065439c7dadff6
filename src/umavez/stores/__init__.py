"""Stores: where records are kept. A store swaps records; it knows no rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol, TypeVar, runtime_checkable
from urllib.parse import unquote

from umavez.clock import SYSTEM, Clock
from umavez.core.flow import Seen, Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Instant, Millis, Query, Record, Settled, Status
from umavez.core.telling.events import EventDraft, PastEvent, Process
from umavez.core.telling.minutes import Tally
from umavez.core.telling.origin import Origin
from umavez.errors import ConfigurationError

# What the author of a store needs stands here, in one place.
__all__ = [
    "AsyncChronicle",
    "AsyncStore",
    "Chronicle",
    "Clock",
    "Draft",
    "EventDraft",
    "Key",
    "PastEvent",
    "Process",
    "Query",
    "Record",
    "Seen",
    "Settled",
    "Stale",
    "Status",
    "Store",
    "Swapped",
    "open_async_store",
    "open_store",
]

S = TypeVar("S")
_PARAMETER = re.compile(r"(?:^|[?&;\s])([^=?&;\s]*)=")
_SECRET = re.compile(r"(?i)pass|pwd|secret|token|key")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PLACE = re.compile(r"[/?#]")


class Store(Protocol):
    """Keeps records and swaps them.

    Failures are StoreError: StoreUnavailable when nothing was written, StoreUncertain when the
    answer was lost. A store may be shared by threads (an AsyncStore by tasks of one loop).
    """

    def read(self, key: Key) -> Seen:
        """What stands under `key`, dead or alive, with the store's time. For looking, never for deciding."""
        ...

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """Atomically put `draft` where the record stamped `expected` stands (None: where nothing stands).

        `lease_until` and `expires_at` are computed from the store's own clock. `created_at` (unless
        `draft.fresh`) and the fence (unless `draft.claims`) are carried over from the record replaced; a claim
        gets a fence above every fence this store ever gave. A swap sent twice is done once: the second answer
        is Stale with a current record that bears `draft.stamp`. A Chronicle keeps `draft.event` with the record.
        A Provenance keeps `draft.origin`, where there is one, and shows what it kept to a draft that has one.
        """
        ...

    def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """Delete up to `limit` records that expired at least `older_than` ago; returns how many.

        Housekeeping: no verdict changes because of it, and no fence repeats after it.
        """
        ...

    def find(self, query: Query) -> list[Record]:
        """The records that match, in the order of their positions: the oldest first, or the newest if it says so.

        At most `query.limit`, and only those beyond `query.after`, so that pages neither miss nor repeat a record.
        """
        ...

    def migrate(self) -> str:
        """Create or upgrade the tables; returns one sentence on what was done. Safe to repeat."""
        ...

    def joined(self, connection: Any, wait: float = 10.0) -> Store:
        """The same store inside the caller's open transaction. Raises ConfigurationError where it cannot be.

        A rival's uncommitted claim is waited for up to `wait` seconds, then OperationInProgress is raised.
        """
        ...

    def close(self) -> None:
        """Give connections back. Safe to repeat."""
        ...


class AsyncStore(Protocol):
    """A Store whose verbs are awaited."""

    async def read(self, key: Key) -> Seen:
        """See Store.read."""
        ...

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """See Store.swap."""
        ...

    async def sweep(self, limit: int, older_than: Millis = 0) -> int:
        """See Store.sweep."""
        ...

    async def find(self, query: Query) -> list[Record]:
        """See Store.find."""
        ...

    async def migrate(self) -> str:
        """See Store.migrate."""
        ...

    def joined(self, connection: Any, wait: float = 10.0) -> AsyncStore:
        """See Store.joined."""
        ...

    async def close(self) -> None:
        """See Store.close."""
        ...


@runtime_checkable
class Chronicle(Protocol):
    """What a store can do that keeps events: each in the transaction of its swap, and gone with its record."""

    def history(self, key: Key) -> list[PastEvent]:
        """The events of `key`, the oldest first: the latest MOST_EVENTS."""
        ...

    def remark(self, key: Key, event: EventDraft, attempt: int, fence: int, holder: str) -> None:
        """Keep an event that belongs to no swap, unless `key` has no record or MOST_REMARKS of them already."""
        ...

    def announce(self, process: Process) -> None:
        """Say that `process` lives, so that holders have names. Those unseen for a month are forgotten."""
        ...

    def processes(self, limit: int = 100) -> list[Process]:
        """The processes that were announced, the last seen first."""
        ...


@runtime_checkable
class AsyncChronicle(Protocol):
    """A Chronicle whose verbs are awaited."""

    async def history(self, key: Key) -> list[PastEvent]:
        """See Chronicle.history."""
        ...

    async def remark(self, key: Key, event: EventDraft, attempt: int, fence: int, holder: str) -> None:
        """See Chronicle.remark."""
        ...

    async def announce(self, process: Process) -> None:
        """See Chronicle.announce."""
        ...

    async def processes(self, limit: int = 100) -> list[Process]:
        """See Chronicle.processes."""
        ...


@runtime_checkable
class Provenance(Protocol):
    """What a store can do that keeps where claims came from, each written by the swap of its claim."""

    def origin(self, key: Key) -> Origin | None:
        """Where the last claim of `key` came from that brought an origin; None where none did, or nothing stands."""
        ...


@runtime_checkable
class AsyncProvenance(Protocol):
    """A Provenance whose verb is awaited."""

    async def origin(self, key: Key) -> Origin | None:
        """See Provenance.origin."""
        ...


@runtime_checkable
class Tallies(Protocol):
    """What a store can do that keeps how often what happened, minute by minute. Never asked by a call."""

    def tally(self, process: str, span: Millis, tallies: Sequence[Tally]) -> Instant:
        """Put what `process` has counted in spans of this length in the place of what it had said of them.

        So a tally that is sent twice counts once; those of others stay. The span is MINUTE or HOUR. What is older than
        KEPT goes, some of it each time. Returns the store's time, even where the tables are missing.
        """
        ...

    def tallied(
        self, span: Millis, newer_than: Millis, operation: str | None = None, limit: int = 50_000
    ) -> list[Tally]:
        """What all processes have counted in the spans that began at most `newer_than` ago, one tally for each name.

        In the order of (at, operation, kind); of more than `limit` the earliest.
        """
        ...


@runtime_checkable
class AsyncTallies(Protocol):
    """Tallies whose verbs are awaited."""

    async def tally(self, process: str, span: Millis, tallies: Sequence[Tally]) -> Instant:
        """See Tallies.tally."""
        ...

    async def tallied(
        self, span: Millis, newer_than: Millis, operation: str | None = None, limit: int = 50_000
    ) -> list[Tally]:
        """See Tallies.tallied."""
        ...


BACKENDS = {
    "memory": ("umavez.stores.memory", ""),
    "sqlite": ("umavez.stores.sqlite.store", ""),
    "postgresql": ("umavez.stores.postgres.store", "postgres"),
    "postgres": ("umavez.stores.postgres.store", "postgres"),
    "mariadb": ("umavez.stores.mariadb.store", "mariadb"),
    "mysql": ("umavez.stores.mariadb.store", "mariadb"),
    "redis": ("umavez.stores.redis.store", "redis"),
    "rediss": ("umavez.stores.redis.store", "redis"),
    "redis+sentinel": ("umavez.stores.redis.store", "redis"),
}


SQL = ("umavez.stores.sqlite.store", "umavez.stores.postgres.store", "umavez.stores.mariadb.store")
"""The backends that keep tables, and so can keep those of others beside the records."""

MIGRATING = 0x756D6176657A
"""Whoever migrates a PostgreSQL database queues at this advisory lock."""

SECRET_PARAMETER = re.compile(r"(?i)([?&](?:ssl)?password=)([^&#]*)")


def refuse_other_database(theirs: str, ours: str) -> None:
    """Raise ConfigurationError where a connection to be joined is one to another database than the store's."""
    if theirs.casefold() != ours.casefold():
        raise ConfigurationError(
            f"The connection is to {theirs or 'no database'}, and the store's records are in {ours}; join that one."
        )


def open_store(url: str, *, clock: Clock = SYSTEM) -> Store:
    """The store that `url` names. Raises ConfigurationError for an unknown scheme or a missing driver."""
    store: Store = part_of(url, "store").open_store(url, clock)
    return store


def open_reader(url: str, *, clock: Clock = SYSTEM) -> Store:
    """The store that `url` names, to be looked at: where it is a file, nothing of it is made or changed.

    Raises ConfigurationError as `open_store` does, and for a file that is not there.
    """
    backend = part_of(url, "store")
    store: Store = getattr(backend, "open_reader", backend.open_store)(url, clock)
    return store


def existing(url: str) -> str:
    """`as_made(url)`, of a store that is there. Raises ConfigurationError for a file that is not."""
    return str(part_of(url, "connection").existing(url)) if url.startswith("sqlite:") else url


def as_made(url: str) -> str:
    """`url`; where it is a file, with the journal that the file has already, unless the URL names one."""
    return str(part_of(url, "connection").as_made(url)) if url.startswith("sqlite:") else url


def open_async_store(url: str, *, clock: Clock = SYSTEM) -> AsyncStore:
    """The async store that `url` names; see `open_store`."""
    store: AsyncStore = part_of(url, "store").open_async_store(url, clock)
    return store


def store_given(store: S) -> S:
    """`store` itself. Raises ConfigurationError for what is none, as a setting that is missing."""
    if not hasattr(store, "swap"):
        raise ConfigurationError(f"{type(store).__name__} is no store; give one, or a URL such as sqlite:///loja.db.")
    return store


def holds_tables(url: str) -> bool:
    """Whether what is at `url` is a database, in which others keep tables beside the records."""
    return BACKENDS.get(url.partition(":")[0], ("", ""))[0] in SQL


def part_of(url: str, part: str) -> Any:
    """A module of the backend that `url` names: its store, connection, errors. Raises ConfigurationError."""
    scheme = url.partition(":")[0]
    if scheme not in BACKENDS or ":" not in url:
        raise ConfigurationError(
            f"{without_password(url)!r} is not a store; use memory:, sqlite:///file, postgresql://…, mariadb://… or redis://…."
        )
    module, extra = BACKENDS[scheme]
    try:
        return import_module(f"{module.removesuffix('.store')}.{part}" if module.endswith(".store") else module)
    except ModuleNotFoundError as missing:
        if not extra:
            raise
        raise ConfigurationError(
            f"{scheme} needs {missing.name}, which is not installed; run: pip install 'umavez[{extra}]'."
        ) from missing


def without_password(url: str) -> str:
    """`url` as it may be shown: no password, neither before the host nor among the parameters, nor when badly written.

    Rather too much is hidden than too little: all that follows a secret parameter, too.
    """
    scheme, slashes, rest = url.partition("://") if _SCHEME.match(url) else ("", "", url)
    for found in _PARAMETER.finditer(rest):
        if _SECRET.search(unquote(found[1])):
            if "@" in rest[found.end() :]:
                # In that parameter's value, or before the host: who can say.
                return f"{scheme}{slashes}***"
            rest = f"{rest[: found.end()]}***"
            break
    user, at, tail = rest.rpartition("@")
    if at:
        name, colon, _ = user.partition(":")
        return f"{scheme}{slashes}{name}:***@{tail}" if colon else f"{scheme}{slashes}{rest}"
    name, colon, port = _PLACE.split(rest)[0].rpartition(":")
    if slashes and colon and not port.isdigit() and not port.endswith("]"):
        # Where a port should stand: the password of a URL that lacks its host.
        return f"{scheme}{slashes}{name}:***"
    return f"{scheme}{slashes}{rest}"
