"""Record, Draft and their parts: frozen values, and the seed's small methods on them.

Named tuples, because a first call makes half a dozen of them and frozen dataclasses cost four times as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from umavez.core.key import Key

Instant = int
"""Milliseconds since the epoch by the store's clock: one precision everywhere."""

Millis = int
"""A duration in milliseconds."""


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
    `keep` count from the moment of writing; `keep=None` means the record may not be swept.
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
    fresh: bool = False


class Record(NamedTuple):
    """All that is stored under a key, as the store gave it."""

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

    @property
    def retry_count(self) -> int:
        """How many attempts there were after the first (seed 003's counter)."""
        return max(self.attempt - 1, 0)

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


@dataclass(frozen=True, slots=True)
class Query:
    """Which records to look for; `None` means any. `older_than` compares `created_at` with the store's clock."""

    scope: str | None = None
    operation: str | None = None
    value: str | None = None
    process_instance: str | None = None
    status: Status | None = None
    older_than: Millis | None = None
    lapsed: bool = False
    limit: int = 100
