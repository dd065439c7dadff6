"""An error of ours: the client gets a problem, and the log what is needed, without what a stranger wrote."""

from __future__ import annotations

import asyncio
import logging

import httpx
import pytest
from fastapi import FastAPI

from umavez_systems import problems


async def asked(app: FastAPI, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.get(path)


def test_the_log_names_the_route_and_not_the_address(caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI()
    problems.install(app)

    @app.get("/keys/{key}/x")
    def broken(key: str) -> None:
        raise RuntimeError("ours")

    with caplog.at_level(logging.ERROR, "umavez.systems"):
        answered = asyncio.run(asked(app, "/keys/529.982.247-25%0aFORGED line/x"))
    assert answered.status_code == 500
    assert answered.json()["type"].endswith("/erro-interno")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "umavez.systems"]
    assert line == "Unexpected error at GET /keys/{key}/x"
