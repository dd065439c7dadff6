"""What all communities together may be, and what a process reads again when some of them change."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from httpx import Client

from tests.umavez_systems.corridas.conftest import query, square
from umavez_systems.corridas import database as tables
from umavez_systems.corridas.geojson import communities_of
from umavez_systems.problems import Problem
from umavez_systems.server import prepare
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier

ROUTE = "/api/governance/communities"


def collection(*features: dict[str, Any]) -> dict[str, Any]:
    return {"type": "FeatureCollection", "features": list(features)}


@pytest.mark.parametrize(
    ("limit", "said"), [({"max_communities": 2}, "2 comunidades"), ({"max_fence_corners": 14}, "14 vértices")]
)
def test_communities_beyond_the_total_are_refused_and_the_limit_is_said(
    settings: Settings, serving: Any, limit: dict[str, int], said: str
) -> None:
    with serving(settings.model_copy(update=limit)) as client:
        two = collection(square("a", 0, 0), square("b", 1, 1))
        assert client.put(ROUTE, json=two).status_code == 200
        assert client.put(ROUTE, json=two).status_code == 200, "what is replaced counts once"

        for features in ([square("c", 2, 2)], [square(name, 2, 2) for name in "cde"]):
            refused = client.put(ROUTE, json=collection(*features))
            assert (refused.status_code, refused.json()["error"]) == (422, "too_many_fences")
            assert said in refused.json()["detail"]
        assert [feature["id"] for feature in client.get(ROUTE).json()["features"]] == ["a", "b"]
        client.delete(f"{ROUTE}/a")
        assert client.put(ROUTE, json=collection(square("c", 2, 2))).status_code == 200


def test_processes_that_add_communities_at_once_keep_the_total(settings: Settings) -> None:
    prepare(settings)
    carriers = [Carrier(settings.model_copy(update={"max_communities": 10})) for _ in range(4)]
    start = threading.Barrier(4)

    def add(number: int) -> bool:
        found = communities_of(collection(*(square(f"c{number}-{n}", n, number) for n in range(4))))
        start.wait(30)
        try:
            carriers[number].corridas.fleet.put_communities(found)
        except Problem:
            return False
        return True

    try:
        with ThreadPoolExecutor(4) as pool:
            kept = list(pool.map(add, range(4)))
    finally:
        for carrier in carriers:
            carrier.close()
    assert kept.count(True) == 2
    assert query(settings, "SELECT count(*) FROM communities") == [(8,)]


@pytest.mark.postgres
def test_who_adds_communities_waits_for_another_that_does(postgres_url: str) -> None:
    settings = Settings(database=postgres_url, max_communities=1)
    prepare(settings)
    query(settings, "TRUNCATE communities CASCADE")
    carrier = Carrier(settings)
    insert = "INSERT INTO communities (id, name, geometry, changed_ms) VALUES ('a', 'a', '{}', 1)"
    try:
        with psycopg.connect(postgres_url) as rival, ThreadPoolExecutor(1) as pool:
            rival.execute(insert)
            put = pool.submit(carrier.corridas.fleet.put_communities, communities_of(square("b", 0, 0)))
            while not rival.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() and not put.done():
                pass
            rival.commit()
            with pytest.raises(Problem, match="o limite é de 1 comunidades"):
                put.result(60)
    finally:
        carrier.close()
        query(settings, "TRUNCATE communities CASCADE")


def test_only_communities_that_changed_are_read_again(settings: Settings) -> None:
    prepare(settings)
    carrier, other = Carrier(settings), Carrier(settings)
    try:
        many = [square(f"c{n}", n / 10, 0) for n in range(tables.AT_ONCE + 30)]
        carrier.corridas.fleet.put_communities(communities_of(collection(*many)))
        other.corridas.fleet.refresh()
        before = other.corridas.fleet.index.fences.by_id
        assert len(before) == len(many)
        time.sleep(0.002)  # the database counts milliseconds
        carrier.corridas.fleet.put_communities(communities_of(square("c7", 7, 7)))
        carrier.corridas.fleet.remove_community("c8")
        other.corridas.fleet.refresh()
        after = other.corridas.fleet.index.fences.by_id
    finally:
        carrier.close()
        other.close()
    assert {name for name in before if after.get(name) is not before[name]} == {"c7", "c8"}
    assert after["c7"].covers(7.01, 7.01)
    assert "c8" not in after


def test_the_database_counts_corners_as_the_index_does(settings: Settings) -> None:
    prepare(settings)
    islands = {
        "type": "MultiPolygon",
        "coordinates": [
            [[[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]], [[1, 1], [2, 1], [2, 2], [1, 1]]],
            [[[9, 9], [10, 9], [1e1, 1.00000001e1], [9, 9]]],
        ],
    }
    found = communities_of(
        collection({"type": "Feature", "id": "a", "properties": {}, "geometry": islands}, square("b", 1e-7, 1e-7))
    )
    carrier = Carrier(settings)
    try:
        carrier.corridas.fleet.put_communities(found)
        with carrier.database.statements() as connection:
            size = connection.rows(tables.COMMUNITIES_SIZE)[0]
    finally:
        carrier.close()
    assert [community.corners for community in found] == [13, 5]
    assert (size["many"], int(size["corners"])) == (2, 18)


@pytest.mark.slow
def test_a_megabyte_of_large_communities_holds_nobody_up(client: Client) -> None:
    squares = [square(f"{n}", round(n % 140 - 70.3, 1), round(n // 140 - 20.3, 1), 0.5) for n in range(4900)]
    for one in squares:
        del one["properties"]
    body = json.dumps(collection(*squares), separators=(",", ":"))
    assert len(body) < 1_000_000
    waits = []
    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        put = pool.submit(client.put, ROUTE, content=body, headers={"Content-Type": "application/json"})
        while not put.done():
            asked = time.monotonic()
            assert client.get("/health").status_code == 200
            waits.append(time.monotonic() - asked)
        took = time.monotonic() - began
    assert put.result().status_code == 200, put.result().text
    assert took < 60
    assert max(waits) < 5, "the event loop stood still"
    assert len(client.get(ROUTE).json()["features"]) == 4900
