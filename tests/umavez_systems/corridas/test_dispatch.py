"""Offers that are declined or end, waiting rides that find a driver, how far one may come, and what operators see."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from httpx import Client, Response

from tests.umavez_systems.corridas.conftest import SEED, age, ask, confirm, driver, fenced, query, token_of
from umavez_systems.corridas.matching import kilometres
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier

PLACE = (-23.5506, -46.6334)
MANAUS = (-3.119, -60.0217)


@pytest.fixture
def carrier(settings: Settings, client: Client) -> Iterator[Carrier]:
    """Another process of the same server."""
    made = Carrier(settings)
    yield made
    made.close()


def step(client: Client, ride: str, name: str, **who: Any) -> Response:
    return client.post(f"/api/governance/rides/{ride}/{name}", json=who)


def shown(client: Client, ride: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/api/governance/rides/{ride}").json()["ride"]
    return found


def let_offers_end(settings: Settings) -> None:
    query(settings, "UPDATE rides SET offer_ends_ms = 1 WHERE offer_ends_ms IS NOT NULL")


def test_a_driver_from_outside_the_fence_is_near_enough_or_not_asked(client: Client) -> None:
    driver(client, "manaus", *MANAUS)

    ride = confirm(client, token_of(client)).json()["ride"]

    assert kilometres(*MANAUS, SEED["passengerLat"], SEED["passengerLng"]) == pytest.approx(2690, abs=20)
    assert ride["driverId"] is None
    assert ask(client, passengerId="outra", type="normal").status_code == 202
    assert client.get("/api/governance/drivers/manaus/waiting").json()["items"] == []


def test_the_distance_is_a_setting_and_zero_is_no_limit(database: str, serving: Any) -> None:
    with serving(Settings(database=database, max_pickup_km=0)) as client:
        driver(client, "manaus", *MANAUS)
        assert confirm(client, token_of(client)).json()["ride"]["driverId"] == "manaus"


def test_a_waiting_ride_goes_to_the_driver_who_comes_free(client: Client) -> None:
    fenced(client)
    driver(client, "d1", *PLACE)
    first = ask(client).json()["ride"]["id"]
    waiting = confirm(client, token_of(client, "outra"), "outra").json()["ride"]
    assert waiting["driverId"] is None

    step(client, first, "cancel", passengerId="passenger123")

    assert shown(client, waiting["id"])["driverId"] == "d1"


def test_availability_brings_the_longest_waiting_ride(client: Client) -> None:
    driver(client, "d1", *PLACE, available=False)
    rides = [confirm(client, token_of(client, name), name).json()["ride"]["id"] for name in ("a", "b")]
    path = "/api/governance/drivers/d1/availability"

    listed = client.get("/api/governance/drivers/d1/waiting").json()["items"]
    on = client.put(path, json={"available": True})
    off = client.put(path, json={"available": False})

    assert [item["id"] for item in listed] == rides
    assert listed[0]["distanceKm"] < 0.1
    assert on.json()["driver"]["rideId"] == rides[0]
    assert (off.json()["driver"]["available"], off.json()["driver"]["rideId"]) == (False, rides[0])
    assert client.put("/api/governance/drivers/x/availability", json={"available": True}).status_code == 404
    assert client.get("/api/governance/drivers/x/waiting").status_code == 404


def test_the_beat_matches_rides_with_drivers_who_drove_near(client: Client, carrier: Carrier) -> None:
    driver(client, "d1", *MANAUS)
    ride = confirm(client, token_of(client)).json()["ride"]["id"]
    assert carrier.corridas.beat() == 0

    client.post("/api/governance/drivers/positions", json={"positions": [{"id": "d1", "lat": -23.6, "lng": -46.6}]})

    assert carrier.corridas.beat() == 1
    assert shown(client, ride)["driverId"] == "d1"


def test_a_declined_offer_goes_to_the_next_driver_and_never_back(client: Client, settings: Settings) -> None:
    fenced(client)
    driver(client, "d1", *PLACE)
    driver(client, "d2", -23.552, -46.635)
    ride = ask(client).json()["ride"]["id"]

    first, again = (step(client, ride, "decline", driverId="d1", reason="pneu") for _ in range(2))
    last = step(client, ride, "decline", driverId="d2")
    free = client.get("/api/governance/drivers/d1").json()["rideId"]
    listed = client.get("/api/governance/drivers/d1/waiting").json()["items"]
    late = step(client, ride, "accept", driverId="d1")

    assert (first.json()["ride"]["driverId"], again.json()["ride"]["driverId"]) == ("d2", "d2")
    assert again.headers["idempotent-replayed"] == "true"
    assert (last.json()["ride"]["driverId"], last.json()["ride"]["status"]) == (None, "requested")
    assert (free, listed) == (None, [])
    assert late.status_code == 200, "who changes its mind may still take a ride that waits"
    history = client.get(f"/api/governance/rides/{ride}").json()["history"]
    assert [entry["reason"] for entry in history] == [None, "declined: pneu", "declined", None]


def test_a_ride_inside_the_fence_never_goes_outside_without_its_passenger(client: Client, carrier: Carrier) -> None:
    """Not to whoever accepts it, nor, once its community is gone, to whoever comes free."""
    fenced(client)
    driver(client, "d1", *PLACE)
    ride = ask(client).json()["ride"]["id"]
    step(client, ride, "decline", driverId="d1")
    driver(client, "d2", -23.55, -46.59)

    taken = step(client, ride, "accept", driverId="d2")
    assert (taken.status_code, taken.json()["error"]) == (409, "motorista_fora_da_cerca")
    assert client.get("/api/governance/drivers/d2").json()["rideId"] is None

    assert client.delete("/api/governance/communities/centro").status_code == 200
    driver(client, "d2", -23.55, -46.59)
    driver(client, "d3", *PLACE)
    carrier.corridas.beat()
    assert shown(client, ride)["driverId"] is None
    assert client.get("/api/governance/drivers/d3/waiting").json()["items"] == []
    assert step(client, ride, "accept", driverId="d3").status_code == 409
    assert step(client, ride, "cancel", passengerId="passenger123").status_code == 200


def test_only_an_offer_of_ones_own_can_be_declined(client: Client) -> None:
    fenced(client)
    driver(client, "d1", *PLACE)
    ride = ask(client).json()["ride"]["id"]

    assert step(client, ride, "decline", driverId="d2").status_code == 403
    assert step(client, "cnone", "decline", driverId="d1").status_code == 404
    assert step(client, ride, "decline").status_code == 422
    step(client, ride, "accept", driverId="d1")
    assert step(client, ride, "decline", driverId="d1").status_code == 409


def test_an_offer_that_ends_goes_to_the_next_driver(client: Client, settings: Settings, carrier: Carrier) -> None:
    fenced(client)
    driver(client, "d1", *PLACE)
    driver(client, "d2", -23.552, -46.635)
    ride = ask(client).json()["ride"]["id"]
    assert carrier.corridas.dispatch.end_offers() == 0
    let_offers_end(settings)

    assert carrier.corridas.dispatch.end_offers() == 1

    assert shown(client, ride)["driverId"] == "d2"
    assert step(client, ride, "accept", driverId="d1").status_code == 403
    assert step(client, ride, "accept", driverId="d2").status_code == 200
    let_offers_end(settings)
    assert carrier.corridas.dispatch.end_offers() == 0, "what was accepted is no offer any more"


def test_an_offer_that_ends_while_it_is_accepted_has_one_winner(
    client: Client, settings: Settings, carrier: Carrier
) -> None:
    fenced(client)
    for number in range(6):
        driver(client, f"d{number}", PLACE[0], PLACE[1] + number / 10_000)
    for number in range(6):
        made = ask(client, passengerId=f"p{number}").json()["ride"]
        let_offers_end(settings)
        with ThreadPoolExecutor(2) as pool:
            accepted = pool.submit(step, client, made["id"], "accept", driverId=made["driverId"])
            ended = pool.submit(carrier.corridas.dispatch.end_offers)
            answer, _ = accepted.result(60), ended.result(60)
        now = shown(client, made["id"])
        assert (answer.status_code == 200) is (now["status"] == "accepted" and now["driverId"] == made["driverId"])

    engaged = "SELECT count(*) FROM drivers d JOIN rides r ON r.id = d.ride_id AND r.driver_id = d.id"
    given = "SELECT count(*) FROM rides WHERE driver_id IS NOT NULL"
    busy = "SELECT count(*) FROM drivers WHERE ride_id IS NOT NULL"
    assert query(settings, engaged) == query(settings, given) == query(settings, busy)


def test_beats_at_once_give_each_ride_one_driver(client: Client, settings: Settings, carrier: Carrier) -> None:
    for number in range(6):
        driver(client, f"d{number}", *MANAUS)
    for number in range(8):
        confirm(client, token_of(client, f"p{number}"), f"p{number}")
    places = [{"id": f"d{number}", "lat": PLACE[0], "lng": PLACE[1]} for number in range(6)]
    client.post("/api/governance/drivers/positions", json={"positions": places})

    with ThreadPoolExecutor(4) as pool:
        sum(pool.map(lambda _: carrier.corridas.beat(), range(4)))
    carrier.corridas.beat()

    assert query(settings, "SELECT count(driver_id), count(DISTINCT driver_id) FROM rides") == [(6, 6)]
    assert query(settings, "SELECT count(DISTINCT ride_id) FROM drivers") == [(6,)]


def test_operators_see_confirmations_by_state_and_never_a_token(client: Client, settings: Settings) -> None:
    token_of(client, "velha")
    age(settings, 301)
    used, left = token_of(client, "a"), token_of(client, "b")
    confirm(client, used, "a")

    def listed(**params: Any) -> Any:
        answer = client.get("/api/governance/ride/confirmations", params=params)
        assert answer.status_code == 200, answer.text
        assert used not in answer.text
        return answer.json()

    assert [item["state"] for item in listed()["items"]] == ["expired", "used", "unused"]
    (item,) = listed(state="unused")["items"]
    assert (item["passenger_id"], item["token_digest"]) == ("b", hashlib.sha256(left.encode()).hexdigest())
    assert [item["state"] for item in listed(passengerId="a")["items"]] == ["used"]
    page = listed(limit=2)
    assert [item["state"] for item in listed(after=page["next"])["items"]] == ["unused"]
    assert client.get("/api/governance/ride/confirmations?state=x").status_code == 422
