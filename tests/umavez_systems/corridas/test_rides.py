"""Drivers are given to one ride only; the life of a ride, each step once."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from httpx import Client, Response

from tests.umavez_systems.corridas.conftest import ask, confirm, driver, fenced, query, square, token_of
from umavez_systems.server import prepare
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier


def step(client: Client, ride: str, name: str, **who: Any) -> Response:
    return client.post(f"/api/governance/rides/{ride}/{name}", json=who)


@pytest.fixture
def ride(client: Client) -> str:
    """A ride that was given to driver `d1`."""
    fenced(client)
    driver(client, "d1", -23.5506, -46.6334)
    made = ask(client)
    assert made.status_code == 201
    found: str = made.json()["ride"]["id"]
    return found


def test_a_ride_lives_from_request_to_finish_and_each_step_happens_once(client: Client, ride: str) -> None:
    for name, status in (("accept", "accepted"), ("start", "started"), ("finish", "finished")):
        first, again = (step(client, ride, name, driverId="d1") for _ in range(2))
        assert (first.status_code, first.json()["ride"]["status"]) == (200, status)
        assert (again.json(), again.headers["idempotent-replayed"]) == (first.json(), "true")

    late = step(client, ride, "accept", driverId="d1")
    assert late.json()["ride"]["status"] == "finished"
    history = client.get(f"/api/governance/rides/{ride}").json()["history"]
    assert [entry["to_status"] for entry in history] == ["requested", "accepted", "started", "finished"]
    assert client.get("/api/governance/drivers/d1").json()["rideId"] is None
    assert ask(client).json()["ride"]["driverId"] == "d1"


def test_cancelling_frees_the_driver(client: Client, ride: str) -> None:
    assert ask(client, passengerId="outra").status_code == 202
    for _ in range(2):
        assert step(client, ride, "cancel", passengerId="passenger123").json()["ride"]["status"] == "cancelled"

    assert ask(client).json()["ride"]["driverId"] == "d1"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        (("start",), False),
        (("finish",), False),
        (("cancel",), True),
        (("accept", "cancel"), True),
        (("accept", "start", "cancel"), False),
        (("cancel", "accept"), False),
    ],
)
def test_only_allowed_steps(client: Client, ride: str, path: tuple[str, ...], allowed: bool) -> None:
    answers = [step(client, ride, name, driverId="d1") for name in path]

    assert [answer.status_code for answer in answers] == [200] * (len(path) - 1) + [200 if allowed else 409]


def test_only_the_rides_own_people_take_it_further(client: Client, ride: str) -> None:
    driver(client, "d2", -23.5507, -46.6334)

    assert step(client, ride, "accept", driverId="d2").status_code == 403
    assert step(client, ride, "accept", passengerId="passenger123").status_code == 403
    assert step(client, ride, "cancel", passengerId="mallory").status_code == 403
    assert step(client, "cnone", "cancel", passengerId="mallory").status_code == 404


def test_a_ride_without_a_driver_is_taken_by_one_of_many_who_accept(client: Client, settings: Settings) -> None:
    ride = confirm(client, token_of(client)).json()["ride"]
    for number in range(8):
        driver(client, f"d{number}", -23.55, -46.63 - number / 1000)
    assert ride["driverId"] is None

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: step(client, ride["id"], "accept", driverId=f"d{n}"), range(8)))

    assert [answer.status_code for answer in answers].count(200) == 1
    assert query(settings, "SELECT count(*) FROM drivers WHERE ride_id IS NOT NULL") == [(1,)]


def test_a_driver_is_given_to_one_ride_only(client: Client, settings: Settings) -> None:
    fenced(client)
    for number in range(20):
        driver(client, f"d{number}", -23.5506, -46.6334 + number / 10_000)

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda n: ask(client, passengerId=f"p{n}"), range(40)))

    assert {answer.status_code for answer in answers} <= {201, 202}
    given = [answer.json()["ride"]["driverId"] for answer in answers if answer.status_code == 201]
    assert len(given) == len(set(given)) == 20
    assert query(settings, "SELECT count(*) FROM rides WHERE driver_id IS NOT NULL") == [(20,)]
    assert query(settings, "SELECT count(DISTINCT driver_id) FROM rides") == [(20,)]


def test_confirmations_at_once_share_out_the_drivers(client: Client, settings: Settings) -> None:
    for number in range(5):
        driver(client, f"d{number}", -23.7 + number / 1000, -46.6)
    fenced(client)
    tokens = [(f"p{n}", token_of(client, f"p{n}")) for n in range(8)]

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda pair: confirm(client, pair[1], pair[0]), tokens * 4))

    assert [answer.status_code for answer in answers].count(201) == 8
    assert query(settings, "SELECT count(*) FROM rides") == [(8,)]
    assert query(settings, "SELECT count(DISTINCT driver_id) FROM rides") == query(
        settings, "SELECT count(driver_id) FROM rides"
    )


def test_the_database_itself_refuses_a_driver_on_two_rides(client: Client, ride: str, settings: Settings) -> None:
    """S1.09."""
    copy = "SELECT 'cother', principal, 'outra', type, status, out_of_fence, community_id, driver_id"
    rest = "passenger_lat, passenger_lng, origin, destination, created_at, updated_at FROM rides"

    with pytest.raises(Exception, match=r"(?i)unique"):
        query(settings, f"INSERT INTO rides {_columns()} {copy}, {rest}")


def _columns() -> str:
    return (
        "(id, principal, passenger_id, type, status, out_of_fence, community_id, driver_id,"
        " passenger_lat, passenger_lng, origin, destination, created_at, updated_at)"
    )


def test_what_another_process_changed_is_known_here(client: Client, settings: Settings) -> None:
    other = Carrier(settings)
    try:
        fenced(client)
        driver(client, "d1", -23.5506, -46.6334)
        other.corridas.fleet.refresh()
        assert [d.id for d in other.corridas.fleet.index.anywhere(-23.55, -46.63)] == ["d1"]
        assert ask(client).status_code == 201
        other.corridas.fleet.refresh()
        assert other.corridas.fleet.index.anywhere(-23.55, -46.63) == []
        client.delete("/api/governance/communities/centro")
        other.corridas.fleet.refresh()
        assert sorted(other.corridas.fleet.index.fences.by_id) == ["leste"]
    finally:
        other.close()


def test_an_index_that_is_behind_gives_nobody_away_wrongly(client: Client, settings: Settings) -> None:
    """The index of this process says d1 is near; the database knows that he drove out of the fence."""
    fenced(client)
    driver(client, "d1", -23.5506, -46.6334)
    other = Carrier(settings.model_copy(update={"fleet_refresh_seconds": 60.0}))
    try:
        other.corridas.fleet.refresh()
        client.post("/api/governance/drivers/positions", json={"positions": [{"id": "d1", "lat": -23.9, "lng": -46.6}]})
        client.put("/api/governance/drivers/d2", json={"name": "d2", "lat": -23.551, "lng": -46.634})
        fence = other.corridas.fleet.index.fences.by_id["centro"]
        with other.database.transaction() as connection:
            given = other.corridas.fleet.give(connection, "cride", fence, -23.55, -46.63)
    finally:
        other.close()

    assert given is not None
    assert given["id"] == "d2"


@pytest.mark.postgres
def test_a_driver_whose_position_is_being_written_is_waited_for(postgres_url: str, serving: Any) -> None:
    settings = Settings(database=postgres_url, fleet_refresh_seconds=0)
    prepare(settings)
    query(settings, "TRUNCATE ride_history, rides, drivers, communities CASCADE")
    with serving(settings) as client, psycopg.connect(postgres_url) as moving:
        fenced(client)
        driver(client, "d1", -23.5506, -46.6334)
        moving.execute("UPDATE drivers SET lat = -23.5507 WHERE id = 'd1'")
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask, client)
            while not moving.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() and not asked.done():
                pass
            moving.commit()
            assert asked.result(60).status_code == 201


def test_positions_arrive_many_at_once(client: Client) -> None:
    fenced(client)
    for number in range(3):
        driver(client, f"d{number}", -23.9, -46.0)
    assert ask(client).status_code == 202

    moved = client.post(
        "/api/governance/drivers/positions",
        json={"positions": [{"id": f"d{n}", "lat": -23.5506, "lng": -46.6334 + n / 1000} for n in range(4)]},
    )

    assert moved.json() == {"success": True, "moved": 3, "unknown": ["d3"]}
    assert ask(client).json()["ride"]["driverId"] == "d0"


def test_an_unavailable_driver_is_never_given(client: Client) -> None:
    fenced(client)
    driver(client, "d1", -23.5506, -46.6334, available=False)
    assert ask(client).status_code == 202
    driver(client, "d1", -23.5506, -46.6334, available=True)
    assert ask(client).status_code == 201


def test_a_driver_keeps_its_ride_when_it_is_put_again(client: Client, ride: str) -> None:
    assert driver(client, "d1", -23.55, -46.63)["rideId"] == ride
    assert ask(client, passengerId="outra").status_code == 202


def test_communities_are_imported_all_or_none(client: Client) -> None:
    broken = square("torta", 0, 0)
    broken["geometry"]["coordinates"][0].pop()

    refused = client.put(
        "/api/governance/communities", json={"type": "FeatureCollection", "features": [square("boa", 1, 1), broken]}
    )
    assert refused.status_code == 422
    assert "feature 2" in refused.json()["detail"]
    assert client.get("/api/governance/communities").json()["features"] == []
    good = [square("boa", 1, 1, priority=3), square("outra", 2, 2)]
    for _ in range(2):
        put = client.put("/api/governance/communities", json={"type": "FeatureCollection", "features": good})
        assert put.json() == {"success": True, "communities": ["boa", "outra"]}
    shown = client.get("/api/governance/communities").json()
    assert [feature["properties"] for feature in shown["features"]] == [
        {"name": "boa", "priority": 3},
        {"name": "outra", "priority": 0},
    ]
    assert json.loads(json.dumps(shown["features"][0]["geometry"]["coordinates"][0])) == [
        good[0]["geometry"]["coordinates"][0]
    ]
    assert (
        client.put("/api/governance/drivers/x", json={"name": "x", "lat": 0, "lng": 0, "communityId": "?"}).status_code
        == 422
    )


def test_many_tokens_confirmed_by_many_at_once_make_one_ride_each(client: Client, settings: Settings) -> None:
    """The short form of the chaos trial: 12 tokens, each confirmed 16 times at the same instant."""
    fenced(client)
    for number in range(6):
        driver(client, f"d{number}", -23.7 + number / 1000, -46.6)
    for name in [f"p{n}" for n in range(12)]:
        token, start = token_of(client, name), threading.Barrier(16)

        def go(_: int, token: str = token, name: str = name, start: threading.Barrier = start) -> Response:
            start.wait(30)
            return confirm(client, token, name)

        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(go, range(16)))
        assert sorted(answer.status_code for answer in answers) == [200] * 15 + [201]

    assert query(settings, "SELECT count(*) FROM rides") == [(12,)]
    assert query(settings, "SELECT count(DISTINCT driver_id), count(driver_id) FROM rides") == [(6, 6)]
    assert query(settings, "SELECT count(*) FROM ride_confirmations WHERE is_used") == [(12,)]
