"""umavez ("once"): makes any operation safe to retry.

from umavez import Once

once = Once("sqlite:///loja.db", scope="loja")

@once.operation("charge", key=lambda order_id: order_id, unknown="rerun")
def charge(order_id, amount): ...
"""

from umavez.aio import AsyncOnce
from umavez.aio_attempt import AsyncAttempt
from umavez.attempt import Attempt
from umavez.core.codec import Codec, JsonCodec
from umavez.core.fingerprint import fingerprint
from umavez.core.key import Key, derived_key
from umavez.core.policy import CannotTell, Happened, NotHappened, Policy
from umavez.core.record import Record, Status
from umavez.core.resolution import AlreadySettled, NoSuchRecord
from umavez.errors import (
    ClaimLost,
    ConfigurationError,
    InvalidKey,
    KeyReused,
    MaxRetriesExceeded,
    NotDeclared,
    NotStorable,
    OperationInProgress,
    OutcomeNotKept,
    OutcomeUnknown,
    Reentered,
    Refused,
    SchemaOutdated,
    StoreError,
    StoreUnavailable,
    StoreUncertain,
    UmavezError,
)
from umavez.once import Once
from umavez.outcome import Event, Outcome, Question
from umavez.stores import AsyncStore, Store, open_async_store, open_store

__all__ = [
    "AlreadySettled",
    "AsyncAttempt",
    "AsyncOnce",
    "AsyncStore",
    "Attempt",
    "CannotTell",
    "ClaimLost",
    "Codec",
    "ConfigurationError",
    "Event",
    "Happened",
    "InvalidKey",
    "JsonCodec",
    "Key",
    "KeyReused",
    "MaxRetriesExceeded",
    "NoSuchRecord",
    "NotDeclared",
    "NotHappened",
    "NotStorable",
    "Once",
    "OperationInProgress",
    "Outcome",
    "OutcomeNotKept",
    "OutcomeUnknown",
    "Policy",
    "Question",
    "Record",
    "Reentered",
    "Refused",
    "SchemaOutdated",
    "Status",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "StoreUncertain",
    "UmavezError",
    "derived_key",
    "fingerprint",
    "open_async_store",
    "open_store",
]
