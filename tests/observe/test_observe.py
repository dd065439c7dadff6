"""Observers count, trace and write down what happens, without telling the key."""

from __future__ import annotations

import json
import logging

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from umavez import Once
from umavez.observe.audit import AuditLog
from umavez.observe.tracing import Tracing

SECRET = "123.456.789-09"


def twice(once: Once) -> None:
    for _ in range(2):
        once.run("charge", key=SECRET, call=lambda: "done", unknown="rerun")


def test_events_stand_on_the_current_span() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    once = Once("memory:", scope="shop", observers=[Tracing()])

    with provider.get_tracer("test").start_as_current_span("request"):
        twice(once)
    twice(once)

    (span,) = exporter.get_finished_spans()
    assert [event.name for event in span.events] == ["umavez.succeeded", "umavez.replayed"]
    assert set(span.events[0].attributes or {}) == {"umavez.operation", "umavez.key", "umavez.attempt"}
    assert SECRET not in str(span.to_json())


def test_the_audit_log_is_one_line_of_json_each_and_never_the_key(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "umavez.audit"):
        twice(Once("memory:", scope="shop\nforged", observers=[AuditLog()]))

    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert [line["event"] for line in lines] == ["umavez.succeeded", "umavez.replayed"]
    assert lines[0]["scope"] == "shop\nforged"
    assert not any("\n" in record.getMessage() or SECRET in record.getMessage() for record in caplog.records)


def test_an_observer_that_fails_does_not_fail_the_operation(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("counter is down")

    once = Once("memory:", scope="shop", observers=[broken])

    assert once.run("charge", key="1", call=lambda: 7, unknown="rerun").value == 7
    assert "An observer failed" in caplog.text
