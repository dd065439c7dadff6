"""Traces: events on the current OpenTelemetry span. Needs umavez[tracing]; nearly free without a tracer."""

from __future__ import annotations

from opentelemetry import trace

from umavez.engine.outcome import Event
from umavez.observe.audit import short


class Tracing:
    """Adds each event to the span that is current where it happens."""

    def __call__(self, event: Event) -> None:
        """Add one event. Does nothing where no span is recording."""
        span = trace.get_current_span()
        if not span.is_recording():
            return
        attributes: dict[str, str | int] = {
            "umavez.operation": event.key.operation,
            "umavez.key": short(event.key),
            "umavez.attempt": event.attempt,
        }
        span.add_event(f"umavez.{event.kind}", attributes)
        span.set_attribute("umavez.replayed", event.kind == "replayed")
