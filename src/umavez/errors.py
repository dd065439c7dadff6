"""Every exception of umavez.

UmavezError
    InvalidKey              the key is empty, too long or not text                 HTTP 400
    InvalidJson             a text is no JSON, or is beyond its bounds             HTTP 400
    NotDeclared             the operation does not say what an unknown outcome means
    KeyReused               the key was used for something else                    HTTP 422
    OperationInProgress     another attempt holds the key; see retry_after         HTTP 409
        Reentered           the running attempt asked for its own key
    MaxRetriesExceeded      every allowed attempt has failed                       HTTP 409
    OutcomeUnknown          it may have happened; somebody must find out           HTTP 409
    ClaimLost               this attempt was overtaken: undo what can be undone
    NotStorable             the value cannot be kept
    NoAttempt               code asked for the running attempt outside of one
    OutcomeNotKept          it happened, but its value was not kept for replay
    ReplayIgnored           a replayed block ran its code without asking whether it was one
    OutcomeUnreadable       it happened, and what was kept cannot be read here
    Refused                 a stored final refusal whose own type is not at hand
    StoreError              the store failed; see may_have_happened
        StoreUnavailable    nothing was written; try again freely
        StoreUncertain      the answer was lost; the write may stand
        SchemaOutdated      the tables are missing or older than this version
    Crowded                 too many calls wait already; nothing was begun         HTTP 503
    ConfigurationError      a URL, driver or setting is wrong

Each carries its data as attributes; messages never hold values, results or secrets.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from umavez.core.key import Key


class UmavezError(Exception):
    """Whatever umavez has to say that is not a result."""


class InvalidKey(UmavezError, ValueError):
    """The key cannot name an effect: empty, above 255 characters, or not text."""


class InvalidJson(UmavezError, ValueError):
    """A text is not JSON that can be handled.

    fault: syntax, encoding, size, depth, number, repeated, surrogate or nul. position: the character it was noticed
    at, counted from 0 (the byte, for encoding), where that is known.
    """

    def __init__(self, fault: str, reason: str, position: int | None) -> None:
        where = "" if position is None else f" (at position {position})"
        super().__init__(f"This JSON cannot be read: {reason}{where}.")
        self.fault = fault
        self.reason = reason
        self.position = position


class NotDeclared(UmavezError, TypeError):
    """The operation was declared without saying what an unknown outcome means."""


class NoAttempt(UmavezError, LookupError):
    """`current_attempt()` was called where no operation is running."""


class ConfigurationError(UmavezError, ValueError):
    """A URL, a driver or a setting is wrong; the message says which and what to do."""


class Crowded(UmavezError):
    """Too many calls wait already, or this one waited for as long as it may; it was not begun, so try again later."""


class KeyReused(UmavezError):
    """The key was first used for another request."""

    def __init__(self, key: Key) -> None:
        super().__init__(
            f"The key of {key.operation} {key.value!r} was used before with other content; "
            "send the original content again or use a new key."
        )
        self.key = key


class ReplayIgnored(UmavezError):
    """A block ran to its end although the operation had happened before, and never asked."""

    def __init__(self, key: Key) -> None:
        super().__init__(
            f"{key.operation} {key.value!r} had happened before, and this block ran its code again: begin it with "
            "`if attempt.replayed:` and use attempt.outcome there, or give the code to run(call=...)."
        )
        self.key = key


class OperationInProgress(UmavezError):
    """Another attempt at the same operation is running; `retry_after` is in seconds."""

    def __init__(self, key: Key, retry_after: float) -> None:
        super().__init__(f"{key.operation} {key.value!r} is in progress; try again in {retry_after:.3g} s.")
        self.key = key
        self.retry_after = retry_after


class Reentered(OperationInProgress):
    """The running attempt called its own operation with its own key, and would wait for itself for ever."""


class MaxRetriesExceeded(UmavezError):
    """Every allowed attempt has failed; `last_error` is what the last one said."""

    def __init__(self, key: Key, retry_count: int, last_error: str | None) -> None:
        super().__init__(
            f"{key.operation} {key.value!r} failed and its {retry_count} retries are used up; "
            "resolve or release the record, or use a new key."
        )
        self.key = key
        self.retry_count = retry_count
        self.last_error = last_error


class OutcomeUnknown(UmavezError):
    """An earlier attempt may have had its effect and nobody can tell yet; `why`: no answer came in time."""

    def __init__(self, key: Key, why: str | None = None) -> None:
        because = "" if why is None else f" ({why})"
        super().__init__(
            f"Nobody knows whether {key.operation} {key.value!r} happened{because}; "
            "find out and say so with resolve(), or ask again later."
        )
        self.key = key
        self.why = why


class ClaimLost(UmavezError):
    """This attempt held the key and no longer does: another has taken over, so stop and undo."""

    def __init__(self, key: Key) -> None:
        super().__init__(
            f"The claim on {key.operation} {key.value!r} is lost and nothing more was recorded;"
            " stop, and undo what can be undone."
        )
        self.key = key


class NotStorable(UmavezError, TypeError):
    """A value cannot be kept. Where the effect has happened already, `value` is what it returned."""

    value: object = None


class OutcomeNotKept(UmavezError):
    """The operation happened once, but its value was too large or not storable, so it cannot be replayed."""

    def __init__(self, key: Key, reason: str) -> None:
        super().__init__(
            f"{key.operation} {key.value!r} has happened and will not run again, but its value was not kept ({reason})."
        )
        self.key = key
        self.reason = reason


class OutcomeUnreadable(NotStorable):
    """The operation has happened, but its kept value cannot be read here: another key, another version of a type."""

    def __init__(self, key: Key, why: object) -> None:
        super().__init__(
            f"{key.operation} {key.value!r} has happened and is not run again, but its value cannot be read here: {why}"
        )
        self.key = key


class Refused(UmavezError):
    """A final refusal was stored and its own exception type is not importable here."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class StoreError(UmavezError):
    """The store failed. `may_have_happened` says whether the write may stand all the same.

    `blocked`: it did not, because another transaction holds the record.
    """

    may_have_happened: bool = False
    blocked: bool = False

    def __init__(self, *args: object, waited: bool = False) -> None:
        super().__init__(*args)
        self.waited = waited
        """Whether a whole time-out went by before it failed: asking again at once would take as long."""


class StoreUnavailable(StoreError):
    """The store did not take the write; trying again is safe."""


class StoreUncertain(StoreError):
    """The store's answer was lost; the write may stand."""

    may_have_happened = True


class SchemaOutdated(StoreError):
    """The tables are missing, or were made by another version; run `umavez migrate --store URL`."""


TABLES_MISSING = "The tables of umavez are missing or older than this version; run: umavez migrate --store URL."
"""What SchemaOutdated says wherever a table or column is not there: one command makes them all."""
TABLE_FOREIGN = (
    "This database has a table idempotency_records that umavez did not make, and nothing was changed; rename that"
    " table, or name another database for the store."
)
"""What SchemaOutdated says where `umavez migrate` cannot help."""


@contextmanager
def needs(module: str, install: str) -> Iterator[None]:
    """Around the imports of `module`: one that fails says what to install, such as `umavez[metrics]`.

    It stays a ModuleNotFoundError with the name of what is missing. A module of umavez itself is not missing but wrong.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] in ("umavez", "umavez_systems"):
            raise
        raise ModuleNotFoundError(
            f"{module} needs {missing.name}, which is not installed; run: pip install '{install}'.", name=missing.name
        ) from missing
