"""The audit log: one structured line for each event, on the standard library's logging."""

from __future__ import annotations

import json
import logging

from umavez.core.key import Key
from umavez.engine.outcome import Event

LOUD = frozenset(("unknown", "lost", "exhausted", "mismatched", "taken_over", "resolved", "released"))
"""Kinds that an operator wants to see: they are warnings, the rest is information."""


class AuditLog:
    """Writes events as JSON lines to a logger, `umavez.audit` unless another is given."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("umavez.audit")

    def __call__(self, event: Event) -> None:
        """Write one event. JSON escapes control characters, so a key cannot forge a line."""
        level = logging.WARNING if event.kind in LOUD else logging.INFO
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", line(event))


def line(event: Event) -> str:
    """The event as one line of JSON. The key is shown by its digest, the scope and operation as they are."""
    return json.dumps(
        {
            "event": f"umavez.{event.kind}",
            "scope": event.key.scope,
            "operation": event.key.operation,
            "key": short(event.key),
            "attempt": event.attempt,
            "seconds": round(event.seconds, 6),
        }
    )


def short(key: Key) -> str:
    """The first 12 hex digits of the key's digest: enough to find the record, nothing about its value."""
    return key.digest.hex()[:12]
