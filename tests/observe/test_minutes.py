"""X.05: what happens is counted into the store minute by minute, by any number of processes, and by no call."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.instrument_benches import sql_url
from umavez import AsyncOnce, Event, Key, Once, StoreUnavailable, open_store
from umavez.core.telling.gauges import GAUGES
from umavez.core.telling.minutes import BUCKETS, EDGES, HOUR, MINUTE, Tally, begun, bucket_of, quantile, summed
from umavez.errors import ConfigurationError
from umavez.observe import minutes as observing
from umavez.observe.minutes import MOST_NAMES, MOST_WAITING, OTHER, Minutes
from umavez.stores import Tallies
from umavez.stores.memory import AsyncMemoryStore, MemoryStore

__all__ = ["sql_url"]
DAY = 24 * HOUR
PATIENCE = 20.0


class Away(MemoryStore):
    """Can be away."""

    away = False

    def tally(self, process: str, span: int, tallies: Sequence[Tally]) -> int:
        if self.away:
            raise StoreUnavailable("The store is away.")
        return super().tally(process, span, tallies)


def happened(kind: str = "succeeded", operation: str = "pay", seconds: float = 0.0) -> Event:
    return Event(kind, Key("loja", operation, "1"), 1, seconds)


def counted(store: Any, span: int = MINUTE) -> dict[str, int]:
    found: dict[str, int] = {}
    for tally in store.tallied(span, 2 * DAY):
        if tally.operation != GAUGES:
            found[tally.kind] = found.get(tally.kind, 0) + tally.count
    return found


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """The clock of the process, set by hand."""
    now = [time.monotonic()]
    monkeypatch.setattr(observing.time, "monotonic", lambda: now[0])

    def advance(seconds: float) -> None:
        now[0] += seconds

    return advance


def quiet(store: Any) -> Minutes:
    """One whose thread never writes: the test does."""
    minutes = Minutes(store, every=3600)
    minutes._thread = threading.Thread(target=lambda: None)
    minutes._thread.start()
    minutes._thread.join()
    return minutes


def test_what_an_engine_does_is_counted_with_what_it_took(sql_url: str) -> None:
    operation = f"pay-{secrets.token_hex(4)}"
    minutes = Minutes(sql_url)
    with Once(sql_url, scope="loja", observers=[minutes]) as once:
        once.migrate()
        for key in ("1", "2", "1", "1"):
            once.run(operation, key=key, call=lambda: time.sleep(0.006), unknown="rerun")
        with suppress(OSError):
            once.run(operation, key="3", call=_fails, unknown="rerun")
    minutes.close()
    with closing(open_store(sql_url)) as store:
        assert isinstance(store, Tallies)
        for span in (MINUTE, HOUR):
            tallies = store.tallied(span, DAY, operation)
            found: dict[str, int] = {}
            for tally in tallies:
                found[tally.kind] = found.get(tally.kind, 0) + tally.count
            assert found == {"succeeded": 2, "replayed": 2, "failed": 1}
            ran = [tally for tally in tallies if tally.kind == "succeeded"]
            assert sum(tally.seconds for tally in ran) > 0.012
            assert sum(sum(tally.buckets[1:]) for tally in ran) == 2
            assert all(sum(tally.buckets) == 0 for tally in tallies if tally.kind == "replayed")


def _fails() -> None:
    raise OSError("no")


CHILD = """
import os, sys
from umavez import Once
from umavez.observe.minutes import Minutes

url, operation, first = sys.argv[1:]
minutes = Minutes(url)
once = Once(url, scope="loja", observers=[minutes])
for number in range(50):
    once.run(operation, key=f"{first}-{number}", call=lambda: 1, unknown="rerun")
minutes.flush()
for number in range(50):
    once.run(operation, key=f"{first}-{number}", call=lambda: 1, unknown="rerun")
"""


def test_several_processes_are_added_up_and_the_end_of_each_is_kept(sql_url: str, tmp_path: Path) -> None:
    operation = f"pay-{secrets.token_hex(4)}"
    with Once(sql_url, scope="loja") as once:
        once.migrate()
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    children = [subprocess.Popen([sys.executable, str(script), sql_url, operation, name]) for name in "ab"]
    assert [child.wait(60) for child in children] == [0, 0]
    with closing(open_store(sql_url)) as store:
        assert isinstance(store, Tallies)
        assert {tally.kind: 0 for tally in store.tallied(MINUTE, DAY, operation)} == {"replayed": 0, "succeeded": 0}
        for kind in ("succeeded", "replayed"):
            for span in (MINUTE, HOUR):
                each = [tally.count for tally in store.tallied(span, DAY, operation) if tally.kind == kind]
                assert sum(each) == 100


def test_minutes_follow_each_other_and_the_hour_goes_on(ticking: Callable[[float], None]) -> None:
    store = Away()
    minutes = quiet(store)
    minutes(happened())
    minutes.flush()
    (first,) = store.tallied(MINUTE, DAY)
    minutes._ends = observing.time.monotonic() + 30
    for _ in range(3):
        ticking(60)
        minutes(happened(seconds=0.3))
    minutes(happened("replayed"))
    counts = minutes._taken()
    assert [one.at for one in counts[0] if one.span == MINUTE] == [first.at, first.at + MINUTE, first.at + 2 * MINUTE]
    assert counts[1][0].at == first.at + 3 * MINUTE
    minutes.flush()
    succeeded = [tally for tally in store.tallied(MINUTE, DAY) if tally.kind == "succeeded"]
    assert [tally.count for tally in succeeded] == [1, 1, 1, 1]
    assert counted(store, HOUR) == {"succeeded": 4, "replayed": 1}
    minutes.flush()
    assert counted(store, HOUR) == {"succeeded": 4, "replayed": 1}
    assert minutes._over == []


def test_an_hour_that_ends_is_kept_whole_and_another_begins(ticking: Callable[[float], None]) -> None:
    store = Away()
    minutes = quiet(store)
    minutes(happened())
    minutes.flush()
    for _ in range(61):
        ticking(60)
        minutes(happened())
    minutes.flush()
    hours = store.tallied(HOUR, 2 * DAY)
    assert len(hours) in (2, 3)
    assert sum(tally.count for tally in hours) == 62
    assert [tally.at % HOUR for tally in hours] == [0] * len(hours)


def test_what_a_store_that_is_away_was_not_told_it_is_told_later(ticking: Callable[[float], None]) -> None:
    store = Away()
    minutes = quiet(store)
    minutes(happened())
    minutes.flush()
    store.away = True
    for _ in range(5):
        minutes(happened())
        ticking(60)
        with pytest.raises(StoreUnavailable):
            minutes.flush()
    store.away = False
    minutes.flush()
    assert counted(store) == counted(store, HOUR) == {"succeeded": 6}


def test_however_long_it_is_away_no_more_than_so_much_waits(ticking: Callable[[float], None]) -> None:
    store = Away()
    minutes = quiet(store)
    minutes(happened())
    minutes.flush()
    for _ in range(MOST_WAITING + 50):
        minutes(happened())
        ticking(60)
    minutes(happened())
    assert len(minutes._over) <= MOST_WAITING


def test_two_observers_of_one_process_are_added_up() -> None:
    store = Away()
    first, second = quiet(store), quiet(store)
    for minutes in (first, second, second):
        minutes(happened())
        minutes.flush()
    assert counted(store) == counted(store, HOUR) == {"succeeded": 3}


def test_operations_without_end_are_counted_together() -> None:
    store = Away()
    minutes = quiet(store)
    for number in range(MOST_NAMES + 30):
        minutes(happened(operation=f"pay-{number}"))
    minutes.flush()
    tallies = store.tallied(MINUTE, DAY)
    assert len(tallies) == MOST_NAMES + 1
    assert {tally.operation: tally.count for tally in tallies}[OTHER] == 30


def test_a_call_never_waits_for_the_store() -> None:
    """The writer hangs, and callers go on."""
    entered, released = threading.Event(), threading.Event()

    class Hanging(MemoryStore):
        def tally(self, process: str, span: int, tallies: Sequence[Tally]) -> int:
            entered.set()
            released.wait(PATIENCE)
            return super().tally(process, span, tallies)

    store = Hanging()
    minutes = Minutes(store, every=0.01)
    with Once(store, scope="loja", observers=[minutes]) as once:
        once.run("pay", key="0", call=lambda: 1, unknown="rerun")
        assert entered.wait(PATIENCE)
        began = time.monotonic()
        for _ in range(200):
            once.run("pay", key="0", call=lambda: 1, unknown="rerun")
        assert time.monotonic() - began < PATIENCE / 2
        assert not released.is_set()
        released.set()
    minutes.close()
    assert counted(store) == {"succeeded": 1, "replayed": 200}


def test_threads_at_once_lose_no_count() -> None:
    store = Away()
    minutes = Minutes(store, every=0.001)
    threads = [threading.Thread(target=lambda: [minutes(happened()) for _ in range(2000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    minutes.close()
    assert counted(store) == counted(store, HOUR) == {"succeeded": 8000}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_counts_for_itself(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/loja.db?journal=delete"
    minutes = Minutes(url)
    minutes(happened())
    minutes.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            minutes(happened("replayed"))
            minutes.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    minutes.close()
    with closing(open_store(url)) as store:
        assert counted(store) == {"succeeded": 1, "replayed": 1}


def test_a_store_that_keeps_none_or_is_awaited_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="give the URL"):
        Minutes(object())  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ConfigurationError, match="give the URL"):
        Minutes(AsyncMemoryStore())  # type: ignore[arg-type]  # on purpose


async def _pay() -> int:
    return 1


def test_an_engine_of_tasks_counts_too(tmp_path: Path) -> None:
    import asyncio

    url = f"sqlite:///{tmp_path}/loja.db?journal=delete"
    minutes = Minutes(url)

    async def run() -> None:
        async with AsyncOnce(url, scope="loja", observers=[minutes]) as once:
            for _ in range(2):
                await once.run("pay", key="1", call=_pay, unknown="rerun")

    asyncio.run(run())
    minutes.close()
    with closing(open_store(url)) as store:
        assert counted(store) == {"succeeded": 1, "replayed": 1}


def test_quantiles_are_guessed_within_their_bucket() -> None:
    buckets = [0] * BUCKETS
    buckets[bucket_of(0.02)], buckets[bucket_of(0.2)] = 90, 10
    tallies = [Tally(0, "pay", "succeeded", 100, 4.0, tuple(buckets))]
    assert quantile(tallies, 0.45) == pytest.approx(0.015)
    assert quantile(tallies, 0.95) == pytest.approx(0.175)
    assert quantile([Tally(0, "pay", "replayed", 5)], 0.5) is None
    assert quantile([], 0.5) is None
    slow = [Tally(0, "pay", "succeeded", 1, 900.0, (*[0] * (BUCKETS - 1), 1))]
    assert quantile(slow, 0.5) == EDGES[-1]
    assert bucket_of(EDGES[0]) == 0
    assert begun(61_000, MINUTE) == 60_000
    assert summed([*tallies, *tallies])[0][3:5] == (200, 8.0)
