"""Shots: every page of the server and its console in a real browser, as pictures to be looked at.

python tools/shots.py FOLDER [--only WORD]

A server with something in every system, and one with nothing in it, each at 360 and 1280 px, light (in Portuguese) and
dark (in English), with script and without. Says which page is wider than its screen, asks another host, or breaks the
content security policy. Needs what the tests need, and Chromium.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.console.browser import OPEN, Browser
from tests.console.conftest import doubt
from tests.umavez_systems.conftest import served
from tests.umavez_systems.corridas.chromium import Page, page
from umavez import Key, Once, console
from umavez.console import loopback
from umavez.console.charts.reading import MINUTES
from umavez.core.record import Draft, Status
from umavez.core.telling.events import Process
from umavez.core.telling.gauges import Gauge, gauge_tally
from umavez.core.telling.minutes import HOUR, MINUTE, Tally
from umavez.core.telling.origin import originated, whence
from umavez.leases import Leases
from umavez.messaging import Message, Outbox
from umavez.sql.database import writing
from umavez.stores import Chronicle, Tallies
from umavez.tokens import Tokens
from umavez_systems.corridas.command import populate
from umavez_systems.fiscal.web import EXAMPLE
from umavez_systems.processos.web import CLAIM
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier

FRONT = ("/", "/docs", "/docs?q=fiscal", "/corridas", "/mailing", "/processos", "/glosas", "/fiscal")
CONSOLE = (
    *("/", "/unknown", "/unknown?show=all", "/records", "/records?q=status%3Afailed", "/records?q=colour%3Ared"),
    *("/records?q=nothing-like-this", "/messages", "/messages?state=DEAD", "/leases", "/leases?days=30", "/tokens"),
    *("/tokens?owner=ana", "/sequences", "/processes", "/decisions", "/operation?name=charge"),
    *("/over-time", "/messages?topic=pedido.pago", "/records?q=status%3Aunknown+holder%3Aweb-3"),
    "/bulk?q=status%3Aunknown+op%3Acharge&action=not-happened",
)
RIDE = {
    "type": "comunidade",
    "passengerLat": -23.5505,
    "passengerLng": -46.6333,
    "origin": "Origem",
    "destination": "Destino",
    "price": 15.50,
}
SIZES = ((360, 740), (1280, 900))


def main() -> int:
    """Make the pictures; 1 where a page is not as it should be."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    complaints: list[str] = []
    for kind in ("filled", "empty"):
        with running(kind) as (address, more):
            pages = [*FRONT, *(f"/console{path}" for path in (*CONSOLE, *more))]
            wanted = [path for path in pages if given.only in f"{kind}{path}"]
            for script in (True, False):
                complaints += taken(given.folder, kind, address, wanted, script=script)
    sys.stdout.write("\n".join([*dict.fromkeys(complaints), f"{len(complaints)} complaints\n"]))
    return 1 if complaints else 0


@contextlib.contextmanager
def running(kind: str) -> Iterator[tuple[str, list[str]]]:
    """A server, and the pages of single things in it."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            database=f"sqlite:///{folder}/s.db?journal=delete",
            fiscal_dir=f"{folder}/fiscal",
            storage=f"{folder}/lists",
            portal_url="http://127.0.0.1:1",
        )
        with served(settings) as client:
            yield str(client.base_url).rstrip("/"), filled(settings, client) if kind == "filled" else []


def filled(settings: Settings, client: httpx.Client) -> list[str]:
    """Put something into every system and into the engine; the pages of single things."""
    systems(settings, client)
    with Once(settings.database, scope="loja") as once:
        for number in range(3):
            doubt(once, f"order-{number}", error="503 Service Unavailable: the bank's gateway said nothing for 30 s")
        odd = doubt(once, "chave-" + "a" * 200, operation="POST /pagamentos", error="<b>ReadTimeout</b>: no answer")
        traced(once)
        once.run("charge", key="order-9", call=lambda: {"id": 9}, unknown="hold")
        with contextlib.suppress(ValueError):
            once.run("charge", key="order-10", call=lambda: int("x"), unknown="hold", free=(ValueError,))
        once.release("charge", "order-2", by="ana", reason="the bank has nothing under this number")
        Leases(once).acquire("nightly-report")
        Tokens(once, "confirm", unknown="hold").issue("ana", {"ride": 1})
        decided(once)
        messages(settings.database)
        counted(once)
        whole = [Key(once.scope, "charge", key).digest.hex() for key in ("order-2", "order-9")]
    doubtful = f"/records/{odd.key.digest.hex()}"
    return [doubtful, f"{doubtful}/happened", *(f"/records/{digest}" for digest in whole), "/message?id=m-0"]


def traced(once: Once) -> None:
    """One in doubt whose request and trace are known, of a process that was announced."""
    origin = originated("feed-1", whence(f"00-{'4bf92f35' * 4}-{'00f067aa' * 2}-01", "req-7f3a90c1d2e4") or "")
    key = Key("loja", "POST /pagamentos", "order-17")
    once.store.swap(None, Draft(key, "feed-1", Status.UNKNOWN, False, error="ReadTimeout: no answer", origin=origin))
    if isinstance(once.store, Chronicle):
        once.store.announce(Process("feed", "web-3", 412, "loja", "0.1.0", 1000))


def decided(once: Once) -> None:
    """One decision in a console, and its audit."""
    app = console(once, authorize=loopback, panels=[])
    record = doubt(once, "order-3", error="no answer")
    browser = Browser(app)
    path = f"/records/{record.key.digest.hex()}/not-happened"
    browser.done(path, browser.form(path) | {"reason": "the bank has nothing under this number"})
    OPEN.pop().close()
    app.close()


def systems(settings: Settings, client: httpx.Client) -> None:
    """A list, a document, some drivers and rides, a process that waits for its payer, a client with a proposal."""
    carrier = Carrier(settings)
    populate(carrier.corridas, 40)
    carrier.close()
    listed = b"email,nome\nana@b.com,Ana\nbia@b.com,Bia\nana@b.com,Ana\nruim,x\n"
    said = {"assunto": "Oi {{ nome }}", "texto": "Tudo bem, {{ nome }}?"}
    answers = [client.post("/mailings", files={"file": ("lista.csv", listed, "text/csv")}, data=said)]
    answers.append(client.get("/api/v1/fiscal/ambiente"))
    for number in range(3):
        key = {"Idempotency-Key": f"venda-{number}"}
        answers.append(client.post("/api/v1/fiscal/documentos", json=EXAMPLE, headers=key))
        ride = {**RIDE, "passengerId": f"p-{number}"}
        answers.append(client.post("/api/governance/ride/request", json=ride))
    answers.append(client.post("/api/v1/processos", json={"id": "atendimento-42", "claimData": CLAIM}))
    for answer in answers:
        if answer.is_error:
            raise SystemExit(f"{answer.request.url.path} answered {answer.status_code}: {answer.text[:500]}")


def messages(url: str) -> None:
    """One that waits, one that is dead."""
    with writing(url, "messages") as connection:
        for number in range(2):
            Outbox().append(connection, Message("pedido.pago", f'{{"n": {number}}}', id=f"m-{number}"))
            Outbox().append(connection, Message("pedido.pago", "{}", id=f"a-{number}", aggregate="pedido-7"))
        dead = "UPDATE umavez_outbox SET state = 'DEAD', error = 'refused by the queue' WHERE id IN ('m-0', 'a-0')"
        connection.execute(dead)


def counted(once: Once) -> None:
    """An hour of calls, some of which did not end well."""
    if not isinstance(once.store, Tallies):
        return
    now = once.store.read(Key("loja", "clock", "now")).now // MINUTE * MINUTE
    many = {"succeeded": 40, "replayed": 9, "failed": 2, "unknown": 1, "taken_over": 1}
    rare = {"failed": 5, "unknown": 17, "taken_over": 23}
    once.store.tally(
        "shots",
        MINUTE,
        [
            Tally(now - back * MINUTE, name, kind, count * (2 + back % 7) // 4 + 1, 1.0, (0, count, 0, 3, *[0] * 6))
            for back in range(MINUTES)
            for name in ("charge", "POST /pagamentos")
            for kind, count in many.items()
            if back % rare.get(kind, 1) == 0
        ],
    )
    stood(once.store, now)


def stood(store: Tallies, now: int) -> None:
    """An hour and a week in which something was in doubt for a while, and messages waited."""
    for span, many in ((MINUTE, 60), (HOUR, 168)):
        for back in range(many):
            doubts = max(0, 7 - abs(back - 25) // 3)
            late = max(0, 40 - 4 * abs(back - 10))
            gauges = [
                Gauge("unknown", doubts, doubts * 173.0),
                Gauge("lapsed", 0),
                Gauge("outbox", late * 3, late * 1.5),
                Gauge("dead", 2 if back < 12 else 0),
            ]
            kept = [gauge_tally((now // span - back) * span, gauge, "5h075") for gauge in gauges]
            if back not in (30, 31):
                store.tally("shots", span, kept)


def taken(folder: Path, kind: str, address: str, paths: list[str], *, script: bool) -> list[str]:
    """Open every page in every size and light; what is wrong with them."""
    found = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, page(Path(profile) / "browser") as tab:
        tab.send("Emulation.setScriptExecutionDisabled", value=not script)
        for path, (width, height), theme in itertools.product(paths, SIZES, ("light", "dark")):
            language = "pt" if theme == "light" else "en"
            look(tab, f"{address}{path}", width, height, theme, language)
            word = path.strip("/").replace("/", "-").replace("?", "_")[-100:] or "start"
            tab.shoot(folder / f"{kind}-{word}-{width}-{theme}{'' if script else '-plain'}.png")
            if not tab.look("document.documentElement.scrollWidth <= innerWidth"):
                found.append(f"{kind} {path} is wider than {width} px")
            if tab.look("document.body.innerText.startsWith('Internal Server Error')"):
                found.append(f"{kind} {path} fails")
        hosts = {httpx.URL(url).host for url in tab.requests if url.startswith("http")}
        found += [f"asked {host}" for host in hosts - {"127.0.0.1"}]
        found += [each for each in tab.complaints if "Content Security Policy" in each]
    return found


def look(tab: Page, url: str, width: int, height: int, theme: str, language: str) -> Any:
    """Open a page as somebody who likes this light and reads this language."""
    tab.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
    tab.send("Network.enable")
    tab.send("Network.setExtraHTTPHeaders", headers={"Accept-Language": language})
    tab.open(url, width, height)


if __name__ == "__main__":
    sys.exit(main())
