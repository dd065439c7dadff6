"""Metrics: counted while it happens, bounded in number, right under several processes, and never a key in a label."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from tests.servers import KINDS, Run
from umavez import AsyncOnce, CannotTell, Key, Once, OutcomeUnknown, Status, StoreUnavailable, open_store
from umavez.core.record import Draft
from umavez.messaging import Consumer, ConsumerSettings, Database, LocalBroker, Message, Outbox, Poison, Relay
from umavez.observe import tables
from umavez.observe.families import MOST_NAMES
from umavez.observe.metrics import MessageMetrics, Metrics, StoreMetrics, scraped
from umavez.sequences import Range, Sequences
from umavez.sql.connection import Dialect
from umavez.sql.database import writing
from umavez.stores.memory import MemoryStore
from umavez.testing import ManualClock

SECRET = "123.456.789-09"


class Counted:
    """A registry, asked by name and labels; what was not counted is 0."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)

    def __call__(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

    def labels(self) -> set[str]:
        return {value for family in self.registry.collect() for s in family.samples for value in s.labels.values()}


def engine(counted: Counted, store: Any = "memory:") -> Once:
    return Once(store, scope=SECRET, observers=[counted.metrics])


def test_an_attempt_is_counted_with_its_outcome_and_a_replay_is_none() -> None:
    counted = Counted()
    once = engine(counted)
    for _ in range(3):
        once.run("charge", key=SECRET, call=lambda: "done", unknown="rerun")

    assert counted("umavez_events_total", operation="charge", kind="succeeded") == 1
    assert counted("umavez_events_total", operation="charge", kind="replayed") == 2
    assert counted("umavez_attempt_seconds_count", operation="charge", outcome="succeeded") == 1
    assert not {label for label in counted.labels() if "123" in label}


def test_a_refusal_because_of_an_unknown_record_is_held_and_no_attempt() -> None:
    counted = Counted()
    once = engine(counted)
    for _ in range(4):
        with pytest.raises((OSError, OutcomeUnknown)):
            once.run("charge", key="1", call=_broken_pipe, unknown="hold")

    assert counted("umavez_events_total", operation="charge", kind="unknown") == 1
    assert counted("umavez_events_total", operation="charge", kind="held") == 3
    assert counted("umavez_attempt_seconds_count", operation="charge", outcome="unknown") == 1


def test_asking_again_about_an_unknown_record_is_held_and_no_attempt() -> None:
    counted = Counted()
    once = engine(counted)
    for _ in range(3):
        with pytest.raises((OSError, OutcomeUnknown)):
            once.run("charge", key="1", call=_broken_pipe, unknown=lambda _: CannotTell("who knows"))

    assert counted("umavez_events_total", operation="charge", kind="unknown") == 1
    assert counted("umavez_events_total", operation="charge", kind="held") == 2
    assert counted("umavez_attempt_seconds_count", operation="charge", outcome="unknown") == 1


def _broken_pipe() -> None:
    raise OSError("the line went dead")


def test_what_runs_is_counted_and_forgotten_however_it_ends() -> None:
    counted = Counted()
    once = engine(counted)
    inside: list[float] = []

    def look() -> None:
        inside.append(counted("umavez_attempts_running", operation="charge"))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        once.run("charge", key="1", call=look, unknown="rerun")

    assert inside == [1]
    assert counted("umavez_attempts_running", operation="charge") == 0
    assert counted("umavez_attempt_seconds_count", operation="charge", outcome="failed") == 1


def test_a_block_in_the_callers_transaction_that_is_rolled_back_is_unrecorded(tmp_path: Path) -> None:
    counted, url = Counted(), f"sqlite:///{tmp_path}/once.db?journal=delete"
    once = engine(counted, url)
    once.migrate()
    with (
        pytest.raises(ValueError, match="no"),
        writing(url, "rows") as connection,
        once.joined(connection, "charge", key="1") as attempt,
    ):
        assert not attempt.replayed
        raise ValueError("no")

    assert counted("umavez_attempts_running", operation="charge") == 0
    assert counted("umavez_attempt_seconds_count", operation="charge", outcome="unrecorded") == 1
    assert counted("umavez_store_seconds_count", store="sqlite", verb="joined_swap") == 1
    once.close()


def test_waiting_for_a_rival_is_told() -> None:
    counted, began, go = Counted(), threading.Event(), threading.Event()
    once = engine(counted)

    def slow() -> int:
        began.set()
        go.wait(10)
        return 7

    rival = threading.Thread(target=lambda: once.run("charge", key="1", call=slow, unknown="rerun"))
    rival.start()
    assert began.wait(10)
    threading.Timer(0.05, go.set).start()
    outcome = once.run("charge", key="1", call=slow, unknown="rerun", wait=10)
    rival.join(10)

    assert (outcome.value, outcome.replayed) == (7, True)
    assert counted("umavez_wait_seconds_count", operation="charge") == 1
    assert counted("umavez_wait_seconds_sum", operation="charge") > 0.01


def test_async_attempts_are_counted_the_same() -> None:
    counted = Counted()

    async def work() -> None:
        async with AsyncOnce("memory:", scope="shop", observers=[counted.metrics]) as once:
            for _ in range(2):
                await once.run("charge", key="1", call=_seven, unknown="rerun")

    asyncio.run(work())
    assert counted("umavez_attempt_seconds_count", operation="charge", outcome="succeeded") == 1
    assert counted("umavez_store_seconds_count", store="memory", verb="swap") >= 3


async def _seven() -> int:
    return 7


def test_each_answer_of_the_store_is_timed_and_each_failure_counted() -> None:
    class Away:
        def swap(self, *_: object) -> None:
            raise StoreUnavailable("nobody there")

    counted = Counted()
    once = engine(counted, Away())
    with pytest.raises(StoreUnavailable):
        once.run("charge", key="1", call=lambda: 7, unknown="rerun")

    assert counted("umavez_store_errors_total", store="Away", kind="StoreUnavailable") == 1
    assert counted("umavez_store_seconds_count", store="Away", verb="swap") == 1


def test_a_second_one_on_a_registry_counts_into_the_same_and_an_engine_is_wrapped_once() -> None:
    counted = Counted()
    first = engine(counted)
    second = Once(first.store, scope="other", observers=[Metrics(counted.registry)])
    MessageMetrics(counted.registry)
    MessageMetrics(counted.registry)
    for once in (first, second):
        once.run("charge", key="1", call=lambda: 7, unknown="rerun")

    assert counted("umavez_events_total", operation="charge", kind="succeeded") == 2
    assert counted("umavez_store_seconds_count", store="memory", verb="swap") == 4
    assert "ObservedStore" not in counted.labels()


def test_what_a_store_can_do_beyond_its_verbs_is_seen_through_the_observing() -> None:
    @runtime_checkable
    class Writes(Protocol):
        def diary(self) -> list[int]: ...

    class Long(MemoryStore):
        def diary(self) -> list[int]:
            return [1, 2]

    store = engine(Counted(), Long()).store
    assert isinstance(store, Writes)
    assert store.diary() == [1, 2]
    # As later Pythons look for it.
    assert inspect.getattr_static(store, "diary")
    assert not isinstance(engine(Counted(), MemoryStore()).store, Writes)


def test_names_made_from_data_end_as_other() -> None:
    counted = Counted()
    once = engine(counted)
    for number in range(MOST_NAMES + 50):
        once.run(f"charge {number}", key="1", call=lambda: 7, unknown="rerun")

    assert counted("umavez_events_total", operation="other", kind="succeeded") == 50
    assert len(counted.labels()) < MOST_NAMES + 60


COUNT_IN_ANOTHER_PROCESS = """
import os, sys
from prometheus_client import CollectorRegistry
from umavez import Once
from umavez.observe.metrics import Metrics, scraped
counted = CollectorRegistry()
once = Once("memory:", scope="shop", observers=[Metrics(counted)])
once.run("charge", key="1", call=lambda: 7, unknown="rerun")
def die():
    if sys.argv[1] == "die":
        os._exit(1)
    print(scraped(counted, CollectorRegistry()).decode())
once.run("charge", key="2", call=die, unknown="rerun")
"""


def test_x_05_processes_add_up_and_what_a_dead_one_ran_is_forgotten(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    told = ""
    for word in ("die", "die", "tell"):
        words = [sys.executable, "-c", COUNT_IN_ANOTHER_PROCESS, word]
        told = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False).stdout

    samples = {
        (sample.name, sample.labels.get("kind")): sample.value
        for family in text_string_to_metric_families(told)
        for sample in family.samples
    }
    assert samples["umavez_events_total", "succeeded"] == 3
    assert samples["umavez_attempts_running", None] == 1


class Standing:
    """What a store's collector says, asked anew each time."""

    def __init__(self, store: Any, **options: Any) -> None:
        self.registry = CollectorRegistry()
        StoreMetrics(store, self.registry, **{"fresh": 0.0} | options)

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


def test_x_05_the_age_of_the_oldest_unknown_is_asked_for_when_scraped() -> None:
    clock = ManualClock()
    once = Once(open_store("memory:", clock=clock), scope="shop")
    value = Standing(once.store, most=2)

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


def test_however_many_scrape_the_store_is_asked_once_in_a_while() -> None:
    class Patient:
        asked = 0

        def find(self, _: object) -> list[object]:
            self.asked += 1
            return []

    store = Patient()
    value = Standing(store, fresh=60.0)
    assert {value("umavez_unknown_records") for _ in range(5)} == {0}
    assert store.asked == 2


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ]
)
def url(request: pytest.FixtureRequest, server_run: Run, tmp_path: Path) -> Iterator[str]:
    """A database in which no other test has been."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/once.db?journal=delete"
        return
    request.getfixturevalue(f"{request.param}_url")  # skips where there is no server
    server: Any = server_run.server(KINDS[request.param])
    with server_run.lend(KINDS[request.param], server) as lent:
        yield lent


def test_x_05_messages_numbers_and_the_sweep_are_told_from_their_tables(url: str) -> None:
    with Once(url, scope="shop") as once:
        once.migrate()
        value = Standing(once.store, url=url)
        once.run("pay", key="1", call=lambda: 7, unknown="rerun")
        assert value("umavez_sweep_behind_seconds") == 0
        # Their tables are not there: nothing is said of them, and the rest is.
        assert value("umavez_outbox_waiting") is None
        assert value("umavez_store_up") == 1
        _fill(url, once)

        assert value("umavez_outbox_waiting") == 2
        assert (value("umavez_outbox_oldest_due_seconds") or -1) >= 0
        assert value("umavez_dead_messages", subscriber="(outbox)") == 0
        assert value("umavez_dead_messages", subscriber="mailer") == 1
        assert value("umavez_sequence_left", series="invoices") == 30
        assert value("umavez_sequence_left", series="endless") is None
        assert 0 < (value("umavez_sweep_behind_seconds") or 0) < 3600


def test_the_tables_are_asked_through_their_indexes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/once.db?journal=delete"
    with Once(url, scope="shop") as once:
        once.migrate()
    with writing(url, "tables") as connection:
        Outbox().migrate(connection)
        asked = {
            "idx_expires_at": tables._BEHIND[Dialect.SQLITE],
            "umavez_outbox_dead": tables._DEAD[tables.OUTBOX],
            "umavez_deliveries_dead": tables._DEAD["each"],
        }
        for index, text in asked.items():
            plan = str(connection.execute(f"EXPLAIN QUERY PLAN {text}").fetchall())
            assert f"INDEX {index}" in plan


def _fill(url: str, once: Once) -> None:
    """One dead delivery, two messages that wait, a series with 30 numbers left, one without end, an expired record."""
    outbox, sequences = Outbox(), Sequences()
    once.run("charge", key="1", call=lambda: 7, unknown="rerun", keep=0.001)
    with writing(url, "tables") as connection:
        outbox.migrate(connection)
        sequences.migrate(connection)
    with writing(url, "tables") as connection:
        for organisation, last in (("a", 100), ("b", 30), ("c", 50)):
            sequences.define(connection, organisation, "invoices", ranges=[Range(1, last)])
        sequences.define(connection, "a", "endless", ranges=[Range(1)])
        outbox.append(connection, Message("paid", "1"))
    asyncio.run(_bury_one(url))
    with writing(url, "tables") as connection:
        outbox.append(connection, [Message("paid", "2"), Message("paid", "3")])


async def _bury_one(url: str, *observers: MessageMetrics) -> None:
    database = Database(url)
    broker, stop = LocalBroker(database), asyncio.Event()
    subscription = await broker.subscribe("mailer", ["paid"])
    await subscription.close()
    try:
        assert await Relay(database, broker, observers=observers).step() == 1

        async def refuse(_: Message) -> None:
            asyncio.get_running_loop().call_later(0.05, stop.set)
            raise Poison("unreadable")

        consumer = Consumer(broker, "mailer", ["paid"], refuse, ConsumerSettings(wait=0.01), observers=observers)
        await asyncio.wait_for(consumer.run(stop), 20)
    finally:
        await broker.close()
        await database.close()


def test_messages_are_counted_when_brokers_took_them_and_handlers_ended(tmp_path: Path) -> None:
    url, registry = f"sqlite:///{tmp_path}/once.db?journal=delete", CollectorRegistry()
    with writing(url, "tables") as connection:
        Outbox().migrate(connection)
        Outbox().append(connection, Message("paid", "1"))
    asyncio.run(_bury_one(url, MessageMetrics(registry)))

    assert registry.get_sample_value("umavez_messages_published_total", {"topic": "paid"}) == 1
    handled = {"subscriber": "mailer", "outcome": "dead"}
    assert registry.get_sample_value("umavez_message_seconds_count", handled) == 1


def test_tables_that_cannot_be_asked_hide_no_number_of_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is to be woken for a store that answers, nor left asleep about its unknown outcomes."""
    url = f"sqlite:///{tmp_path}/records.db"
    with Once(url, scope="s") as once:
        once.migrate()

        def locked(_: Dialect) -> Any:
            raise StoreUnavailable("The table is locked.")

        monkeypatch.setattr(tables, "_messages", locked)
        registry = CollectorRegistry()
        StoreMetrics(once.store, registry, url=url)
        told = {family.name for family in registry.collect()}
        assert registry.get_sample_value("umavez_store_up") == 1
        assert {"umavez_unknown_records", "umavez_sweep_behind_seconds"} <= told
