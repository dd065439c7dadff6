"""The audit log: one structured line for each event and each failure of the store, on the standard library's logging.

The message is a line of JSON; the same fields stand on the record (`extra=`), so that structlog, OTLP handlers and
formatters of one's own get them without parsing.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from umavez.core.key import Key
from umavez.engine.outcome import Event
from umavez.engine.traces import trace_fields
from umavez.errors import SchemaOutdated

__all__ = ["LOUD", "AuditLog", "failure", "fields", "short", "trace_fields"]

LOUD = frozenset(("unknown", "lost", "exhausted", "mismatched", "taken_over", "resolved", "released"))
"""Kinds that an operator wants to see: they are warnings, the rest is information."""


class AuditLog:
    """Writes events as JSON lines to a logger, `umavez.audit` unless another is given."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("umavez.audit")

    def __call__(self, event: Event) -> None:
        """Write one event. JSON escapes control characters, so a key cannot forge a line."""
        self._write(logging.WARNING if event.kind in LOUD else logging.INFO, fields, event)

    def answered(self, store: str, verb: str, seconds: float, error: BaseException | None) -> None:
        """Write one line for a store that failed; what time alone does not mend is an ERROR."""
        if error is not None:
            level = logging.ERROR if isinstance(error, SchemaOutdated) else logging.WARNING
            self._write(level, failure, store, verb, seconds, error)

    def _write(self, level: int, make: Any, *about: Any) -> None:
        if self._logger.isEnabledFor(level):
            told = make(*about) | trace_fields()
            self._logger.log(level, "%s", json.dumps(told), extra=told)


def fields(event: Event) -> dict[str, Any]:
    """What is told of an event. The key is shown by its digest, the scope and operation as they are."""
    told = {
        "event": f"umavez.{event.kind}",
        "scope": event.key.scope,
        "operation": event.key.operation,
        "key": short(event.key),
        "attempt": event.attempt,
        "seconds": round(event.seconds, 6),
    }
    if event.fence:
        told["fence"] = event.fence
    if event.error:
        told["error_type"] = event.error
    return told


def failure(store: str, verb: str, seconds: float, error: BaseException) -> dict[str, Any]:
    """What is told of a store that failed: umavez's own sentence, and of what the driver said the type alone."""
    told = {
        "event": "umavez.store_failed",
        "store": store,
        "verb": verb,
        "seconds": round(seconds, 6),
        "error_type": type(error).__name__,
        "detail": str(error),
    }
    if error.__cause__ is not None:
        told["cause"] = type(error.__cause__).__name__
    return told


def short(key: Key) -> str:
    """The first 12 hex digits of the key's digest: enough to find the record, nothing about its value."""
    return key.digest.hex()[:12]
