"""Once.find page by page."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from umavez import AsyncOnce, ConfigurationError, Once, Record, open_async_store, open_store
from umavez.testing import ManualClock


def test_the_last_record_of_a_page_leads_to_the_next() -> None:
    with Once(open_store("memory:", clock=ManualClock()), scope="shop") as once:
        for number in range(5):
            once.run("pay", key=number, call=lambda: None, unknown="rerun")
        found: list[Record] = []
        while page := once.find(limit=2, after=found[-1] if found else None):
            found += page
        assert sorted(record.key.value for record in found) == list("01234")
        assert once.find(newest_first=True) == found[::-1]


def test_the_same_for_tasks() -> None:
    async def look() -> None:
        async with AsyncOnce(open_async_store("memory:", clock=ManualClock()), scope="shop") as once:

            async def call() -> None: ...

            for number in range(3):
                await once.run("pay", key=number, call=call, unknown="rerun")
            first = await once.find(limit=2)
            rest = await once.find(after=first[-1])
            assert sorted(record.key.value for record in first + rest) == list("012")

    asyncio.run(look())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": -1}, "limit"),
        ({"older_than": float("inf")}, "span"),
        ({"newer_than": float("nan")}, "span"),
        ({"older_than": 1e12}, "span"),
        ({"status": "SUCESS"}, "no status; there are PENDING"),
    ],
)
def test_a_look_that_asks_for_nothing_possible_says_so(asked: dict[str, Any], said: str) -> None:
    async def tasks() -> None:
        async with AsyncOnce("memory:", scope="shop") as once:
            await once.find(**asked)

    with Once("memory:", scope="shop") as once, pytest.raises(ConfigurationError, match=said):
        once.find(**asked)
    with pytest.raises(ConfigurationError, match=said):
        asyncio.run(tasks())


@pytest.mark.parametrize("kind", [Once, AsyncOnce])
def test_a_store_that_is_none_is_refused_at_once(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="NoneType is no store"):
        kind(None, scope="shop")
