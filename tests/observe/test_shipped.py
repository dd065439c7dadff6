"""The dashboard and the alerts that are shipped: every expression is one, and asks for what a real run exports."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from umavez import Once, StoreUnavailable
from umavez.cli.app import app
from umavez.http import from_header
from umavez.http.wsgi import Idempotency
from umavez.messaging import Consumer, ConsumerSettings, Database, LocalBroker, Message, Outbox, Relay
from umavez.observe.metrics import MessageMetrics, Metrics, StoreMetrics, scraped
from umavez.sequences import Range, Sequences
from umavez.sql.database import writing

TARGET = {"job", "instance"}
"""Labels that Prometheus itself puts on what it scrapes."""


def printed(*words: str) -> str:
    done = CliRunner().invoke(app, ["observe", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(printed("alerts"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(printed("dashboard"))["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    # What Grafana puts in before it asks.
    return [rule["expr"] for rule in rules()] + [
        expression.replace("$__rate_interval", "5m").replace("$job", ".*") for expression in asked
    ]


@cache
def exported() -> dict[str, set[str]]:
    """The samples of a run that met everything, with the names of their labels."""
    counted, asked = CollectorRegistry(), CollectorRegistry()
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/once.db?journal=delete"
        with Once(url, scope="shop", observers=[Metrics(counted)]) as once:
            _used(once, url, MessageMetrics(counted))
            StoreMetrics(once.store, asked, url=url)
            text = scraped(counted, asked).decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def _used(once: Once, url: str, messages: MessageMetrics) -> None:
    once.migrate()
    shell = Idempotency(_shop, once=once, principal=from_header("x-user"), unknown="rerun")
    with httpx.Client(transport=httpx.WSGITransport(shell), base_url="http://shop") as client:
        assert client.post("/o", headers={"x-user": "ana", "idempotency-key": "1"}).status_code == 201
    once.observers("waited", once.plans.any("charge").key("1", None), 0, 0.1)
    once.observers.record_answer("sqlite", "swap", 0.1, StoreUnavailable("away"))
    with writing(url, "tables") as connection:
        Outbox().migrate(connection)
        Sequences().migrate(connection)
        Sequences().define(connection, "shop", "invoices", ranges=[Range(1, 9)])
    asyncio.run(_carried(url, messages))


def _shop(environ: Any, start_response: Any) -> list[bytes]:
    start_response("201 Created", [])
    return [b"1"]


async def _carried(url: str, messages: MessageMetrics) -> None:
    database, stop = Database(url), asyncio.Event()
    broker = LocalBroker(database)

    async def handle(_: Message) -> None:
        stop.set()

    try:
        await (await broker.subscribe("mailer", ["paid"])).close()
        await asyncio.to_thread(_append, url)
        await Relay(database, broker, observers=[messages]).step()
        consumer = Consumer(broker, "mailer", ["paid"], handle, ConsumerSettings(wait=0.01), observers=[messages])
        await asyncio.wait_for(consumer.run(stop), 20)
    finally:
        await broker.close()
        await database.close()


def _append(url: str) -> None:
    with writing(url, "tables") as connection:
        Outbox().append(connection, Message("paid", "1"))


def selectors(part: Any) -> Iterator[Any]:
    """The series that an expression asks for, wherever they stand in it."""
    match part:
        case promql_parser.VectorSelector():
            yield part
        case promql_parser.MatrixSelector():
            yield part.vector_selector
        case promql_parser.BinaryExpr():
            yield from selectors(part.lhs)
            yield from selectors(part.rhs)
        case promql_parser.Call():
            for argument in part.args:
                yield from selectors(argument)
        case promql_parser.AggregateExpr() | promql_parser.ParenExpr() | promql_parser.UnaryExpr():
            yield from selectors(part.expr)
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            return
        case _:
            raise AssertionError(f"a {type(part).__name__} is not looked into; teach the test")


@pytest.mark.parametrize("expression", expressions())
def test_every_expression_asks_for_what_a_real_run_exports(expression: str) -> None:
    asked = list(selectors(promql_parser.parse(expression)))
    assert asked
    for selector in asked:
        labels = exported()[selector.name] | TARGET
        assert {matcher.name for matcher in selector.matchers.matchers} <= labels
    every = set().union(*(exported()[selector.name] for selector in asked)) | TARGET
    grouped = {name for names in re.findall(r"by \(([^)]*)\)", expression) for name in re.split(r",\s*", names)}
    assert grouped <= every


def test_every_metric_is_on_the_dashboard_and_labels_hold_no_scope_and_no_key() -> None:
    ours = {re.sub(r"_(bucket|count|sum|total|created)$", "", name) for name in exported() if "umavez" in name}
    shown = set(re.findall(r"umavez_[a-z_]+", " ".join(expressions())))
    shown = {re.sub(r"_(bucket|count|sum|total)$", "", name) for name in shown}
    assert ours - shown == {"umavez_oldest_lapsed_seconds"}
    assert not {"scope", "key"} & set().union(*exported().values())


def test_an_alert_says_what_it_is_and_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert {"summary", "description"} == set(rule["annotations"])
        used = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        kept = {name for names in re.findall(r"by \(([^)]*)\)", rule["expr"]) for name in re.split(r",\s*", names)}
        assert used <= (kept or {"operation"})


def test_the_dashboard_asks_nobody_but_the_chosen_prometheus() -> None:
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
    assert not re.search(r"https?://", printed("dashboard"))


WOKEN = {
    "UmavezOutcomeUnknownTooLong": [("umavez_oldest_unknown_seconds", "901x60")],
    "UmavezAttemptsEndInDoubt": [
        ('umavez_events_total{operation="pay",kind="unknown"}', "0+1x60"),
        ('umavez_attempt_seconds_count{operation="pay",outcome="unknown"}', "0+1x60"),
        ('umavez_attempt_seconds_count{operation="pay",outcome="succeeded"}', "0+50x60"),
    ],
    # A series that begins with its first event: there is no rise that Prometheus could see.
    "UmavezLateWriterStopped": [('umavez_events_total{operation="pay",kind="lost"}', "_x50 1x10")],
    "UmavezAttemptsExhausted": [('umavez_events_total{operation="pay",kind="exhausted"}', "0x50 1x10")],
    "UmavezKeysReused": [('umavez_events_total{operation="pay",kind="mismatched"}', "0+2x60")],
    "UmavezStoreErrors": [
        ('umavez_store_errors_total{store="postgres",kind="StoreUnavailable"}', "0+2x60"),
        ('umavez_store_seconds_count{store="postgres",verb="swap"}', "0+100x60"),
    ],
    "UmavezStoreDown": [("umavez_store_up", "0x60")],
    "UmavezMessagesLate": [("umavez_outbox_oldest_due_seconds", "61x60")],
    "UmavezMessagesDead": [('umavez_dead_messages{subscriber="mailer"}', "1x60")],
    "UmavezNumbersRunOut": [('umavez_sequence_left{series="nfe"}', "10000-1x120")],
    "UmavezSweepBehind": [("umavez_sweep_behind_seconds", "3601x60")],
}
QUIET = [
    ("umavez_oldest_unknown_seconds", "899x60"),
    ('umavez_events_total{operation="pay",kind="unknown"}', "0x60"),
    ('umavez_events_total{operation="pay",kind="lost"}', "7x60"),
    ('umavez_events_total{operation="pay",kind="exhausted"}', "7x60"),
    ('umavez_events_total{operation="pay",kind="mismatched"}', "0+1x60"),
    ('umavez_attempt_seconds_count{operation="pay",outcome="succeeded"}', "0+50x60"),
    ('umavez_store_errors_total{store="postgres",kind="StoreUnavailable"}', "0x60"),
    ('umavez_store_seconds_count{store="postgres",verb="swap"}', "0+100x60"),
    ("umavez_store_up", "1x60"),
    ("umavez_outbox_oldest_due_seconds", "59x60"),
    ('umavez_dead_messages{subscriber="mailer"}', "0x60"),
    ('umavez_sequence_left{series="nfe"}', "1000000-1x120"),
    ("umavez_sweep_behind_seconds", "3599x60"),
]


def test_each_alert_fires_when_it_should_and_none_when_all_is_well(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed; apt install prometheus")
    assert set(WOKEN) == {rule["alert"] for rule in rules()}
    (tmp_path / "alerts.yml").write_text(printed("alerts"))
    # Whether an alert fires, without its labels and annotations: those would only repeat the file.
    asked = [_asked({name: series}, [name]) for name, series in WOKEN.items()]
    asked.append(_asked({"": QUIET}, []))
    told = {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": asked}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(told))
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _asked(given: dict[str, list[tuple[str, str]]], firing: list[str]) -> dict[str, Any]:
    series = [{"series": _of_job(name), "values": values} for several in given.values() for name, values in several]
    names = 'count by (alertname) (ALERTS{alertstate="firing"})'
    woken = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in firing]
    # At 55 minutes; a pace over a day is looked at after two hours, when its rule has waited for one.
    at = "119m" if firing == ["UmavezNumbersRunOut"] else "55m"
    return {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [{"expr": names, "eval_time": at, "exp_samples": woken}],
    }


def _of_job(name: str) -> str:
    return name.replace("{", '{job="shop",') if "{" in name else f'{name}{{job="shop"}}'


def test_the_stores_numbers_are_served_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/once.db"
    with Once(url, scope="shop") as once:
        once.migrate()
    words = [sys.executable, "-m", "umavez.cli", "observe", "serve", "--store", url, "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        try:
            address = re.findall(r"http://\S+", served.stdout.readline())[0]
            told = httpx.get(address, timeout=60).text
        finally:
            served.terminate()
    assert "umavez_store_up 1.0" in told
    assert "umavez_sweep_behind_seconds 0.0" in told
    assert str(tmp_path) not in told
