"""The page at /fiscal in a real browser, on a desk and on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.umavez_systems.corridas.chromium import page
from tests.umavez_systems.fiscal.conftest import _SERIES, Mundo, prepared
from umavez_systems.settings import Settings


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)], ids=["desk", "phone"])
def test_the_page_emits_loses_an_answer_and_shows_the_proof(
    tmp_path: Path, mundo: Mundo, serving: Any, width: int, height: int
) -> None:
    database = f"sqlite:///{tmp_path}/page.db"
    prepared(database, mundo.folder)
    series = next(_SERIES)
    settings = Settings(database=database, fiscal_dir=str(mundo.folder), fiscal_settle_seconds=0.5)
    with serving(settings) as client, page(tmp_path / "browser") as tab:
        tab.open(f"{client.base_url}/fiscal", width, height)
        tab.until("!document.getElementById('none').hidden")
        tab.until("document.getElementById('where').textContent.includes('simulador')")
        tab.look(f"document.getElementById('series').value = '{series}'")
        tab.look("document.querySelector('[data-tab=faults]').click()")
        tab.until("!!document.querySelector('[data-fault=queda]')")
        tab.look("document.querySelector('[data-fault=queda]').click()")
        tab.until("document.getElementById('line').textContent.includes('queda depois')")
        tab.look("document.querySelector('[data-tab=documents]').click()")
        tab.look("document.querySelector('#emit button').click()")
        tab.until("document.getElementById('state').textContent.includes('origem conciliação')")
        tab.until("document.getElementById('proof').textContent.includes('sem resposta')")
        tab.look("document.getElementById('again').click()")
        tab.until("document.getElementById('state').textContent.includes('200 ·')")
        tab.shoot(tmp_path / f"fiscal-{width}.png")
        assert tab.look("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the screen"
        tab.look("document.getElementById('cancel').click()")
        tab.until("document.getElementById('title').textContent.includes('CANCELADO')")
        tab.look("document.querySelector('[data-tab=numbers]').click()")
        tab.until("document.getElementById('ledger').textContent.includes('1 cancelado')")

        assert tab.look("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the screen"
        assert not tab.complaints
        assert {httpx.URL(url).host for url in tab.requests if not url.startswith("data:")} == {"127.0.0.1"}
    assert len([row for row in mundo.livro()["documentos"] if row["serie"] == series]) == 1
