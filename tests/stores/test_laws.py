"""Every store, sync and async, obeys every law."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from umavez.stores import open_async_store, open_store
from umavez.testing import AnyBench, AsyncBench, Bench, ManualClock, laws

SERVERS = ("postgres", "mariadb", "redis")
BACKENDS = ["memory", "sqlite", *(pytest.param(name, marks=getattr(pytest.mark, name)) for name in SERVERS)]


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def url(backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """One database for all laws; they keep apart by scope."""
    if backend in SERVERS:
        return str(request.getfixturevalue(f"{backend}_url"))
    if backend == "memory":
        return "memory:"
    folder: Path = tmp_path_factory.mktemp("laws")
    return f"sqlite:///{folder / 'laws.db'}"


@pytest.fixture(scope="module")
def clock(url: str) -> ManualClock:
    """One clock for one database: what one law leaves behind is never in another's future."""
    return ManualClock()


@pytest.fixture(scope="module")
def shop(url: str, clock: ManualClock) -> Iterator[Bench]:
    store = open_store(url, clock=clock)
    store.migrate()
    yield Bench(store, clock)
    store.close()


@pytest.fixture(scope="module")
def async_shop(url: str, clock: ManualClock) -> Iterator[tuple[AsyncBench, asyncio.Runner]]:
    with asyncio.Runner() as runner:
        store = open_async_store(url, clock=clock)
        runner.run(store.migrate())
        yield AsyncBench(store, clock, runner), runner
        runner.run(store.close())


@pytest.mark.parametrize("law", laws.ALL, ids=laws.name)
def test_a_store_obeys(law: laws.Law, shop: Bench) -> None:
    bench: AnyBench = Bench(shop.store, shop.clock)

    law(bench)


@pytest.mark.parametrize("law", laws.ALL, ids=laws.name)
def test_an_async_store_obeys(law: laws.Law, async_shop: tuple[AsyncBench, asyncio.Runner]) -> None:
    shop, runner = async_shop

    law(AsyncBench(shop.store, shop.clock, runner))
