"""MessageTracing: spans of messages, and the trace they are part of, carried in their headers.

The names are those of OpenTelemetry's conventions for messaging: `create` where a message is written, `send` where a
relay hands it to the broker, `process` around its handler, which goes on with the trace that created the message.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from umavez.engine.observing import error_type
from umavez.errors import needs
from umavez.messaging.message import MAX_HEADERS, Message
from umavez.messaging.observing import MessageObserver

with needs(__name__, "umavez[tracing]"):
    from opentelemetry import context, metrics, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

EACH = 100
"""Messages written at once, above which one span stands for all of them."""
LINKS = 128
"""Messages of one batch that a span is linked to."""
ROOM = 1024
"""Bytes that the headers of the trace may take; a message that has no such room goes without them."""

_CARRIER = TraceContextTextMapPropagator()
"""The trace alone, never baggage: what callers put there may be secret, and has no bound."""


class Handled(NamedTuple):
    """A handler that runs: its span, the context before it, and since when."""

    span: trace.Span
    before: Any
    began: float
    about: dict[str, Any]


class MessageTracing(MessageObserver):
    """Give it to Outbox, Relay and Consumer. Does nothing where no provider is set."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        *,
        system: str = "umavez",
    ) -> None:
        self._tracer = trace.get_tracer("umavez", tracer_provider=tracer_provider)
        self._system = system
        meter = metrics.get_meter("umavez", meter_provider=meter_provider)
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}")
        self._operations = meter.create_histogram("messaging.client.operation.duration", "s")
        self._processes = meter.create_histogram("messaging.process.duration", "s")

    def created(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages with the trace that creates them; one that has a trace already keeps it."""
        if len(messages) <= EACH:
            return [self._created([message], message.topic)[0] for message in messages]
        return self._created(messages, _topic(messages))

    def _created(self, messages: Sequence[Message], topic: str | None) -> Sequence[Message]:
        span = self._begun("create", topic, trace.SpanKind.PRODUCER, messages)
        if span is None:
            return messages
        carried: dict[str, str] = {}
        _CARRIER.inject(carried, trace.set_span_in_context(span))
        span.end()
        return [_carrying(message, carried) for message in messages]

    def sending(self, messages: Sequence[Message]) -> tuple[trace.Span | None, float, str | None]:
        """A relay hands these over; the span is linked to those that created them."""
        topic = _topic(messages)
        span = self._begun("send", topic, trace.SpanKind.CLIENT, messages, _links(messages))
        return span, time.perf_counter(), topic

    def sent(self, token: Any, published: Sequence[Message], error: BaseException | None) -> None:
        """It is over."""
        if token is None:
            return
        span, began, topic = token
        about = self._about("send", topic) | ({} if error is None else {"error.type": error_type(error)})
        self._operations.record(time.perf_counter() - began, about)
        if published:
            self._sent.add(len(published), about)
        _end(span, error)

    def received(self, subscriber: str, message: Message, attempts: int) -> Handled:
        """A handler starts: a span that goes on with the trace of the message, and is the current one."""
        creator = _creator(message)
        before = context.get_current()
        parent = trace.set_span_in_context(trace.NonRecordingSpan(creator)) if creator.is_valid else before
        links = [trace.Link(creator)] if creator.is_valid else []
        about = self._about("process", message.topic) | {"messaging.consumer.group.name": subscriber}
        span = self._tracer.start_span(f"process {message.topic}", parent, trace.SpanKind.CONSUMER, links=links)
        if span.is_recording():
            span.set_attributes({**about, "messaging.message.id": message.id, "umavez.attempt": attempts})
            context.attach(trace.set_span_in_context(span, before))
        return Handled(span, before, time.perf_counter(), about)

    def handled(self, token: Handled | None, outcome: str, error: BaseException | None) -> None:
        """It has ended, and its span with it."""
        if token is None:
            return
        if trace.get_current_span() is token.span:
            context.attach(token.before)
        about = token.about | ({} if error is None else {"error.type": error_type(error)})
        self._processes.record(time.perf_counter() - token.began, about)
        self._consumed.add(1, about)
        if token.span.is_recording():
            token.span.set_attribute("umavez.outcome", outcome)
        _end(token.span, error)

    def settling(self, subscriber: str, messages: Sequence[Message], how: str) -> tuple[trace.Span | None, float, Any]:
        """The broker is told of their fate; linked to those that created them."""
        topic = _topic(messages)
        span = self._begun("settle", topic, trace.SpanKind.CLIENT, messages, _links(messages))
        about = self._about("settle", topic) | {"messaging.consumer.group.name": subscriber}
        if span is not None:
            span.set_attributes({"messaging.consumer.group.name": subscriber, "umavez.outcome": how})
        return span, time.perf_counter(), about

    def settled(self, token: Any, error: BaseException | None) -> None:
        """It was told, or could not be."""
        if token is None:
            return
        span, began, about = token
        told = about | ({} if error is None else {"error.type": error_type(error)})
        self._operations.record(time.perf_counter() - began, told)
        _end(span, error)

    def _begun(
        self,
        operation: str,
        topic: str | None,
        kind: trace.SpanKind,
        messages: Sequence[Message],
        links: Sequence[trace.Link] = (),
    ) -> trace.Span | None:
        """A span about these messages; None where nobody records it."""
        span = self._tracer.start_span(operation if topic is None else f"{operation} {topic}", kind=kind, links=links)
        if not span.is_recording():
            return None
        span.set_attributes(self._about(operation, topic))
        if len(messages) == 1:
            span.set_attribute("messaging.message.id", messages[0].id)
        else:
            span.set_attribute("messaging.batch.message_count", len(messages))
        return span

    def _about(self, operation: str, topic: str | None) -> dict[str, Any]:
        told = {
            "messaging.system": self._system,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
        }
        return told if topic is None else told | {"messaging.destination.name": topic}


def _topic(messages: Sequence[Message]) -> str | None:
    """The one topic of all of them; None where there are several."""
    topics = {message.topic for message in messages}
    return topics.pop() if len(topics) == 1 else None


def _links(messages: Sequence[Message]) -> list[trace.Link]:
    return [trace.Link(found) for message in messages[:LINKS] if (found := _creator(message)).is_valid]


def _creator(message: Message) -> trace.SpanContext:
    """The span that created a message, as its headers say; one that is not valid where they do not."""
    return trace.get_current_span(_CARRIER.extract(dict(message.headers), context.Context())).get_span_context()


def _carrying(message: Message, carried: dict[str, str]) -> Message:
    taken = sum(len(name.encode()) + len(value.encode()) for name, value in message.headers.items())
    if "traceparent" in message.headers or taken > MAX_HEADERS - ROOM:
        return message
    return replace(message, headers={**message.headers, **carried})


def _end(span: trace.Span | None, error: BaseException | None) -> None:
    if span is None:
        return
    if error is not None:
        span.set_attribute("error.type", error_type(error))
        span.set_status(trace.Status(trace.StatusCode.ERROR))
    span.end()
