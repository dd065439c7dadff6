"""A replay is linked to the trace that made its answer, in whichever process that was."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.instrument_benches import sql_url
from tests.observe.test_tracing import Traced
from umavez import AsyncOnce, Key, Once
from umavez.core.telling.origin import MOST_REQUEST, Origin, made_in, whence
from umavez.stores import Provenance
from umavez.stores.memory import MemoryStore
from umavez.stores.postgres._sync.connection import PostgresConnection

__all__ = ["sql_url"]

CHILD = """
import sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from umavez import Once
from umavez.observe.tracing import Tracing

url, scope, spans = sys.argv[1:]
provider = TracerProvider()
with open(spans, "w") as out, Once(url, scope=scope, observers=[Tracing(provider)]) as once:
    provider.add_span_processor(
        SimpleSpanProcessor(ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\\n"))
    )
    with provider.get_tracer("child").start_as_current_span("request"):
        once.run("pay", key="asked", call=lambda: 7, unknown="rerun")
    once.run("pay", key="alone", call=lambda: 7, unknown="rerun")
"""


def made_elsewhere(url: str, scope: str, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The spans that another process exported, which has paid what was asked for, and something by itself."""
    script, spans = folder / "child.py", folder / "spans.jsonl"
    script.write_text(textwrap.dedent(CHILD))
    subprocess.run([sys.executable, str(script), url, scope, str(spans)], check=True, timeout=60)
    found: dict[str, list[dict[str, Any]]] = {}
    for line in spans.read_text().splitlines():
        span = json.loads(line)
        found.setdefault(span["name"], []).append(span)
    return found


def place(span: dict[str, Any]) -> tuple[int, int]:
    return int(span["context"]["trace_id"], 16), int(span["context"]["span_id"], 16)


def test_a_replay_in_another_process_points_to_the_span_that_made_it(sql_url: str, tmp_path: Path) -> None:
    scope = f"loja-{secrets.token_hex(4)}"
    with Once(sql_url, scope=scope) as engine:
        engine.migrate()
    spans = made_elsewhere(sql_url, scope, tmp_path)
    (asked,) = spans["request"]
    alone = next(span for span in spans["umavez pay"] if span["parent_id"] is None)

    traced = Traced()
    with Once(sql_url, scope=scope, observers=[traced.tracing]) as once:
        for key in ("asked", "alone"):
            with traced.request(key):
                assert once.run("pay", key=key, call=lambda: 8, unknown="rerun").value == 7

    for key, made in (("asked", asked), ("alone", alone)):
        (link,) = traced.one(key).links
        assert (link.context.trace_id, link.context.span_id) == place(made)
        assert link.context.is_remote
        assert link.attributes["umavez.outcome"] == "replayed"
    assert traced.spans("umavez") == []


def test_tasks_point_to_it_too(sql_url: str, tmp_path: Path) -> None:
    scope = f"loja-{secrets.token_hex(4)}"
    with Once(sql_url, scope=scope) as engine:
        engine.migrate()
    (asked,) = made_elsewhere(sql_url, scope, tmp_path)["request"]
    traced = Traced()

    async def pay() -> int:
        return 8

    async def repeat() -> None:
        async with AsyncOnce(sql_url, scope=scope, observers=[traced.tracing]) as once:
            with traced.request("repeat"):
                assert (await once.run("pay", key="asked", call=pay, unknown="rerun")).value == 7

    asyncio.run(repeat())
    (link,) = traced.one("repeat").links
    assert (link.context.trace_id, link.context.span_id) == place(asked)


def test_an_answer_that_another_attempt_made_is_not_the_first_ones() -> None:
    """The origin of a claim that failed is not shown as that of the answer."""
    store, traced = MemoryStore(), Traced()
    with (
        Once(store, scope="loja", observers=[traced.tracing]) as once,
        traced.request("failed"),
        pytest.raises(OSError, match="no"),
    ):
        once.run("pay", key="1", call=_fails, unknown="rerun")
    with Once(store, scope="loja") as once:
        once.run("pay", key="1", call=lambda: 7, unknown="rerun")
    repeat = Traced()
    with Once(store, scope="loja", observers=[repeat.tracing]) as once, repeat.request("repeat"):
        once.run("pay", key="1", call=lambda: 8, unknown="rerun")
    assert repeat.one("repeat").links == ()
    record = store.read(Key("loja", "pay", "1")).current
    assert record is not None
    assert record.origin is not None
    assert made_in(record) is None


def _fails() -> None:
    raise OSError("no")


@pytest.mark.postgres
def test_a_traced_call_says_no_more_often_what_it_says(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first call is two statements and a replay one, with an origin as without."""
    said: list[str] = []
    usual = PostgresConnection.rows

    def rows(self: Any, text: str, *values: Any) -> Any:
        said.append(text)
        return usual(self, text, *values)

    traced = Traced()
    with Once(postgres_url, scope=f"loja-{secrets.token_hex(4)}", observers=[traced.tracing]) as once:
        once.migrate()
        with traced.request("warm"):  # asks once whether origins can be kept
            once.run("pay", key="0", call=lambda: 1, unknown="rerun")
        monkeypatch.setattr(PostgresConnection, "rows", rows)
        with traced.request("first"):
            once.run("pay", key="1", call=lambda: 1, unknown="rerun")
            once.run("pay", key="1", call=lambda: 1, unknown="rerun")

    assert len(said) == 3
    assert ["origin" in text for text in said] == [True, False, True]


def test_nobody_who_traces_means_no_origin() -> None:
    store = MemoryStore()
    with Once(store, scope="loja", observers=[lambda _: None]) as once:
        once.run("pay", key="1", call=lambda: 7, unknown="rerun")
    assert isinstance(store, Provenance)
    assert store.origin(Key("loja", "pay", "1")) is None


TRACE = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


@pytest.mark.parametrize(
    ("trace", "request_id", "kept"),
    [
        (TRACE, "req-1", f"{TRACE} req-1"),
        (TRACE, None, f"{TRACE} -"),
        (None, "req-1", "- req-1"),
        (None, None, None),
        (TRACE.upper(), "a b", None),
        ("00-" + "0" * 32 + "-" + "cd" * 8 + "-01", "", None),
        (f"{TRACE}\n", "x" * (MOST_REQUEST + 1), None),
        (TRACE, "-", f"{TRACE} -"),
        (TRACE, "<é>", f"{TRACE} -"),
        (f"ff{TRACE[2:]}", "<b>", "- <b>"),
        (f"cc{TRACE[2:]}", None, f"cc{TRACE[2:]} -"),
        (f"01{TRACE[2:]}-more", None, None),
        pytest.param("0" * 1_000_000, "x" * 1_000_000, None, id="a million"),
    ],
)
def test_what_strangers_send_is_kept_only_where_it_is_well_formed(
    trace: str | None, request_id: str | None, kept: str | None
) -> None:
    assert whence(trace, request_id) == kept


def test_what_a_store_keeps_can_be_read_whatever_it_is() -> None:
    assert Origin.of(None) is None
    assert Origin.of("") is None
    assert Origin.of("holder") == Origin("holder")
    assert Origin.of(f"holder {TRACE} req-1") == Origin("holder", TRACE, "req-1")
    assert Origin("holder", TRACE).trace_id == "ab" * 16
    assert Origin("holder", "nonsense").trace_id is None
