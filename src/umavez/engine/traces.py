"""Traces in events: where an OpenTelemetry span is current, an event keeps its trace. Nothing is imported for it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from umavez.core.record import Draft
from umavez.core.telling.events import EventDraft, holder_of
from umavez.core.telling.origin import originated, whence


def traced(event: EventDraft) -> EventDraft:
    """The event with the current trace, in hexadecimal digits as tracers print it; as it is where there is none."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return event
    context = api.get_current_span().get_span_context()
    return event._replace(trace=f"{context.trace_id:032x}") if context.is_valid else event


def with_origin(draft: Draft, followed: Iterable[tuple[Any, Any]]) -> Draft:
    """The draft with the span that one of those who follow its run has made, for a claim that came from none."""
    for follower, _ in followed:
        trace = follower.traceparent() if hasattr(follower, "traceparent") else None
        from_where = whence(trace)
        if from_where is not None:
            return draft._replace(origin=originated(holder_of(draft.stamp), from_where))
    return draft


def with_trace(draft: Draft) -> Draft:
    """The draft, its event with the current trace."""
    return draft if draft.event is None else draft._replace(event=traced(draft.event))


def trace_fields() -> dict[str, str]:
    """The current span of OpenTelemetry, where there is one; whether it is installed is not for this module to ask."""
    tracing = sys.modules.get("opentelemetry.trace")
    if tracing is None:
        return {}
    found = tracing.get_current_span().get_span_context()
    if not found.is_valid:
        return {}
    return {"trace_id": f"{found.trace_id:032x}", "span_id": f"{found.span_id:016x}"}
