"""X.05: how much stands in a store is kept minute by minute, right with any number of processes, and by no call."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.instrument_benches import sql_url
from umavez import Key, Once, StoreUnavailable
from umavez.core.telling.gauges import GAUGES, Gauge, gauge_tally, highest
from umavez.core.telling.minutes import HOUR, MINUTE, Tally, begun
from umavez.messaging import Message, Outbox
from umavez.migration import migrate
from umavez.observe import gauges
from umavez.observe.gauges import Looker
from umavez.observe.minutes import Minutes
from umavez.sql.database import writing
from umavez.stores import Tallies, open_store
from umavez.stores.memory import MemoryStore
from umavez.testing import ManualClock

__all__ = ["sql_url"]
NOON = 1_800_000_000_000
PATIENCE = 20.0


def _lost() -> None:
    raise ConnectionResetError


def doubt(once: Once, key: str) -> None:
    with suppress(ConnectionResetError):
        once.run("pay", key=key, call=_lost, unknown="hold")


class Asked(MemoryStore):
    """Counts the questions about records."""

    questions = 0

    def find(self, query: object) -> list[object]:  # type: ignore[override]  # as it comes
        self.questions += 1
        return super().find(query)  # type: ignore[arg-type,return-value]  # as it goes


def kept(store: Tallies, span: int = MINUTE) -> dict[tuple[str, int], Gauge]:
    return highest(store.tallied(span, 48 * HOUR, GAUGES))


def test_of_several_who_look_the_highest_counts_and_not_the_sum() -> None:
    at = begun(NOON, MINUTE)
    seen = [gauge_tally(at, Gauge("unknown", many, age), mark) for many, age, mark in ((3, 9.5, "a"), (5, 2.0, "b"))]

    assert highest(seen) == {("unknown", at): Gauge("unknown", 5, 9.5)}


def test_what_is_no_gauge_is_passed_over_and_nothing_stands_below_zero() -> None:
    strange = [
        Tally(0, "pay", "unknown~a", 9),
        Tally(0, GAUGES, "unknown", 9),
        Tally(0, GAUGES, "colour~a", 9),
        Tally(0, GAUGES, "dead~a", -4, -1.0),
    ]

    assert highest(strange) == {("dead", 0): Gauge("dead", 0, 0.0)}


def test_gauges_fit_into_every_store(once: Once) -> None:
    """Two lookers in one minute, each twice: the second word of one takes the place of its first."""
    store = once.store
    assert isinstance(store, Tallies)
    now = store.tally(secrets.token_hex(4), MINUTE, ())
    at = begun(now, MINUTE)
    own = f"{secrets.token_hex(4)}"
    for mark, process in (("a", "p-1"), ("b", "p-2")):
        for many in (9, 4 if mark == "a" else 7):
            store.tally(own + process, MINUTE, [gauge_tally(at, Gauge("lapsed", many, many / 2), own + mark + "0" * 3)])

    mine = [tally for tally in store.tallied(MINUTE, HOUR, GAUGES) if own in tally.kind]
    assert highest(mine) == {("lapsed", at): Gauge("lapsed", 7, 3.5)}


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
        pytest.param("redis", marks=pytest.mark.redis),
    ]
)
def once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Once]:
    """An engine on each kind of store."""
    urls = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path_factory.mktemp('g')}/g.db"}
    url = urls.get(request.param) or str(request.getfixturevalue(f"{request.param}_url"))
    with Once(url, scope=f"loja-{secrets.token_hex(4)}") as engine:
        engine.migrate()
        yield engine


def test_a_looker_keeps_what_stands_by_the_minute_and_the_highest_of_the_hour() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    once = Once(store, scope="loja")
    looker = Looker("p-1", "")
    for key in ("1", "2"):
        doubt(once, key)
    clock.advance(45 - store.tally("x", MINUTE, ()) % MINUTE / 1000 + 60)
    first = store.tally("x", MINUTE, ())
    assert looker.look(store, first)
    once.release("pay", "1", by="ana", reason="the bank has none")
    clock.advance(60)
    assert looker.look(store, first + MINUTE)

    unknown = [gauge for (name, _), gauge in sorted(kept(store).items()) if name == "unknown"]
    assert [gauge.many for gauge in unknown] == [2, 1]
    assert unknown[1].seconds >= unknown[0].seconds + 59
    hours = [gauge for (name, _), gauge in sorted(kept(store, HOUR).items()) if name == "unknown"]
    assert max(gauge.many for gauge in hours) == 2
    assert max(gauge.seconds for gauge in hours) == unknown[1].seconds


def test_one_looks_for_all_and_another_takes_over_when_it_is_gone() -> None:
    store = Asked(ManualClock())
    at = begun(store.tally("x", MINUTE, ()), MINUTE)
    one, other = Looker("p-1", ""), Looker("p-2", "")

    assert not one.look(store, at + 5_000), "nobody knows yet who looks: not before half of a minute"
    assert one.look(store, at + 31_000)
    assert not other.look(store, at + 32_000)
    asked = store.questions
    assert not one.look(store, at + 41_000)
    assert not other.look(store, at + 42_000)
    assert store.questions == asked
    store._clock.advance(60)  # type: ignore[attr-defined]  # the clock that it was given
    assert not other.look(store, at + MINUTE + 1_000), "the one that looked last goes first"
    assert one.look(store, at + MINUTE + 2_000)
    store._clock.advance(60)  # type: ignore[attr-defined]  # the same
    assert not other.look(store, at + 2 * MINUTE + 20_000)
    assert other.look(store, at + 2 * MINUTE + 31_000), "the first is gone"


def test_the_outbox_beside_the_records_is_looked_at(sql_url: str) -> None:
    migrate(sql_url)
    name = secrets.token_hex(8)
    with writing(sql_url, "messages") as connection:
        for number in range(2):
            Outbox().append(connection, Message("topic", "{}", id=f"{name}-{number}"))
    with closing(open_store(sql_url)) as store:
        assert isinstance(store, Tallies)
        # A minute to come: other tests look at this database, too.
        later = begun(store.tally("x", MINUTE, ()), MINUTE) + 7 * MINUTE
        assert Looker("p-1", sql_url).look(store, later + 31_000)  # type: ignore[arg-type]  # it is both
        found = {about: gauge for (about, at), gauge in kept(store).items() if at == later}
    assert set(found) == {"unknown", "lapsed", "outbox", "dead"}
    assert found["outbox"].many >= 2


def test_messages_that_cannot_be_looked_at_hide_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/records.db"
    migrate(url)

    def locked(_: object) -> object:
        raise StoreUnavailable("The table is locked.")

    monkeypatch.setattr(gauges, "_messages", locked)
    with Once(url, scope="loja") as once:
        doubt(once, "1")
        store = once.store
        later = begun(store.tally("x", MINUTE, ()), MINUTE) + 31_000
        assert Looker("p-1", url).look(store, later)
        found = {about: gauge.many for (about, _), gauge in kept(store).items()}
    assert found == {"unknown": 1, "lapsed": 0}


def test_minutes_look_where_nobody_calls_and_never_when_told_not_to() -> None:
    store, looked = Asked(), threading.Event()

    class Telling(Minutes):
        def look(self) -> bool:
            looked.set()
            return super().look()

    minutes = Telling(store, every=0.01)
    minutes.start()
    minutes.start()
    assert looked.wait(PATIENCE)
    minutes.close()
    quiet = Telling(store, every=0.01, gauges=False)
    looked.clear()
    with Once(store, scope="loja", observers=[quiet]) as once:
        once.run("pay", key="1", call=lambda: 1, unknown="rerun")
        quiet.close()
    assert not looked.is_set()


def test_a_store_that_cannot_be_looked_at_is_counted_into_all_the_same() -> None:
    looked = threading.Event()

    class Blind(MemoryStore):
        def find(self, query: object) -> list[object]:  # type: ignore[override]  # as it comes
            looked.set()
            raise StoreUnavailable("The store is away.")

    store = Blind(ManualClock())
    minutes = Minutes(store, every=0.01)
    minutes.flush()
    minutes._told = begun(minutes._told, MINUTE) + 31_000
    with pytest.raises(StoreUnavailable):
        minutes.look()
    assert looked.is_set()
    with Once(store, scope="loja", observers=[minutes]) as once:
        once.run("pay", key="1", call=lambda: 1, unknown="rerun")
        minutes.close()
    assert [tally.kind for tally in store.tallied(MINUTE, HOUR, "pay")] == ["succeeded"]
    assert store.read(Key("loja", "pay", "1")).current is not None
