"""Traces: a span where code runs, nothing overwritten by a replay, and one trace from the outbox to the handler."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from umavez import AsyncOnce, Once, OutcomeUnknown
from umavez.messaging import Consumer, ConsumerSettings, Database, Inbox, LocalBroker, Message, Outbox, Relay
from umavez.messaging.message import MAX_HEADERS
from umavez.observe.spans import REMEMBERED
from umavez.observe.tracing import MessageTracing, Tracing
from umavez.sql.database import writing

SECRET = "123.456.789-09"


class Traced:
    """A provider of its own, and what ended in it."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(self.provider)
        self.request = self.provider.get_tracer("test").start_as_current_span

    def spans(self, name: str = "") -> list[Any]:
        return [span for span in self._exporter.get_finished_spans() if name in span.name]

    def one(self, name: str) -> Any:
        (span,) = self.spans(name)
        return span


def engine(traced: Traced) -> Once:
    return Once("memory:", scope="shop", observers=[traced.tracing])


def pay(once: Once, key: str = SECRET) -> None:
    once.run("pay", key=key, call=lambda: 7, unknown="rerun")


def test_an_attempt_is_a_span_and_a_replay_points_to_it() -> None:
    traced = Traced()
    once = engine(traced)
    with traced.request("first"):
        pay(once)
    with traced.request("repeat"):
        pay(once)

    first, attempt, repeat = traced.one("first"), traced.one("umavez pay"), traced.one("repeat")
    assert (attempt.kind, attempt.parent.span_id) == (SpanKind.INTERNAL, first.context.span_id)
    assert attempt.attributes["umavez.outcome"] == "succeeded"
    assert (attempt.attributes["umavez.operation"], attempt.attributes["umavez.attempt"]) == ("pay", 1)
    assert attempt.attributes["umavez.fence"] > 0
    assert (repeat.attributes["umavez.outcome"], repeat.attributes["umavez.replays"]) == ("replayed", 1)
    assert [link.context.span_id for link in repeat.links] == [attempt.context.span_id]
    assert "umavez.outcome" not in first.attributes
    assert SECRET not in str([span.to_json() for span in traced.spans()])


def test_a_replay_overwrites_nothing_and_neither_does_what_comes_after_it() -> None:
    traced = Traced()
    once = engine(traced)
    pay(once, "1")

    def inside() -> int:
        pay(once, "1")
        return 7

    with traced.request("request"):
        once.run("order", key="2", call=inside, unknown="rerun")
        pay(once, "1")
        pay(once, "3")

    outer, request = traced.one("umavez order"), traced.one("request")
    assert (outer.attributes["umavez.operation"], outer.attributes["umavez.outcome"]) == ("order", "succeeded")
    assert outer.attributes["umavez.replays"] == 1
    assert request.attributes["umavez.outcome"] == "replayed"
    assert len(traced.spans("umavez pay")) == 2


def test_an_attempt_that_failed_names_its_error_and_a_refused_caller_has_no_span() -> None:
    traced = Traced()
    once = engine(traced)

    def dead() -> None:
        raise ConnectionResetError(SECRET)

    with pytest.raises(ConnectionResetError):
        once.run("pay", key="1", call=dead, unknown="hold")
    with traced.request("request"), pytest.raises(OutcomeUnknown):
        once.run("pay", key="1", call=dead, unknown="hold")

    span = traced.one("umavez pay")
    assert (span.attributes["umavez.outcome"], span.attributes["error.type"]) == ("unknown", "ConnectionResetError")
    assert not span.status.is_ok
    assert traced.one("request").attributes["umavez.outcome"] == "held"
    assert trace.get_current_span() is trace.INVALID_SPAN
    assert SECRET not in span.to_json()


def test_blocks_of_tasks_have_their_spans_and_leave_none_behind() -> None:
    traced = Traced()

    async def one(once: AsyncOnce, key: str) -> None:
        with traced.request(f"task {key}"):
            async with once.attempt("pay", key=key, unknown="rerun") as attempt:
                assert not attempt.replayed
                await asyncio.sleep(0)

    async def work() -> None:
        async with AsyncOnce("memory:", scope="shop", observers=[traced.tracing]) as once:
            await asyncio.gather(*(one(once, str(number)) for number in range(5)))

    asyncio.run(work())
    parents = {span.context.span_id: span.name for span in traced.spans("task")}
    found = {parents[span.parent.span_id] for span in traced.spans("umavez pay")}
    assert found == {f"task {number}" for number in range(5)}


def test_only_so_many_spans_are_remembered() -> None:
    traced = Traced()
    once = engine(traced)
    for number in range(REMEMBERED + 10):
        pay(once, str(number))
    assert len(traced.tracing._made) == REMEMBERED


def test_without_a_provider_nothing_is_recorded_or_carried() -> None:
    tracing, message = MessageTracing(), Message("paid", "1")
    if trace.get_tracer_provider().__class__.__name__ != "ProxyTracerProvider":
        pytest.skip("another test has set a provider for this process")
    assert Tracing().started(Once("memory:", scope="s").plans.any("pay").key("1", None), 1, 1) is None
    assert tracing.created([message])[0].headers == {}


def test_a_trace_goes_from_the_outbox_through_the_relay_into_the_handlers_inbox(tmp_path: Path) -> None:
    traced, reader = Traced(), InMemoryMetricReader()
    messages = MessageTracing(traced.provider, MeterProvider([reader]))
    url = f"sqlite:///{tmp_path}/once.db?journal=delete"
    with Once(url, scope="shop", observers=[traced.tracing]) as once:
        once.migrate()
        with writing(url, "tables") as connection:
            Outbox().migrate(connection)
        asyncio.run(_carry(url, once, messages, traced))

    request, create, send = traced.one("request"), traced.one("create paid"), traced.one("send paid")
    process, attempt, settle = traced.one("process paid"), traced.one("umavez paid"), traced.one("settle paid")
    assert [span.kind for span in (create, send, process)] == [SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CONSUMER]
    assert create.parent.span_id == request.context.span_id
    assert [link.context.span_id for link in send.links] == [create.context.span_id]
    assert process.parent.span_id == create.context.span_id
    assert (settle.kind, settle.attributes["umavez.outcome"]) == (SpanKind.CLIENT, "finish")
    assert [link.context.span_id for link in settle.links] == [create.context.span_id]
    assert attempt.parent.span_id == process.context.span_id
    assert {span.context.trace_id for span in (request, create, process, attempt)} == {request.context.trace_id}
    told = process.attributes
    assert (told["messaging.destination.name"], told["messaging.operation.type"]) == ("paid", "process")
    assert told["messaging.message.id"] == create.attributes["messaging.message.id"]
    data: Any = reader.get_metrics_data()
    names = {metric.name for part in data.resource_metrics for scope in part.scope_metrics for metric in scope.metrics}
    assert {"messaging.client.sent.messages", "messaging.process.duration"} <= names


async def _carry(url: str, once: Once, messages: MessageTracing, traced: Traced) -> None:
    database, stop = Database(url), asyncio.Event()
    broker, inbox = LocalBroker(database), Inbox(once, "mailer")

    def write() -> None:
        with traced.request("request"), writing(url, "tables") as connection:
            Outbox(observers=[messages]).append(connection, Message("paid", "1"))

    async def handle(message: Message) -> None:
        assert "traceparent" in message.headers
        with writing(url, "tables") as connection:
            assert inbox.handle(connection, message, lambda _: None)
        stop.set()

    try:
        await (await broker.subscribe("mailer", ["paid"])).close()
        write()
        assert await Relay(database, broker, observers=[messages]).step() == 1
        settings = ConsumerSettings(wait=0.01)
        await asyncio.wait_for(
            Consumer(broker, "mailer", ["paid"], handle, settings, observers=[messages]).run(stop), 20
        )
    finally:
        await broker.close()
        await database.close()


def test_a_message_keeps_a_trace_it_has_and_full_headers_are_left_alone() -> None:
    messages = MessageTracing(Traced().provider)
    own = Message("paid", "1", headers={"traceparent": f"00-{1:032x}-{2:016x}-01"})
    full = Message("paid", "1", headers={"note": "x" * (MAX_HEADERS - 10)})
    fresh = Message("paid", "1")

    kept, left, carried = messages.created([own, full, fresh])
    assert (kept.headers, left.headers) == (own.headers, full.headers)
    assert set(carried.headers) == {"traceparent"}
    assert carried.id == fresh.id
    many = messages.created([Message("paid", "1") for _ in range(500)])
    assert len({message.headers["traceparent"] for message in many}) == 1
