"""Events as Redis keeps them: a list for each key, a JSON array for each event; and the processes, in one hash."""

from __future__ import annotations

import json
from typing import Any

from umavez.core.telling.events import EventDraft, PastEvent, Process


def rest_of(event: EventDraft, attempt: int, holder: str) -> bytes:
    """What stands in an event's array behind its time and its fence, which the script puts before it."""
    return json.dumps([event.kind, attempt, holder, event.detail, event.trace])[1:].encode()


def event_of(value: bytes) -> PastEvent:
    """The event in `value`."""
    at, fence, kind, attempt, holder, detail, trace = json.loads(value)
    return PastEvent(at, kind, attempt, fence, holder, detail, trace)


def head_of(process: Process) -> bytes:
    """A process as JSON, up to the times that the script puts behind it."""
    return json.dumps([*process[:5], 0])[:-1].encode()


def processes_of(values: list[Any]) -> list[Process]:
    """The processes in `values`; None where one was forgotten meanwhile."""
    return [Process(*json.loads(value)) for value in values if value is not None]
