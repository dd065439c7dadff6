"""FastAPI: contracts on the routes, the key in the handler, and all of it in OpenAPI."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from umavez import AsyncOnce, ConfigurationError
from umavez.http import ANONYMOUS
from umavez.http.fastapi import Connection, Key, idempotent, protect


def made(**options: Any) -> tuple[FastAPI, list[int]]:
    app, runs = FastAPI(), list[int]()
    router = APIRouter(prefix="/v1")

    @router.post("/charges/{number}", status_code=201)
    @idempotent(unknown="hold", required=True, keep=3600)
    async def charge(number: int, key: Key) -> dict[str, Any]:
        assert key is not None
        runs.append(number)
        return {"number": number, "attempt": key.attempt.number, "downstream": key.attempt.downstream_key()}

    @app.post("/free")
    async def free(key: Key) -> dict[str, bool]:
        runs.append(0)
        return {"keyed": key is not None}

    @app.post("/sync")
    @idempotent(unknown="rerun")
    def sync() -> dict[str, int]:
        runs.append(1)
        return {"runs": len(runs)}

    @app.post("/misused")
    @idempotent(unknown="rerun")
    async def misused(connection: Connection) -> None:
        runs.append(2)

    protect(app, once=AsyncOnce("memory:", scope="api"), principal=ANONYMOUS, **options)
    app.include_router(router)
    return app, runs


def ask(app: FastAPI, *requests: tuple[str, str, str | None]) -> list[httpx.Response]:
    async def talk() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
            return [
                await client.request(method, path, headers={} if key is None else {"idempotency-key": key})
                for method, path, key in requests
            ]

    return asyncio.run(talk())


def test_a_marked_route_runs_once_and_knows_its_key() -> None:
    app, runs = made()
    first, again, other, missing = ask(
        app,
        ("POST", "/v1/charges/1", "k"),
        ("POST", "/v1/charges/1", "k"),
        ("POST", "/v1/charges/2", "k"),
        ("POST", "/v1/charges/1", None),
    )
    assert first.json() == again.json()
    assert first.json()["attempt"] == 1
    assert len(first.json()["downstream"]) == 64
    assert other.json()["number"] == 2
    assert missing.status_code == 400
    assert runs == [1, 2]


def test_an_unmarked_route_is_left_alone_unless_there_is_a_default() -> None:
    app, runs = made()
    assert [answer.json() for answer in ask(app, ("POST", "/free", "k"), ("POST", "/free", "k"))] == [
        {"keyed": False}
    ] * 2
    app, runs = made(unknown="rerun")
    ask(app, ("POST", "/free", "k"), ("POST", "/free", "k"))
    assert runs == [0]


def test_sync_endpoints_run_once_too() -> None:
    app, _ = made()
    assert [answer.json() for answer in ask(app, ("POST", "/sync", "k"), ("POST", "/sync", "k"))] == [{"runs": 1}] * 2


def test_a_connection_without_a_joined_route_is_a_mistake_that_is_told() -> None:
    app, runs = made()
    with pytest.raises(ConfigurationError):
        ask(app, ("POST", "/misused", "k"))
    assert runs == []


def test_a_misspelt_option_is_told_where_it_is_written() -> None:
    with pytest.raises(ConfigurationError, match="requird"):
        idempotent(unknown="rerun", requird=True)


def test_the_contract_is_in_openapi() -> None:
    app, _ = made()
    schema = app.openapi()
    charge = schema["paths"]["/v1/charges/{number}"]["post"]
    (header,) = [parameter for parameter in charge["parameters"] if parameter["in"] == "header"]
    assert (header["name"], header["required"], header["schema"]["maxLength"]) == ("Idempotency-Key", True, 255)
    for sent, fits in (
        ("k-1", True),
        ('"k-1"', True),
        ('"k;1,2"', True),
        ("k,1", False),
        ('"k', False),
        ("k 1", False),
    ):
        assert bool(re.search(header["schema"]["pattern"], sent)) is fits, sent
    assert {"201", "400", "409", "410", "413", "422", "429", "503"} <= charge["responses"].keys()
    assert "application/problem+json" in charge["responses"]["422"]["content"]
    assert charge["x-idempotency"]["keep_seconds"] == 3600
    assert "IdempotencyProblem" in schema["components"]["schemas"]
    assert "x-idempotency" not in schema["paths"]["/free"]["post"]
    assert app.openapi() is schema


def test_a_declared_route_refuses_to_run_where_nothing_enforces_it() -> None:
    app, runs = FastAPI(), list[int]()

    @app.post("/charges")
    @idempotent(unknown="hold")
    async def charge(number: int = 1) -> None:
        runs.append(number)

    @app.post("/sync")
    @idempotent(unknown="hold")
    def sync(**rest: Any) -> None:
        runs.append(2)

    for request in (("POST", "/charges", "k"), ("POST", "/charges", None), ("POST", "/sync", "k")):
        with pytest.raises(ConfigurationError, match="protect"):
            ask(app, request)
    assert runs == []


def test_a_declared_route_runs_without_a_key_where_none_is_required() -> None:
    app, runs = made()
    assert [answer.status_code for answer in ask(app, ("POST", "/sync", None), ("POST", "/sync", None))] == [200, 200]
    assert runs == [1, 1]


def test_a_declared_route_on_a_mounted_app_is_protected_by_the_outer_one() -> None:
    outer, inner, runs = FastAPI(), FastAPI(), list[int]()

    @inner.post("/charges")
    @idempotent(unknown="hold")
    async def charge() -> None:
        runs.append(1)

    outer.mount("/in", inner)
    protect(outer, once=AsyncOnce("memory:", scope="api"), principal=ANONYMOUS)
    assert [answer.status_code for answer in ask(outer, *[("POST", "/in/charges", "k")] * 2)] == [200, 200]
    assert runs == [1]


def test_a_declared_endpoint_called_directly_just_runs() -> None:
    @idempotent(unknown="hold")
    async def charge(number: int) -> int:
        return number

    assert asyncio.run(charge(3)) == 3


def test_a_line_feed_at_the_end_of_a_path_leads_past_no_contract() -> None:
    """Starlette's patterns end with `$`, which matches before it: the handler runs, so its contract must hold."""
    app, runs = made()
    first, again, keyless = ask(
        app, ("POST", "/sync%0A", "k"), ("POST", "/sync%0A", "k"), ("POST", "/v1/charges/1%0A", None)
    )

    assert (first.status_code, again.headers["idempotent-replayed"]) == (200, "true")
    assert (keyless.status_code, runs) == (400, [1])
