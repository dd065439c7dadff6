"""Who may come in where no API key is asked for: this machine, by its own names, and no page of another site."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.umavez_systems.conftest import served
from umavez_systems.server import create_app, prepare
from umavez_systems.settings import Settings

CLIENTES = "/api/v1/clientes"
ANA = {"nome": "Ana", "email": "ana@example.com"}
KEY = "0123456789abcdef"


@pytest.fixture
def settings(tmp_path: Any) -> Settings:
    """One database is enough: nothing here gets as far."""
    return Settings(database=f"sqlite:///{tmp_path}/doors.db")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost@evil.example", "", "[::1"]
)
def test_a_name_that_is_not_this_machines_is_not_answered(client: httpx.Client, host: str) -> None:
    for refused in (
        client.get(CLIENTES, headers={"Host": host}),
        client.post(CLIENTES, json=ANA, headers={"Host": host}),
    ):
        assert refused.status_code in (400, 421)
        if refused.status_code == 421:
            assert refused.json()["type"].endswith("/host-desconhecido")
    assert client.get(CLIENTES).json()["itens"] == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9999", "LOCALHOST", "[::1]:80", "umavez.test"])
def test_this_machines_names_and_those_that_are_set_are_answered(settings: Settings, host: str) -> None:
    with served(settings.model_copy(update={"allowed_hosts": "outro.test, umavez.test"})) as client:
        assert client.get(CLIENTES, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_of_another_origin_may_not_write(client: httpx.Client, headers: dict[str, str]) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        refused = client.request(method, CLIENTES, json=ANA, headers=headers)
        assert (refused.status_code, refused.json()["type"].rpartition("/")[2]) == (403, "outra-origem")
    address = str(client.base_url).replace("http", "ws", 1).rstrip("/")
    with (
        pytest.raises(InvalidStatus) as closed,
        connect(f"{address}/api/governance/ride/confirmation/live", proxy=None, additional_headers=headers),
    ):
        pass
    assert closed.value.response.status_code == 403


def test_a_page_of_this_server_may_write(client: httpx.Client) -> None:
    headers = {"Origin": str(client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert client.post(CLIENTES, json=ANA, headers=headers).status_code == 201


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
@pytest.mark.parametrize(
    "path", [CLIENTES, "/api/v1/propostas", "/api/governance/ride/request", "/api/v1/submit_claim"]
)
def test_what_does_not_say_that_it_is_json_is_refused(client: httpx.Client, kind: str | None, path: str) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    refused = client.post(path, content=b'{"nome": "a", "email": "a@b"}', headers=headers)
    assert (refused.status_code, refused.headers["content-type"]) == (415, "application/problem+json")


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/geo+json"])
def test_json_may_be_written_in_several_ways(client: httpx.Client, kind: str) -> None:
    made = client.post(CLIENTES, content=b'{"nome": "a", "email": "a@b"}', headers={"Content-Type": kind})
    assert made.status_code == 201


@pytest.mark.parametrize(
    ("client_address", "headers", "status"),
    [
        (("127.0.0.1", 5), {}, 200),
        (("127.8.8.8", 5), {}, 200),
        (("::1", 5), {}, 200),
        (("::ffff:127.0.0.1", 5), {}, 200),
        (("192.0.2.7", 5), {}, 403),
        (("::ffff:192.0.2.7", 5), {}, 403),
        (("fe80::1%eth0", 5), {}, 403),
        (("unknown", 5), {}, 403),
        (None, {}, 403),
        (("127.0.0.1", 5), {"X-Forwarded-For": "192.0.2.7"}, 403),
        (("127.0.0.1", 5), {"Forwarded": "for=192.0.2.7"}, 403),
    ],
)
def test_behind_any_runner_only_this_machine_is_answered(
    settings: Settings, client_address: Any, headers: dict[str, str], status: int
) -> None:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(settings), client=client_address)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            return await client.get("/health", headers=headers)

    answer = asyncio.run(ask())
    assert answer.status_code == status
    if status == 403:
        assert "UMAVEZ_API_KEYS" in answer.json()["detail"]


def test_with_keys_the_key_alone_decides(settings: Settings) -> None:
    prepare(settings)
    app = create_app(Settings(database=settings.database, api_keys=SecretStr(f"ana:{KEY}")))
    told = {"Authorization": f"Bearer {KEY}", "Origin": "https://other.example"}

    async def ask() -> tuple[httpx.Response, httpx.Response]:
        transport = httpx.ASGITransport(app, client=("192.0.2.7", 5))
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://shop.example") as client,
        ):
            return await client.post(CLIENTES, json=ANA, headers=told), await client.post(CLIENTES, json=ANA)

    made, refused = asyncio.run(ask())
    assert made.status_code == 201
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="umavez"')
