"""Failures: a store that fails behind HTTP is one log line for the operator, whatever the client is told."""

from __future__ import annotations

import logging

from umavez.core.key import Key
from umavez.errors import OutcomeUnreadable, SchemaOutdated, StoreError

LOG = logging.getLogger("umavez.http")


def note_failure(error: BaseException, key: Key, told: str) -> None:
    """Log what failed at the store with the digest of the request's key; any other error is passed over.

    What time alone does not mend (missing tables, a value that cannot be read here) is an ERROR.
    """
    if not isinstance(error, StoreError | OutcomeUnreadable):
        return
    level = logging.ERROR if isinstance(error, SchemaOutdated | OutcomeUnreadable) else logging.WARNING
    cause = "" if error.__cause__ is None else f" ({type(error.__cause__).__name__})"
    LOG.log(level, "%s: the store failed, key digest %s, %s: %s%s", key.operation, key.digest.hex(), told, error, cause)
