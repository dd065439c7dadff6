"""umavez ("once"): makes any operation safe to retry.

from umavez import Once

once = Once("sqlite:///loja.db", scope="loja")

@once.operation("charge", key=lambda order_id: order_id, unknown="rerun")
def charge(order_id, amount): ...
"""

from umavez._async.attempt import AsyncAttempt
from umavez._async.once import AsyncOnce
from umavez._sync.attempt import Attempt
from umavez._sync.once import Once
from umavez.console import console
from umavez.core.encoding.codec import Codec, JsonCodec
from umavez.core.encoding.fingerprint import fingerprint
from umavez.core.encoding.json_text import BoundedJson
from umavez.core.key import Key, derived_key
from umavez.core.policy import CannotTell, Happened, NotHappened, Policy
from umavez.core.record import Record, Status
from umavez.core.resolution import AlreadySettled, NoSuchRecord, RecordChanged
from umavez.current import current_attempt
from umavez.engine.outcome import Event, Outcome, Question
from umavez.errors import (
    ClaimLost,
    ConfigurationError,
    Crowded,
    InvalidJson,
    InvalidKey,
    KeyReused,
    MaxRetriesExceeded,
    NoAttempt,
    NotDeclared,
    NotStorable,
    OperationInProgress,
    OutcomeNotKept,
    OutcomeUnknown,
    OutcomeUnreadable,
    Reentered,
    Refused,
    ReplayIgnored,
    SchemaOutdated,
    StoreError,
    StoreUnavailable,
    StoreUncertain,
    UmavezError,
)
from umavez.stores import AsyncStore, Store, open_async_store, open_store

__all__ = [
    "AlreadySettled",
    "AsyncAttempt",
    "AsyncOnce",
    "AsyncStore",
    "Attempt",
    "BoundedJson",
    "CannotTell",
    "ClaimLost",
    "Codec",
    "ConfigurationError",
    "Crowded",
    "Event",
    "Happened",
    "InvalidJson",
    "InvalidKey",
    "JsonCodec",
    "Key",
    "KeyReused",
    "MaxRetriesExceeded",
    "NoAttempt",
    "NoSuchRecord",
    "NotDeclared",
    "NotHappened",
    "NotStorable",
    "Once",
    "OperationInProgress",
    "Outcome",
    "OutcomeNotKept",
    "OutcomeUnknown",
    "OutcomeUnreadable",
    "Policy",
    "Question",
    "Record",
    "RecordChanged",
    "Reentered",
    "Refused",
    "ReplayIgnored",
    "SchemaOutdated",
    "Status",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "StoreUncertain",
    "UmavezError",
    "console",
    "current_attempt",
    "derived_key",
    "fingerprint",
    "open_async_store",
    "open_store",
]
