"""The server's pages in a real browser: on a desk and on a phone, in both lights, with script and without."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.umavez_systems.conftest import served
from tests.umavez_systems.corridas.chromium import page
from umavez_systems.settings import Settings

PAGES = ("/", "/docs", "/docs?q=fiscal", "/corridas", "/mailing", "/processos", "/fiscal", "/console/")


@pytest.mark.slow
@pytest.mark.parametrize("script", [True, False], ids=["script", "plain"])
def test_every_page_fits_its_screen_and_asks_no_other_host(tmp_path: Path, script: bool) -> None:
    settings = Settings(
        database=f"sqlite:///{tmp_path}/s.db", fiscal_dir=f"{tmp_path}/fiscal", portal_url="http://127.0.0.1:1"
    )
    with served(settings) as client, page(tmp_path / "browser") as tab:
        address = str(client.base_url).rstrip("/")
        tab.send("Emulation.setScriptExecutionDisabled", value=not script)
        for width, height in ((360, 740), (1280, 900)):
            for theme in ("light", "dark"):
                tab.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
                for path in PAGES:
                    tab.open(f"{address}{path}", width, height)
                    name = f"{path.strip('/?').replace('/', '-') or 'start'}-{width}-{theme}.png"
                    tab.shoot(tmp_path / name)
                    tab.look("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
                    place = f"{path} at {width} in {theme}"
                    assert tab.look("document.documentElement.scrollWidth <= innerWidth"), f"{place} is too wide"
                    assert tab.look("!!document.querySelector('.around a[aria-current]')"), place
        assert {httpx.URL(url).host for url in tab.requests if not url.startswith("data:")} == {"127.0.0.1"}
        refused = [each for each in tab.complaints if "Content Security Policy" in each]
        assert not refused
