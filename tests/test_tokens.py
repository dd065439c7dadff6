"""Confirmation tokens: their laws on every store, and what only one store can show."""

from __future__ import annotations

import pytest

from tests.instrument_benches import async_bench, async_store, bench, store_url, sync_store
from umavez.testing import token_laws
from umavez.testing.instruments import InstrumentBench

__all__ = ["async_bench", "async_store", "bench", "store_url", "sync_store"]


@pytest.mark.parametrize("law", token_laws.LAWS, ids=lambda law: law.__name__)
def test_tokens_obey(law: token_laws.Law, bench: InstrumentBench) -> None:
    law(bench)


@pytest.mark.parametrize("law", token_laws.LAWS, ids=lambda law: law.__name__)
def test_async_tokens_obey(law: token_laws.Law, async_bench: InstrumentBench) -> None:
    law(async_bench)
