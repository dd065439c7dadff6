"""Traces in events: where an OpenTelemetry span is current, an event keeps its trace. Nothing is imported for it."""

from __future__ import annotations

import sys

from umavez.core.record import Draft
from umavez.core.telling.events import EventDraft


def traced(event: EventDraft) -> EventDraft:
    """The event with the current trace, in hexadecimal digits as tracers print it; as it is where there is none."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return event
    context = api.get_current_span().get_span_context()
    return event._replace(trace=f"{context.trace_id:032x}") if context.is_valid else event


def with_trace(draft: Draft) -> Draft:
    """The draft, its event with the current trace."""
    return draft if draft.event is None else draft._replace(event=traced(draft.event))
