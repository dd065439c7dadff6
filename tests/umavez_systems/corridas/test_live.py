"""What a passenger's app hears over its WebSocket, and what it shows in a browser."""

from __future__ import annotations

import base64
import contextlib
import json
import socket as socketlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx import Client
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.umavez_systems.corridas.chromium import page
from tests.umavez_systems.corridas.conftest import age, confirm, query, token_of
from umavez_systems.corridas import live
from umavez_systems.corridas.command import populate
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier


@contextlib.contextmanager
def follow(client: Client, greeting: Any, **given: Any) -> Iterator[ClientConnection]:
    address = str(client.base_url).replace("http", "ws", 1).rstrip("/")
    with connect(f"{address}/api/governance/ride/confirmation/live", proxy=None, **given) as socket:
        if greeting is not None:
            socket.send(greeting if isinstance(greeting, str | bytes) else json.dumps(greeting))
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


def test_a_clock_ahead_of_the_stores_makes_no_crowd_of_looks() -> None:
    """By our clock every token has expired long ago, by the store's none has: for five minutes of looks."""
    seconds = looks = 0.0
    while seconds < 300:
        looks += 1
        seconds += live._pause(-3600.0, int(looks))
    assert looks < 170
    assert live._pause(0.5, 0) == pytest.approx(0.52)
    assert live._pause(200.0, 0) == live.LOOK_SECONDS
    assert live._pause(-0.001, 1) < 0.1


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


@pytest.mark.parametrize(
    "greeting",
    [
        "{",
        "[]",
        "{}",
        "x" * 5000,
        "[" * 1900,
        '{"passengerId": "", "confirmationToken": "a"}',
        '{"passengerId": "p", "confirmationToken": "a", "x": 1e999999999}',
        '{"passengerId": "\\ud800", "confirmationToken": "a"}',
        '{"passengerId": "p", "confirmationToken": "\\u0000"}',
    ],
    ids=lambda greeting: repr(greeting[:60]),
)
def test_a_bad_greeting_is_refused(client: Client, greeting: str | bytes) -> None:
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


def in_protocol(key: str) -> str:
    """A key as a browser offers it."""
    return f"umavez.key.{base64.urlsafe_b64encode(key.encode()).decode().rstrip('=')}"


def test_where_keys_are_set_no_socket_opens_without_one(database: str, serving: Any) -> None:
    settings = Settings(database=database, api_keys="ana:0123456789abcdef")
    with serving(settings) as client:
        client.headers["Authorization"] = "Bearer 0123456789abcdef"
        token = token_of(client)
        wrong: list[dict[str, Any]] = [
            {},
            {"additional_headers": {"Authorization": "Bearer wrong"}},
            {"subprotocols": ["umavez.live", in_protocol("wrong")]},
        ]
        for given in wrong:
            with pytest.raises(InvalidStatus) as refused, follow(client, mine(token), **given):
                pass
            assert refused.value.response.status_code == 401
            assert b"nao-autenticado" in (refused.value.response.body or b"")
        with follow(client, mine(token), additional_headers={"Authorization": "Bearer 0123456789abcdef"}) as socket:
            assert told(socket)["event"] == "unused"
        with follow(client, mine(token), subprotocols=["umavez.live", in_protocol("0123456789abcdef")]) as socket:
            assert socket.subprotocol == "umavez.live"
            assert told(socket)["event"] == "unused"


def test_sockets_are_bounded_for_a_principal_and_in_all(database: str, serving: Any) -> None:
    keys = {name: f"{name}-0123456789abcdef" for name in ("ana", "bia", "caio")}
    listed = ",".join(f"{name}:{key}" for name, key in keys.items())
    settings = Settings(database=database, api_keys=listed, max_websockets=3, max_websockets_each=2)
    with serving(settings) as client, contextlib.ExitStack() as stack:

        def open_as(name: str) -> ClientConnection:
            headers = {"Authorization": f"Bearer {keys[name]}"}
            return stack.enter_context(follow(client, None, additional_headers=headers))

        def refused(name: str) -> None:
            with pytest.raises(InvalidStatus) as full:
                open_as(name)
            assert full.value.response.status_code == 503
            assert "Retry-After" in full.value.response.headers

        first = open_as("ana")
        open_as("ana")
        refused("ana")
        open_as("bia")
        refused("caio")
        first.close()
        opened(open_as, "caio")


def opened(open_as: Any, name: str) -> None:
    """Open a socket as soon as the server has noticed that a place is free."""
    deadline = time.monotonic() + 10
    while True:
        try:
            open_as(name)
        except InvalidStatus:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        else:
            return


def test_bytes_are_refused_politely_before_and_after_the_greeting(client: Client) -> None:
    token = token_of(client)
    for first in (None, mine(token)):
        with follow(client, first) as socket:
            if first is not None:
                assert told(socket)["event"] == "unused"
            socket.send(b"\x00\x01")
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(20)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1003


def test_a_message_is_refused_by_its_announced_size(client: Client) -> None:
    with follow(client, None) as socket:
        # The head of a frame of ten million bytes, and nothing after it: the refusal cannot wait for the rest.
        socket.socket.sendall(b"\x81\xff" + (10_000_000).to_bytes(8, "big") + b"mask")
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


def test_who_never_stops_talking_is_left(client: Client) -> None:
    token = token_of(client)
    with follow(client, mine(token)) as socket:
        assert told(socket)["event"] == "unused"
        with pytest.raises(ConnectionClosed) as closed:
            for _ in range(100):
                socket.send("x")
            while told(socket)["event"] == "refused":
                pass
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


def test_who_never_greets_is_left(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PATIENCE", 0.1)
    with follow(client, None) as socket, pytest.raises(ConnectionClosed) as closed:
        socket.recv(20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


def test_who_answers_no_ping_is_left(database: str, serving: Any) -> None:
    with serving(Settings(database=database, websocket_ping_seconds=0.5)) as client:
        token = token_of(client)
        address = (client.base_url.host, client.base_url.port)
        with socketlib.create_connection(address, 20) as raw:
            raw.sendall(
                b"GET /api/governance/ride/confirmation/live HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
            )
            heard = raw.recv(4096)
            greeting = json.dumps({**mine(token), "fill": "x" * 100}).encode()
            raw.sendall(b"\x81" + bytes([0x80 | 126]) + len(greeting).to_bytes(2, "big") + b"\0\0\0\0" + greeting)
            while part := raw.recv(4096):
                heard += part
        assert b"unused" in heard
        assert b"keepalive ping timeout" in heard


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


@pytest.mark.slow
def test_the_page_without_communities_says_what_to_do(tmp_path: Path, serving: Any) -> None:
    settings = Settings(database=f"sqlite:///{tmp_path}/page.db", fleet_refresh_seconds=0)
    with serving(settings) as client, page(tmp_path / "profile") as tab:
        tab.open(str(client.base_url.join("/corridas")), 390, 844)
        tab.until("document.getElementById('state').textContent.includes('umavez corridas demo')")
        assert "peça uma corrida" in tab.look("getComputedStyle(document.getElementById('log'), '::after').content")
        assert tab.look("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the screen"
        assert not tab.complaints
