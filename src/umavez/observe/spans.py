"""Tracing: a span for each attempt whose code runs, and what became of calls that ran nothing."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from umavez.core.key import Key
from umavez.engine.outcome import Event
from umavez.errors import needs
from umavez.observe.audit import short

with needs(__name__, "umavez[tracing]"):
    from opentelemetry import context, trace

REMEMBERED = 4096
"""Keys whose attempt's span is remembered, so that a replay in this process can point to it."""

NOTED = frozenset(("replayed", "held", "busy", "mismatched", "exhausted"))
"""Kinds that end a call without a run: they are told by the caller's own span."""

WELL = frozenset(("succeeded", "adopted", "refused"))
"""Outcomes that are no error of the attempt: a refusal is an answer."""

OPERATION = "umavez.operation"


def _context_of(traceparent: str | None) -> trace.SpanContext | None:
    if traceparent is None:
        return None
    _, trace_id, span_id, flags = traceparent.split("-")
    return trace.SpanContext(int(trace_id, 16), int(span_id, 16), True, trace.TraceFlags(int(flags, 16)))


class Tracing:
    """An observer that makes spans `umavez {operation}`, with the provider that is set when they begin.

    A call that runs nothing makes no span: the caller's own, if it records, is told the outcome unless it has one, and
    counts replays. A replay is linked to the span that made its answer: in this process, or in another that traced its
    calls, too. Keys are told by the first digits of their digest.
    """

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("umavez", tracer_provider=tracer_provider)
        self._made: OrderedDict[bytes, trace.SpanContext] = OrderedDict()
        # A signal handler may make a call while its own thread is inside: it must not wait for itself.
        self._lock = threading.RLock()

    def started(self, key: Key, attempt: int, fence: int) -> tuple[trace.Span, Any, bytes] | None:
        """The code of an attempt starts, in a span of its own."""
        span = self._tracer.start_span(f"umavez {key.operation}")
        if not span.is_recording():
            return None
        span.set_attributes(
            {
                OPERATION: key.operation,
                "umavez.key.digest": short(key),
                "umavez.attempt": attempt,
                "umavez.fence": fence,
            }
        )
        before = context.get_current()
        context.attach(trace.set_span_in_context(span, before))
        return span, before, key.digest

    def ended(self, token: tuple[trace.Span, Any, bytes] | None, outcome: str, error: str) -> None:
        """It is over, and so is its span."""
        if token is None:
            return
        span, before, digest = token
        if trace.get_current_span() is span:
            # Not by the token of `attach`: a block may be left in another context than it was entered in.
            context.attach(before)
        span.set_attribute("umavez.outcome", outcome)
        if error and outcome not in WELL:
            span.set_attribute("error.type", error)
            span.set_status(trace.Status(trace.StatusCode.ERROR))
        span.end()
        if outcome in WELL:
            self._remember(digest, span.get_span_context())

    def __call__(self, event: Event) -> None:
        """Tell the caller's span of a call that ran nothing. Does nothing where no span is recording."""
        if event.kind not in NOTED:
            return
        span = trace.get_current_span()
        if not span.is_recording():
            return
        known: Any = getattr(span, "attributes", None) or {}
        told: dict[str, Any] = {
            OPERATION: event.key.operation,
            "umavez.key.digest": short(event.key),
            "umavez.attempt": event.attempt,
            "umavez.outcome": event.kind,
        }
        if OPERATION not in known:
            # Neither an attempt's own span, nor one that was told of another call: the first word stays.
            span.set_attributes(told)
        if event.kind == "replayed":
            span.set_attribute("umavez.replays", known.get("umavez.replays", 0) + 1)
            self._link(span, event, told)

    def traceparent(self) -> str | None:
        """The current span, as a claim keeps where it came from; None where there is none."""
        found = trace.get_current_span().get_span_context()
        if not found.is_valid:
            return None
        return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"

    def _link(self, span: trace.Span, event: Event, told: dict[str, Any]) -> None:
        with self._lock:
            made = self._made.get(event.key.digest)
        if made is None and event.origin is not None:
            made = _context_of(event.origin.trace)
        if made is not None:
            span.add_link(made, told)

    def _remember(self, digest: bytes, made: trace.SpanContext) -> None:
        with self._lock:
            self._made[digest] = made
            self._made.move_to_end(digest)
            if len(self._made) > REMEMBERED:
                self._made.popitem(last=False)
