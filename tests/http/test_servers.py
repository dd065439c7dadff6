"""Real servers, several processes each, one store: however many identical requests, one effect."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.serving import serving
from umavez import Once

pytestmark = pytest.mark.slow


def migrated(url: str) -> str:
    with Once(url, scope="shop") as once:
        once.migrate()
    return url


def store(name: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if name == "sqlite":
        return migrated(f"sqlite:///{folder}/once.db")
    return migrated(request.getfixturevalue(f"{name}_url"))


async def storm(url: str, rounds: int, width: int, prefix: str) -> list[list[httpx.Response]]:
    """`rounds` times `width` identical requests at once; retried while the first is running."""
    limits = httpx.Limits(max_connections=width)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as client:

        async def one(key: str) -> httpx.Response:
            for _ in range(600):
                headers = {"idempotency-key": key, "x-user": "ana"}
                answer = await client.post("/orders", json={"item": key}, headers=headers)
                if answer.status_code != 409:
                    return answer
                await asyncio.sleep(0.02)
            return answer

        return [await asyncio.gather(*[one(f"{prefix}-{r}") for _ in range(width)]) for r in range(rounds)]


# Every server and every store once; chaos/http_duplicates.py runs the whole grid, in full numbers.
GRID = [
    ("uvicorn", "sqlite"),
    ("gunicorn", "postgres"),
    ("django", "sqlite"),
    ("django-async", "redis"),
    ("uvicorn", "postgres"),
]


@pytest.mark.parametrize(("kind", "name"), GRID)
def test_identical_requests_at_once_have_one_effect(
    kind: str, name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with serving(kind, tmp_path, STORE=store(name, request, tmp_path)) as server:
        rounds = asyncio.run(storm(server.url, 3, 20, kind))
        assert sorted(server.lines) == sorted(f"{kind}-{number}" for number in range(3))
    for answers in rounds:
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.content for answer in answers}) == 1
        replays = [answer for answer in answers if answer.headers.get("idempotent-replayed")]
        assert len(replays) == len(answers) - 1
        assert not [answer for answer in replays if "set-cookie" in answer.headers]
        assert {answer.headers["location"] for answer in answers} == {"/orders/1"}
        assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}


@pytest.mark.parametrize("kind", ["uvicorn", "gunicorn"])
def test_a_server_killed_in_the_middle_leaves_the_key_held_and_nothing_runs_twice(kind: str, tmp_path: Path) -> None:
    store = migrated(f"sqlite:///{tmp_path}/kill.db")
    with serving(kind, tmp_path, STORE=store, PAUSE="30", UNKNOWN="hold", LEASE="1") as server:
        with httpx.Client(base_url=server.url, headers={"idempotency-key": "k", "x-user": "ana"}) as client:
            with pytest.raises(httpx.HTTPError):
                _kill_in_the_middle(client, server)
            server._settings["PAUSE"] = "0"
            server.restart()
            states = []
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline and "outcome-unknown" not in states[-1:]:
                answer = _sent(client)
                assert answer.status_code == 409
                states.append(answer.json()["type"].rpartition(":")[2])
                time.sleep(0.1)
            assert states[-1] == "outcome-unknown"
        assert server.lines == ["x"]


@pytest.mark.parametrize("kind", ["uvicorn", "gunicorn"])
def test_a_key_is_free_again_after_its_lease_where_a_rerun_is_harmless(kind: str, tmp_path: Path) -> None:
    store = migrated(f"sqlite:///{tmp_path}/kill.db")
    with serving(kind, tmp_path, STORE=store, PAUSE="30", UNKNOWN="rerun", LEASE="1") as server:
        with httpx.Client(base_url=server.url, headers={"idempotency-key": "k", "x-user": "ana"}) as client:
            with pytest.raises(httpx.HTTPError):
                _kill_in_the_middle(client, server)
            killed = time.monotonic()
            server._settings["PAUSE"] = "0"
            server.restart()
            status = 409
            while status == 409 and time.monotonic() < killed + 20:
                status = _sent(client).status_code
                time.sleep(0.05)
            assert status == 201
        assert server.lines == ["x", "x"]


def _sent(client: httpx.Client) -> httpx.Response:
    """Send as a client does: a connection that the new server does not know is no answer."""
    while True:
        try:
            return client.post("/orders", json={"item": "x"})
        except httpx.TransportError:
            time.sleep(0.05)


def _kill_in_the_middle(client: httpx.Client, server: Any) -> None:
    import threading

    def kill() -> None:
        while not server.lines:
            time.sleep(0.01)
        server.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        client.post("/orders", json={"item": "x"})
    finally:
        killer.join()


def test_a_hundred_principals_with_the_same_keys_never_meet(tmp_path: Path) -> None:
    store = migrated(f"sqlite:///{tmp_path}/once.db")

    async def probe(url: str) -> list[tuple[str, str]]:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:

            async def one(user: str, key: str) -> tuple[str, str]:
                headers = {"idempotency-key": key, "x-user": user}
                answer = await client.post("/orders", json={"item": "same"}, headers=headers)
                return user, answer.json()["user"]

            found = []
            for _ in range(2):
                found += await asyncio.gather(*[one(f"u{u}", "same") for u in range(100)])
            return found

    with serving("uvicorn", tmp_path, STORE=store) as server:
        seen = asyncio.run(probe(server.url))
        assert len(server.lines) == 100
    assert len(seen) == 200
    assert not [pair for pair in seen if pair[0] != pair[1]]


@pytest.mark.parametrize("name", ["sqlite", "redis"])
def test_requests_with_one_key_in_one_breath_are_one_effect_and_replays(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Pipelined: the server begins the next request from within the answer to the last one."""
    with serving("uvicorn", tmp_path, workers=1, STORE=store(name, request, tmp_path)) as server:
        body = b'{"item": "pipelined"}'
        asked = (
            b"POST /orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-User: ana\r\n"
            b'Idempotency-Key: "in-one-breath"\r\nContent-Length: %d\r\n\r\n' % len(body)
        ) + body
        heard = b""
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as line:
            line.sendall(asked * 5)
            while heard.count(b"HTTP/1.1 ") < 5 or not heard.endswith(b"}"):
                heard += line.recv(65536)

        assert heard.count(b"HTTP/1.1 201") == 5, heard.decode()
        assert server.lines == ["pipelined"]
