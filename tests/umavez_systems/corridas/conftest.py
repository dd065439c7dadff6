"""Rides on each database: empty tables, two communities side by side, and the seed's request."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest
from httpx import Client, Response

from umavez_systems.server import prepare
from umavez_systems.settings import Settings

TABLES = (
    "ride_confirmation_audit",
    "ride_confirmations",
    "ride_declines",
    "ride_history",
    "rides",
    "drivers",
    "communities",
    "idempotency_records",
)
ROUTE = "/api/governance/ride/request"
SEED = {
    "passengerId": "passenger123",
    "type": "comunidade",
    "passengerLat": -23.5505,
    "passengerLng": -46.6333,
    "origin": "Origem",
    "destination": "Destino",
    "price": 15.50,
}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with empty tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/corridas.db"
    url: str = request.getfixturevalue("postgres_url")
    prepare(Settings(database=url))
    with psycopg.connect(url) as connection:
        connection.execute(f"TRUNCATE {', '.join(TABLES)} RESTART IDENTITY CASCADE".encode())
    return url


@pytest.fixture
def settings(database: str) -> Settings:
    """Settings for that database; what other processes change is seen at once."""
    return Settings(database=database, fleet_refresh_seconds=0)


def query(settings: Settings, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a statement, behind the application's back; committed."""
    if settings.database.startswith("sqlite"):
        connection = sqlite3.connect(settings.database.removeprefix("sqlite:///"), timeout=30)
        try:
            with connection:
                return connection.execute(sql).fetchall()
        finally:
            connection.close()
    with psycopg.connect(settings.database) as server:
        cursor = server.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def age(settings: Settings, seconds: int) -> None:
    """Let every token be `seconds` older than it is, as if the clock had gone on."""
    if settings.database.startswith("sqlite"):
        query(settings, f"UPDATE idempotency_records SET created_at = created_at - {seconds * 1000}")
        query(settings, f"UPDATE ride_confirmations SET expires_at = datetime(expires_at, '-{seconds} seconds')")
        return
    query(settings, f"UPDATE idempotency_records SET created_at = created_at - interval '{seconds} seconds'")
    query(settings, f"UPDATE ride_confirmations SET expires_at = expires_at - interval '{seconds} seconds'")


def square(name: str, west: float, south: float, side: float = 0.02, **properties: Any) -> dict[str, Any]:
    """A community that is a square."""
    east, north = west + side, south + side
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    geometry = {"type": "Polygon", "coordinates": [ring]}
    return {"type": "Feature", "id": name, "properties": {"name": name, **properties}, "geometry": geometry}


def fenced(client: Client) -> None:
    """Put the seed's passenger inside `centro`, with `leste` beside it."""
    features = [square("centro", -46.64, -23.56), square("leste", -46.60, -23.56)]
    put = client.put("/api/governance/communities", json={"type": "FeatureCollection", "features": features})
    assert put.status_code == 200, put.text


def driver(client: Client, name: str, lat: float, lng: float, **more: Any) -> dict[str, Any]:
    """Keep a driver."""
    put = client.put(f"/api/governance/drivers/{name}", json={"name": name, "lat": lat, "lng": lng, **more})
    assert put.status_code == 200, put.text
    found: dict[str, Any] = put.json()["driver"]
    return found


def ask(client: Client, **changed: Any) -> Response:
    """The seed's request."""
    return client.post(ROUTE, json={**SEED, **changed})


def token_of(client: Client, passenger: str = "passenger123") -> str:
    """A token for a passenger whose community has no driver."""
    offered = ask(client, passengerId=passenger)
    assert offered.status_code == 202, offered.text
    token: str = offered.json()["confirmationToken"]
    return token


def confirm(client: Client, token: str, passenger: str = "passenger123") -> Response:
    """The seed's confirmation: passenger and token, nothing else."""
    return client.post(ROUTE, json={"passengerId": passenger, "confirmationToken": token})
