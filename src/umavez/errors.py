"""Every exception of umavez.

UmavezError
    InvalidKey              the key is empty, too long or not text                 HTTP 400
    NotDeclared             the operation does not say what an unknown outcome means
    KeyReused               the key was used for something else                    HTTP 422
    OperationInProgress     another attempt holds the key; see retry_after         HTTP 409
        Reentered           the running attempt asked for its own key
    MaxRetriesExceeded      every allowed attempt has failed                       HTTP 409
    OutcomeUnknown          it may have happened; somebody must find out           HTTP 409
    ClaimLost               this attempt was overtaken: undo what can be undone
    NotStorable             the value cannot be kept
    OutcomeNotKept          it happened, but its value was not kept for replay
    Refused                 a stored final refusal whose own type is not at hand
    StoreError              the store failed; see may_have_happened
        StoreUnavailable    nothing was written; try again freely
        StoreUncertain      the answer was lost; the write may stand
        SchemaOutdated      the tables are missing or older than this version
    ConfigurationError      a URL, driver or setting is wrong

Each carries its data as attributes; messages never hold values, results or secrets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from umavez.core.key import Key


class UmavezError(Exception):
    """Whatever umavez has to say that is not a result."""


class InvalidKey(UmavezError, ValueError):
    """The key cannot name an effect: empty, above 255 characters, or not text."""


class NotDeclared(UmavezError, TypeError):
    """The operation was declared without saying what an unknown outcome means."""


class ConfigurationError(UmavezError, ValueError):
    """A URL, a driver or a setting is wrong; the message says which and what to do."""


class KeyReused(UmavezError):
    """The key was first used for another request."""

    def __init__(self, key: Key) -> None:
        super().__init__(
            f"The key of {key.operation} {key.value!r} was used before with other content; "
            "send the original content again or use a new key."
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
    """An earlier attempt may have had its effect and nobody can tell yet."""

    def __init__(self, key: Key) -> None:
        super().__init__(
            f"Nobody knows whether {key.operation} {key.value!r} happened; "
            "find out and say so with resolve(), or ask again later."
        )
        self.key = key


class ClaimLost(UmavezError):
    """This attempt held the key and no longer does: another has taken over, so stop and undo."""

    def __init__(self, key: Key) -> None:
        super().__init__(f"The claim on {key.operation} {key.value!r} was lost; nothing more was recorded.")
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


class Refused(UmavezError):
    """A final refusal was stored and its own exception type is not importable here."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class StoreError(UmavezError):
    """The store failed. `may_have_happened` says whether the write may stand all the same."""

    may_have_happened: bool = False


class StoreUnavailable(StoreError):
    """The store did not take the write; trying again is safe."""


class StoreUncertain(StoreError):
    """The store's answer was lost; the write may stand."""

    may_have_happened = True


class SchemaOutdated(StoreError):
    """The tables are missing, or were made by another version; run `umavez migrate`."""
