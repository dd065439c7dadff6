"""Observers count, trace and write down what happens, without telling the key."""

from __future__ import annotations

import json
import logging

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from umavez import Key, Once, Status, StoreUnavailable, open_store
from umavez.core.record import Draft
from umavez.observe.audit import AuditLog
from umavez.observe.metrics import Metrics, StoreMetrics, scraped
from umavez.observe.tracing import Tracing
from umavez.testing import ManualClock

SECRET = "123.456.789-09"


def twice(once: Once) -> None:
    for _ in range(2):
        once.run("charge", key=SECRET, call=lambda: "done", unknown="rerun")


def test_events_are_counted_by_operation_and_kind() -> None:
    registry = CollectorRegistry()
    twice(Once("memory:", scope="shop", observers=[Metrics(registry)]))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("umavez_events_total", operation="charge", kind="succeeded") == 1
    assert value("umavez_events_total", operation="charge", kind="replayed") == 1
    assert value("umavez_attempt_seconds_count", operation="charge") == 1


def test_x_05_the_age_of_the_oldest_unknown_is_asked_for_at_every_scrape() -> None:
    registry, clock = CollectorRegistry(), ManualClock()
    once = Once(open_store("memory:", clock=clock), scope="shop")
    StoreMetrics(once.store, registry, most=2)

    def value(name: str) -> float | None:
        return registry.get_sample_value(name)

    assert (value("umavez_store_up"), value("umavez_oldest_unknown_seconds")) == (1, 0)
    for number in range(3):
        once.store.swap(None, Draft(Key("shop", "pay", f"{number}"), f"s{number}", Status.UNKNOWN, True))
    once.store.swap(None, Draft(Key("shop", "pay", "gone"), "gone", Status.PENDING, True, lease=1000))
    clock.advance(12.5)
    assert value("umavez_oldest_unknown_seconds") == 12.5
    assert (value("umavez_unknown_records"), value("umavez_lapsed_records")) == (2, 1)
    assert value("umavez_oldest_lapsed_seconds") == 12.5


def test_x_05_a_store_that_does_not_answer_is_told_and_fails_no_scrape() -> None:
    class Gone:
        def find(self, _: object) -> list[object]:
            raise StoreUnavailable("nobody there")

    counted, asked = CollectorRegistry(), CollectorRegistry()
    StoreMetrics(Gone(), asked)  # type: ignore[arg-type]  # as much of a store as a scrape asks

    text = scraped(counted, asked).decode()
    assert "umavez_store_up 0.0" in text
    assert "oldest_unknown" not in text


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
