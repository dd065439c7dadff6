"""Observers count, trace and write down what happens, without telling the key."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from umavez import Once, StoreUnavailable
from umavez.observe.audit import AuditLog
from umavez.stores.memory import MemoryStore
from umavez.testing import ManualClock

SECRET = "123.456.789-09"


def twice(once: Once) -> None:
    for _ in range(2):
        once.run("charge", key=SECRET, call=lambda: "done", unknown="rerun")


def test_the_audit_log_is_one_line_of_json_each_and_never_the_key(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "umavez.audit"):
        twice(Once("memory:", scope="shop\nforged", observers=[AuditLog()]))

    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert [line["event"] for line in lines] == ["umavez.succeeded", "umavez.replayed"]
    assert lines[0]["scope"] == "shop\nforged"
    assert not any("\n" in record.getMessage() or SECRET in record.getMessage() for record in caplog.records)


def test_the_fields_of_a_line_stand_on_its_record_with_the_trace(caplog: pytest.LogCaptureFixture) -> None:
    tracer = TracerProvider().get_tracer("test")
    with caplog.at_level(logging.INFO, "umavez.audit"), tracer.start_as_current_span("request") as span:
        twice(Once("memory:", scope="shop", observers=[AuditLog()]))

    traced = f"{span.get_span_context().trace_id:032x}"
    for record in caplog.records:
        fields = json.loads(record.getMessage())
        assert fields["trace_id"] == traced
        assert {name: record.__dict__[name] for name in fields} == fields


def test_a_takeover_and_every_failure_of_the_store_are_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    class Flaky(MemoryStore):
        away = False

        def swap(self, expected: str | None, draft: object) -> Any:
            if self.away:
                raise StoreUnavailable("The store cannot be reached.") from OSError(f"password={SECRET}")
            return super().swap(expected, draft)  # type: ignore[arg-type]  # whatever a store takes

    clock = ManualClock()
    store = Flaky(clock)
    once = Once(store, scope="shop", observers=[AuditLog()])
    crashed = once.plans.of("charge", {"unknown": "rerun", "lease": 1.0})
    once._admission.enter(crashed, crashed.intent(SECRET, None, None, None, None))
    clock.advance(60)
    with caplog.at_level(logging.WARNING, "umavez.audit"):
        twice(once)
        store.away = True
        with pytest.raises(StoreUnavailable):
            twice(once)

    told = [json.loads(record.getMessage()) for record in caplog.records]
    assert [line["event"] for line in told] == ["umavez.taken_over", "umavez.store_failed"]
    assert (told[1]["verb"], told[1]["error_type"], told[1]["cause"]) == ("swap", "StoreUnavailable", "OSError")
    assert SECRET not in caplog.text


def test_an_observer_that_fails_does_not_fail_the_operation(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("counter is down")

    once = Once("memory:", scope="shop", observers=[broken])

    assert once.run("charge", key="1", call=lambda: 7, unknown="rerun").value == 7
    assert "An observer failed" in caplog.text
