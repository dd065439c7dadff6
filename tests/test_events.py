"""What the engine leaves in a history: who came too late or meant something else, and nothing on the clean path."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.instrument_benches import connect, sql_url
from umavez import AsyncOnce, ClaimLost, Key, KeyReused, Once
from umavez.core.telling.events import MOST_REMARKS, PastEvent, holder_of, prefix_of
from umavez.core.telling.history import moments
from umavez.engine.stamps import STAMPS
from umavez.stores import Chronicle
from umavez.stores.postgres._sync.connection import PostgresConnection

__all__ = ["sql_url"]
PATIENCE = 20.0


class Down(Exception):
    """The far side is down."""


@pytest.fixture
def once(sql_url: str) -> Iterator[Once]:
    with Once(sql_url, scope=f"loja-{secrets.token_hex(4)}") as engine:
        engine.migrate()
        yield engine


def fails() -> None:
    raise Down("no")


def history(once: Once, key: str) -> list[PastEvent]:
    assert isinstance(once.store, Chronicle)
    return once.store.history(Key(once.scope, "pay", key))


def kinds(once: Once, key: str) -> list[str]:
    return [event.kind for event in history(once, key)]


def test_a_late_writer_is_stopped_and_told_of(once: Once, sql_url: str) -> None:
    with (
        Once(sql_url, scope=once.scope) as rival,
        pytest.raises(ClaimLost),
        once.attempt("pay", key="1", unknown="rerun", lease=0.05, heartbeat=False) as late,
    ):
        time.sleep(0.1)
        assert rival.run("pay", key="1", call=lambda: "second", unknown="rerun").value == "second"
        late.succeed("first")

    taken, settled, lost = history(once, "1")
    assert [taken.kind, settled.kind, lost.kind] == ["taken over", "succeeded", "lost"]
    assert (lost.fence, lost.attempt) == (late.fence, 1)
    assert taken.fence > late.fence
    record = once.get("pay", "1")
    assert record is not None
    told = [moment.what for moment in moments(record, record.updated_at, history(once, "1"))]
    assert told == ["began", "lease over", "taken over", "settled", "came too late and was stopped"]


def test_a_key_that_is_used_for_something_else_is_told_of_a_few_times(once: Once) -> None:
    once.run("pay", key="1", call=lambda: 1, fingerprint="a", unknown="rerun")
    for _ in range(MOST_REMARKS + 2):
        with pytest.raises(KeyReused):
            once.run("pay", key="1", call=lambda: 2, fingerprint="b", unknown="rerun")

    assert kinds(once, "1") == ["mismatched"] * MOST_REMARKS


def test_tasks_tell_the_same(sql_url: str) -> None:
    async def late() -> list[str]:
        scope = f"loja-{secrets.token_hex(4)}"
        async with AsyncOnce(sql_url, scope=scope) as once, AsyncOnce(sql_url, scope=scope) as rival:
            await once.migrate()

            async def second() -> str:
                return "second"

            with suppress(ClaimLost):
                async with once.attempt("pay", key="1", unknown="rerun", lease=0.05, heartbeat=False):
                    await asyncio.sleep(0.1)
                    await rival.run("pay", key="1", call=second, unknown="rerun")
            store: Any = once.store
            return [event.kind for event in await store.history(Key(once.scope, "pay", "1"))]

    assert asyncio.run(late()) == ["taken over", "succeeded", "lost"]


def test_an_event_of_a_joined_attempt_comes_and_goes_with_its_transaction(once: Once, sql_url: str) -> None:
    with suppress(Down):
        once.run("pay", key="1", call=fails, unknown="rerun")
    with connect(sql_url) as connection:
        with once.joined(connection, "pay", key="1", unknown="rerun") as attempt:
            attempt.checkpoint("half")
            attempt.succeed("done")
        connection.rollback()
        assert kinds(once, "1") == ["failed"]
        with once.joined(connection, "pay", key="1", unknown="rerun") as attempt:
            attempt.succeed("done")
        connection.commit()

    assert kinds(once, "1") == ["failed", "retried", "succeeded"]


def test_a_process_that_holds_claims_has_a_name(once: Once) -> None:
    store = once.store
    assert isinstance(store, Chronicle)
    with once.attempt("pay", key="1", unknown="rerun", lease=0.3) as attempt:
        end = time.monotonic() + PATIENCE
        while STAMPS.prefix not in {each.prefix for each in store.processes()} and time.monotonic() < end:
            time.sleep(0.01)
        record = once.get("pay", "1")
        attempt.succeed(1)

    assert record is not None
    (found,) = [each for each in store.processes() if each.prefix == prefix_of(holder_of(record.stamp))]
    assert (found.host, found.pid) == (socket.gethostname(), os.getpid())
    assert found.started_at <= found.seen_at


@pytest.mark.postgres
def test_the_clean_path_says_no_more_than_it_did(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first call is two statements, a replay one; none of them knows of events."""
    said: list[str] = []
    usual = PostgresConnection.rows

    def rows(self: Any, text: str, *values: Any) -> Any:
        said.append(text)
        return usual(self, text, *values)

    with Once(postgres_url, scope=f"loja-{secrets.token_hex(4)}") as once:
        once.migrate()
        monkeypatch.setattr(PostgresConnection, "rows", rows)
        once.run("pay", key="1", call=lambda: 1, unknown="rerun")
        once.run("pay", key="1", call=lambda: 1, unknown="rerun")

    assert len(said) == 3
    assert not [text for text in said if "umavez_events" in text or "umavez_holders" in text]


def test_an_event_keeps_the_trace_it_happened_in(once: Once) -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    context = trace.SpanContext(0x4B, 0x1, is_remote=False)
    with trace.use_span(trace.NonRecordingSpan(context)):
        with suppress(Down):
            once.run("pay", key="1", call=fails, unknown="rerun")
        once.run("pay", key="2", call=lambda: 1, fingerprint="a", unknown="rerun")
        with pytest.raises(KeyReused):
            once.run("pay", key="2", call=lambda: 1, fingerprint="b", unknown="rerun")
    once.run("pay", key="1", call=lambda: 1, unknown="rerun")

    assert [event.trace for event in history(once, "1")] == [f"{0x4B:032x}", None, None]
    assert [event.trace for event in history(once, "2")] == [f"{0x4B:032x}"]
