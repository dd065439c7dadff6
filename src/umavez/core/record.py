"""Record, Draft and their parts: frozen values, and the seed's small methods on them.

Named tuples, because a first call makes half a dozen of them and frozen dataclasses cost four times as much.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, final

from umavez.core.key import Key
from umavez.errors import ConfigurationError, InvalidKey

if TYPE_CHECKING:
    from umavez.core.telling.events import EventDraft

_HEXADECIMAL = re.compile(r"[0-9a-f]{1,64}")

TAKES_TWO = '[{"at": null, "what": "takes two"'
"""How the evidence of a record begins about which nobody decides alone; the first entry is never dropped."""

Instant = int
"""Milliseconds since the epoch by the store's clock: one precision everywhere."""

Millis = int
"""A duration in milliseconds."""

LONGEST_SPAN = 1e11
"""Seconds that anybody looks back, some three thousand years: beyond them a database's clock has no time."""


class Status(StrEnum):
    """Where an operation stands. PENDING, SUCCESS and FAILED are seed 003's; UNKNOWN may have happened."""

    PENDING = "PENDING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


class Settled(NamedTuple):
    """What is kept and replayed: a value (`ok`) or a final refusal, as JSON text.

    Empty is not absent: a body of None says that it happened but was too large or not storable.
    """

    ok: bool
    body: str | None


class Draft(NamedTuple):
    """A record about to be written. Times are durations: only the store knows what time it is.

    `claims` asks the store for a new fence; `fresh` begins a new life with its own `created_at`. `lease` and
    `keep` count from the moment of writing; `keep=None` means the record may not be swept. `event` is what it leaves in
    the key's history, in stores that keep one; where nothing stood there is none. `origin` is where the claim came
    from; None leaves the one that stands.
    """

    key: Key
    stamp: str
    status: Status
    claims: bool
    attempt: int = 1
    lease: Millis | None = None
    keep: Millis | None = None
    fingerprint: str | None = None
    process_instance: str | None = None
    activity: str | None = None
    settled: Settled | None = None
    error: str | None = None
    progress: str | None = None
    evidence: str | None = None
    origin: str | None = None
    fresh: bool = False
    event: EventDraft | None = None


class Position(NamedTuple):
    """Where a record stands in the order in which records are found: by creation, and within an instant by digest."""

    created_at: Instant
    digest: bytes


@final
class Record(NamedTuple):
    """All that is stored under a key, as the store gave it.

    The engine changes a record by writing a draft, never in memory. `increment_retry_count`, `mark_success` and
    `mark_failed` are the small methods that seed 003 asks of a record: values for code that wants to say what one
    would be after a change. Nothing in the engine or its systems calls them. `origin` is shown to those who bring one
    of their own; see `umavez.core.telling.origin`.
    """

    key: Key
    stamp: str
    fence: int
    status: Status
    attempt: int
    created_at: Instant
    updated_at: Instant
    lease_until: Instant | None = None
    expires_at: Instant | None = None
    fingerprint: str | None = None
    process_instance: str | None = None
    activity: str | None = None
    settled: Settled | None = None
    error: str | None = None
    progress: str | None = None
    evidence: str | None = None
    origin: str | None = None

    @property
    def retry_count(self) -> int:
        """How many attempts there were after the first (seed 003's counter)."""
        return max(self.attempt - 1, 0)

    @property
    def takes_two(self) -> bool:
        """Whether it was claimed for an operation that nobody decides about alone."""
        return self.evidence is not None and self.evidence.startswith(TAKES_TWO)

    @property
    def position(self) -> Position:
        """Where the next page begins, when this is the last record of one."""
        return Position(self.created_at, self.key.digest)

    def is_expired(self, now: Instant) -> bool:
        """Whether the record's time has passed. What runs or is unknown never expires."""
        return self.expires_at is not None and self.expires_at <= now

    def can_retry(self, max_retries: int) -> bool:
        """Whether another attempt is allowed (seed 003); always so when a key was freed (attempt 0)."""
        return self.attempt - 1 < max_retries

    def increment_retry_count(self, now: Instant) -> Record:
        """The record with one more retry counted (seed 003)."""
        return self._replace(attempt=self.attempt + 1, updated_at=now)

    def mark_success(self, result: str, now: Instant) -> Record:
        """The record as succeeded with `result`, JSON text (seed 003)."""
        return self._replace(
            status=Status.SUCCESS, settled=Settled(True, result), error=None, lease_until=None, updated_at=now
        )

    def mark_failed(self, error: str, now: Instant) -> Record:
        """The record as failed with `error` (seed 003)."""
        return self._replace(status=Status.FAILED, error=error, lease_until=None, updated_at=now)

    def lapsed(self, now: Instant) -> bool:
        """Whether it is held by somebody whose lease has ended."""
        return self.status is Status.PENDING and (self.lease_until is None or self.lease_until <= now)


def span_of(seconds: float | None) -> Millis | None:
    """Seconds as a Query takes them. Raises ConfigurationError for what is no span of time."""
    if seconds is None:
        return None
    if not abs(seconds) <= LONGEST_SPAN:  # NaN is not either
        raise ConfigurationError(f"{seconds!r} seconds are no span of time; give at most {LONGEST_SPAN:g}.")
    return int(seconds * 1000)


def status_of(status: Status | str | None) -> Status | None:
    """A status, however it is named. Raises ConfigurationError for a name that is none."""
    try:
        return None if status is None else Status(status)
    except ValueError:
        raise ConfigurationError(f"{status!r} is no status; there are {', '.join(Status)}.") from None


@dataclass(frozen=True, slots=True)
class Query:
    """Which records to look for; `None` means any. `older_than` compares `created_at` with the store's clock.

    `newer_than` does, too. `digest_prefix` is what the digest begins with, in hexadecimal digits.
    They come in the order of their positions, the oldest first unless `newest_first`; `after` leaves out those up to
    and with that position, so that a page begins where the last one ended, whatever was swept or added since.
    """

    scope: str | None = None
    operation: str | None = None
    value: str | None = None
    process_instance: str | None = None
    status: Status | None = None
    older_than: Millis | None = None
    lapsed: bool = False
    limit: int = 100
    after: Position | None = None
    newest_first: bool = False
    newer_than: Millis | None = None
    digest_prefix: str | None = None

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ConfigurationError("A look needs a limit of at least 1.")
        if self.digest_prefix is not None and not _HEXADECIMAL.fullmatch(self.digest_prefix):
            raise InvalidKey("A digest is looked for by 1 to 64 hexadecimal digits in lower case, from its first on.")

    @property
    def digests(self) -> tuple[bytes, bytes] | None:
        """The lowest and the highest digest that `digest_prefix` means."""
        prefix = self.digest_prefix
        if prefix is None:
            return None
        return bytes.fromhex(prefix.ljust(64, "0")), bytes.fromhex(prefix.ljust(64, "f"))

    def matches(self, record: Record, now: Instant) -> bool:
        """Whether `record` is looked for, at `now` by the store's clock. For stores that filter by themselves."""
        key = record.key
        wanted = (self.scope, self.operation, self.value, self.process_instance, self.status)
        found = (key.scope, key.operation, key.value, record.process_instance, record.status)
        if any(want is not None and want != have for want, have in zip(wanted, found, strict=True)):
            return False
        if self.older_than is not None and record.created_at > now - self.older_than:
            return False
        if self.newer_than is not None and record.created_at < now - self.newer_than:
            return False
        if self.digest_prefix is not None and not key.digest.hex().startswith(self.digest_prefix):
            return False
        if self.after is not None and not self._follows(record.position, self.after):
            return False
        return not self.lapsed or record.lapsed(now)

    def page(self, records: Iterable[Record]) -> list[Record]:
        """The first `limit` of `records`, in order."""
        return sorted(records, key=_position, reverse=self.newest_first)[: self.limit]

    def _follows(self, position: Position, other: Position) -> bool:
        return position < other if self.newest_first else position > other


def _position(record: Record) -> Position:
    return record.position


def recorded(draft: Draft, fence: int, created_at: Instant, now: Instant) -> Record:
    """The record that `draft` becomes when it is written at `now`."""
    # By their places, which only this module knows: named one by one they take 5 % of a first call on `memory:`. From
    # the fingerprint to the origin both have the same fields in the same order.
    key, stamp, status, _, attempt, lease, keep = draft[:7]
    lease_until = None if lease is None else now + lease
    expires_at = None if keep is None else now + keep
    head = (key, stamp, fence, status, attempt, created_at, now, lease_until, expires_at)
    return tuple.__new__(Record, head + draft[7:15])
