"""The console in a real browser: on a desk and on a phone, in both lights, with script and without (X.04)."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from tests.console.conftest import doubt
from tests.umavez_systems.corridas.chromium import page
from umavez import Event, Key, Once, console
from umavez.console import loopback
from umavez.leases import Leases
from umavez.migration import migrate
from umavez.observe.minutes import Minutes

INSTRUMENTS = ("/messages", "/leases", "/tokens?owner=ana", "/sequences", "/processes", "/decisions")
BULK = "/bulk?q=status%3Aunknown+op%3Acharge&action=not-happened"
PAGES = ("/", "/operation?name=charge", "/over-time", "/unknown", "/records", *INSTRUMENTS, BULK)


LONG = "a" * 200
CONTRAST = """(() => {
  const light = (text) => { const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((each) => {
    const part = each / 255; return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (one) => { for (; one; one = one.parentElement) { const found = getComputedStyle(one).backgroundColor;
    if (!/, 0\\)$/.test(found)) return found; } return "rgb(255, 255, 255)"; };
  const faint = [];
  for (const one of document.querySelectorAll("body *")) {
    const said = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!said || !one.getClientRects().length) continue;
    if (one.closest("svg, select")) continue;
    const [a, b] = [light(getComputedStyle(one).color), light(ground(one))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.push(one.tagName + " " + one.textContent.trim().slice(0, 40));
  }
  return faint;
})()"""
"""The texts whose contrast with what is behind them is less than WCAG's 4.5 to 1."""
TURNED = "order-\u202eabc"
"""A key that turns the direction of what is read after it."""
BACKWARDS = """(() => {
  const text = [...document.querySelectorAll(".inbox li")].find((one) => one.textContent.includes("\u202e"))
    .querySelector(".dim").firstChild;
  const at = (place) => { const range = document.createRange();
    range.setStart(text, place); range.setEnd(text, place + 1); return range.getBoundingClientRect().left; };
  return at(0) > at(text.length - 1);
})()"""
"""Whether the scope beside that key is drawn from right to left."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Once, str]]:
    """A console with something in doubt, behind a real server."""
    url = f"sqlite:///{tmp_path}/c.db?journal=delete"
    migrate(url)
    with Once(url, scope="loja") as once:
        for number in range(3):
            doubt(once, f"order-{number}", error="503 Service Unavailable: the bank's gateway said nothing for 30 s")
        doubt(once, LONG, operation="POST /pagamentos")
        once.run("charge", key="order-9", call=lambda: {"id": 9}, unknown="hold")
        Leases(once).acquire("nightly-report")
        app = console(once, authorize=loopback, panels=[])
        with listening(app) as address:
            yield once, address
        app.close()


@contextlib.contextmanager
def listening(app: Any) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    host, port = listener.getsockname()
    yield f"http://{host}:{port}"
    server.should_exit = True
    thread.join(30)
    listener.close()


@pytest.mark.slow
def test_every_page_works_without_script_and_in_portuguese(served: tuple[Once, str], tmp_path: Path) -> None:
    once, address = served
    with page(tmp_path / "browser") as tab:
        tab.send("Emulation.setScriptExecutionDisabled", value=True)
        tab.send("Network.enable")
        tab.send("Network.setExtraHTTPHeaders", headers={"Accept-Language": "pt-BR,pt;q=0.9"})
        for path in PAGES:
            tab.open(f"{address}{path}", 360, 740)
            assert "Visão geral" in tab.look("document.body.innerText"), path
        tab.open(f"{address}/unknown", 360, 740)
        tab.shoot(tmp_path / "sem-script-360.png")
        place = tab.look("document.querySelector('.inbox a.button[href$=\"/not-happened\"]').href")
        tab.open(place, 360, 740)
        tab.look("document.querySelector('[name=reason]').value = 'o banco não tem nada'")
        tab.look("document.querySelector('form.decide').submit()")
        tab.until("document.querySelector('.notice')?.textContent.includes('a chave está livre')")
        assert f"{address}/pulse" not in tab.requests, "the script did not run"
        assert not tab.complaints
    assert once.run("charge", key="order-0", call=lambda: "ran", unknown="hold").value == "ran"


@pytest.mark.slow
def test_no_screen_between_a_phone_and_a_desk_is_too_narrow(served: tuple[Once, str], tmp_path: Path) -> None:
    once, address = served
    with contextlib.closing(Minutes(once.store)) as minutes:
        for number in range(30):
            minutes(Event("succeeded", Key("loja", "check_eligibility", str(number)), 1, 0.1))
    with page(tmp_path / "browser") as tab:
        for width in (641, 768, 900, 1024):
            for path in PAGES:
                tab.open(f"{address}{path}", width, 900)
                assert tab.look("document.documentElement.scrollWidth <= innerWidth"), f"{path} at {width}"
        tab.open(f"{address}/records", 1280, 900)
        assert tab.look("document.querySelector('td.named').offsetWidth") >= 144, "names of operations are broken"


@pytest.mark.slow
def test_a_key_turns_nothing_round_but_itself(served: tuple[Once, str], tmp_path: Path) -> None:
    once, address = served
    doubt(once, TURNED, error="no answer")
    with page(tmp_path / "browser") as tab:
        tab.open(f"{address}/unknown", 1280, 900)
        assert tab.look(BACKWARDS) is False


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (360, 740)], ids=["desk", "phone"])
def test_an_operator_looks_around_and_decides(
    served: tuple[Once, str], tmp_path: Path, width: int, height: int, theme: str
) -> None:
    once, address = served
    with page(tmp_path / "browser") as tab:
        odd = f"/records/{Key('loja', 'POST /pagamentos', LONG).digest.hex()}"
        for number, path in enumerate((*PAGES, odd, f"{odd}/happened", f"{odd}/not-happened")):
            mark = "&" if "?" in path else "?"
            tab.open(f"{address}{path}{mark}theme={theme}&lang=en", width, height)
            tab.until("document.readyState === 'complete' && !!document.querySelector('main h1')")
            tab.shoot(tmp_path / f"{number}-{width}-{theme}.png")
            assert tab.look("document.documentElement.scrollWidth <= innerWidth"), f"{path} is wider than the screen"
            assert tab.look("getComputedStyle(document.documentElement).colorScheme") == theme
            assert tab.look(CONTRAST) == [], f"{path} in {theme}"
            here = "document.querySelector('header nav a[aria-current]')?.getBoundingClientRect().right ?? 0"
            assert tab.look(here) <= width, f"where one is stands outside of the screen at {path}"
        tab.open(f"{address}/unknown", width, height)
        tab.until("!!document.querySelector('.inbox a.key')")
        tab.look("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert tab.look("document.documentElement.scrollWidth <= innerWidth"), "the form of a note is wider"
        for key, shown in (("?", False), ("?", True)):
            tab.look(f"document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))")
            assert tab.look("document.getElementById('keys').hidden") is shown
        tab.look("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'j', bubbles: true}))")
        assert tab.look("document.activeElement.matches('a.key')")
        tab.look("[...document.querySelectorAll('.inbox a.button')].find(a => a.href.endsWith('/happened')).click()")
        tab.until("!!document.querySelector('textarea[name=reason]')")
        tab.shoot(tmp_path / f"decide-{width}-{theme}.png")
        assert tab.look("document.documentElement.scrollWidth <= innerWidth"), "the form is wider than the screen"
        tab.look("document.querySelector('[name=result]').value = '{\"id\": 7}'")
        tab.look("document.querySelector('[name=reason]').value = 'on the statement of the bank'")
        tab.look("document.querySelector('button.strong').click()")
        tab.until("document.querySelector('.notice')?.textContent.includes('recorded as happened')")
        tab.shoot(tmp_path / f"record-{width}-{theme}.png")
        assert tab.look("document.documentElement.scrollWidth <= innerWidth"), "the record is wider than the screen"
        assert not tab.complaints, "nothing was refused by the content security policy, and no script failed"
        assert {httpx.URL(url).host for url in tab.requests if not url.startswith("data:")} == {"127.0.0.1"}
    assert once.run("charge", key="order-0", call=lambda: 1, unknown="hold").value == {"id": 7}
