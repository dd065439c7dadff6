"""What a passenger's app hears over its WebSocket, and what it shows in a browser."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx import Client
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.umavez_systems.corridas.chromium import page
from tests.umavez_systems.corridas.conftest import age, confirm, query, token_of
from umavez_systems.corridas.command import populate
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier


@contextlib.contextmanager
def follow(client: Client, greeting: Any) -> Iterator[ClientConnection]:
    address = str(client.base_url).replace("http", "ws", 1).rstrip("/")
    with connect(f"{address}/api/governance/ride/confirmation/live", proxy=None) as socket:
        socket.send(greeting if isinstance(greeting, str) else json.dumps(greeting))
        yield socket


def told(socket: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(socket.recv(20))
    return found


def mine(token: str, passenger: str = "passenger123") -> dict[str, str]:
    return {"passengerId": passenger, "confirmationToken": token}


def test_the_app_is_told_when_the_token_is_used(client: Client) -> None:
    token = token_of(client)
    with follow(client, mine(token)) as socket:
        assert told(socket)["event"] == "unused"
        began = time.monotonic()
        made = confirm(client, token)
        heard = told(socket)
        assert (heard["event"], heard["rideId"]) == ("used", made.json()["ride"]["id"])
        assert time.monotonic() - began < 1.9, "it was found at the next look, not told"
        with pytest.raises(ConnectionClosed):
            socket.recv(20)


def test_the_app_is_told_when_the_token_is_cancelled(client: Client) -> None:
    token = token_of(client)
    with follow(client, mine(token)) as socket:
        assert told(socket)["event"] == "unused"
        client.post("/api/governance/ride/confirmation/cancel", json=mine(token))
        assert told(socket)["event"] == "cancelled"


def test_the_app_is_told_when_the_token_expires(client: Client, settings: Settings) -> None:
    token = token_of(client)
    age(settings, 299)
    with follow(client, mine(token)) as socket:
        heard = [told(socket)["event"]]
        if heard == ["unused"]:
            heard.append(told(socket)["event"])
        assert heard[-1] == "expired"
    assert confirm(client, token).status_code == 410


def test_the_app_is_told_of_what_another_process_did(client: Client, settings: Settings) -> None:
    token = token_of(client)
    other = Carrier(settings)
    try:
        with follow(client, mine(token)) as socket:
            assert told(socket)["event"] == "unused"
            answer = other.corridas.confirm("local", "passenger123", token)
            assert told(socket)["rideId"] == answer.body["ride"]["id"]
    finally:
        other.close()


@pytest.mark.parametrize("greeting", ["{", "[]", "{}", "x" * 5000, '{"passengerId": "", "confirmationToken": "a"}'])
def test_a_bad_greeting_is_refused(client: Client, greeting: str) -> None:
    with follow(client, greeting) as socket:
        assert told(socket)["event"] == "refused"
        with pytest.raises(ConnectionClosed):
            socket.recv(20)


def test_only_the_tokens_owner_may_follow_it(client: Client) -> None:
    token = token_of(client)
    with follow(client, mine(token, "mallory")) as socket:
        assert told(socket) == {
            "event": "refused",
            "error": "token_not_owned",
            "message": "Não autorizado: este token não pertence a este passageiro.",
        }


def test_a_named_principal_says_who_it_is_in_the_greeting(database: str, serving: Any) -> None:
    settings = Settings(database=database, api_keys="ana:0123456789abcdef")
    with serving(settings) as client:
        client.headers["Authorization"] = "Bearer 0123456789abcdef"
        token = token_of(client)
        with follow(client, mine(token)) as socket:
            assert told(socket)["event"] == "refused"
        with follow(client, {**mine(token), "authorization": "Bearer 0123456789abcdef"}) as socket:
            assert told(socket)["event"] == "unused"


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(1100, 800), (390, 844)])
def test_the_page_asks_confirms_twice_and_gets_one_ride(tmp_path: Path, serving: Any, width: int, height: int) -> None:
    settings = Settings(database=f"sqlite:///{tmp_path}/page.db", fleet_refresh_seconds=0)
    with serving(settings) as client, page(tmp_path / "profile") as tab:
        carrier = Carrier(settings)
        populate(carrier.corridas, 20)
        carrier.close()
        tab.open(str(client.base_url.join("/corridas")), width, height)
        tab.until("map.fences.length === 6 && map.drivers.length === 20")
        tab.look("document.getElementById('ask').click()")
        tab.until("document.getElementById('state').textContent.startsWith('Nenhum motorista disponível')")
        tab.until("document.getElementById('log').textContent.includes('ao vivo: unused')")
        tab.look("document.getElementById('twice').click()")
        tab.until("document.getElementById('log').textContent.includes('1 corrida')")
        tab.until("document.getElementById('log').textContent.includes('ao vivo: used')")
        tab.until("map.drivers.some((d) => map.ride && d.rideId === map.ride.id)")
        text = tab.look("document.getElementById('log').innerText")
        tab.shoot(tmp_path / f"page-{width}.png")

        assert "201 e 200" in text or "200 e 201" in text
        assert tab.look("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the screen"
        assert tab.look("document.getElementById('map').toDataURL().length > 5000"), "the map is empty"
        assert not tab.complaints
        assert {httpx.URL(url).host for url in tab.requests if not url.startswith("data:")} == {"127.0.0.1"}
        assert query(settings, "SELECT count(*), count(driver_id) FROM rides") == [(1, 1)]
