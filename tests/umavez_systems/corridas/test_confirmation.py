"""Seed 001, line by line: its scenarios, its five states of a token, and its six test scenarios by name."""

from __future__ import annotations

import hashlib
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from httpx import Client

from tests.umavez_systems.corridas.conftest import SEED, age, ask, confirm, driver, fenced, query, token_of
from umavez_systems.settings import Settings


def test_geracao_de_token(client: Client, settings: Settings) -> None:
    """S1.02, S1.05, S1.06, S1.12."""
    before = datetime.now().astimezone()
    offered = ask(client)

    body = offered.json()
    token = body.pop("confirmationToken")
    expires = datetime.fromisoformat(body.pop("expiresAt"))
    assert offered.status_code == 202
    assert body == {
        "success": False,
        "requiresConfirmation": True,
        "ttlMinutes": 5,
        "message": "Nenhum motorista disponível na sua comunidade. Confirme para buscar motoristas de outras áreas.",
    }
    assert re.fullmatch("[0-9a-f]{64}", token)
    assert timedelta(seconds=298) < expires - before < timedelta(seconds=330)
    columns = "id, passenger_id, confirmation_token, is_used, used_at, created_ride_id, ride_data, created_at"
    (row,) = query(settings, f"SELECT {columns} FROM ride_confirmations")
    assert re.fullmatch("c[0-9a-z]{24}", row[0])
    assert row[1:3] == ("passenger123", hashlib.sha256(token.encode()).hexdigest())
    assert [bool(row[3]), *row[4:6]] == [False, None, None]
    assert (json.loads(row[6]) if isinstance(row[6], str) else row[6]) == SEED


def test_validacao_idempotente(client: Client, settings: Settings) -> None:
    token = token_of(client)

    first = confirm(client, token)
    again = [confirm(client, token) for _ in range(5)]

    assert first.status_code == 201
    assert (first.json()["success"], first.json()["message"]) == (True, "Corrida fora da cerca criada com sucesso")
    ride = first.json()["ride"]
    assert '"price": 15.50' in first.text
    assert {name: ride[name] for name in SEED} == SEED
    assert (ride["status"], ride["outOfFence"]) == ("requested", True)
    for answer in again:
        assert answer.status_code == 200
        assert answer.json() == {"success": True, "rideId": ride["id"], "message": "Corrida já criada anteriormente"}
    (row,) = query(settings, "SELECT is_used, used_at, created_ride_id FROM ride_confirmations")
    assert (bool(row[0]), row[1] is not None, row[2]) == (True, True, ride["id"])
    assert query(settings, "SELECT id FROM rides") == [(ride["id"],)]


def test_expiracao(client: Client, settings: Settings) -> None:
    token = token_of(client)
    age(settings, 301)

    refused = confirm(client, token)

    assert refused.status_code == 410
    assert refused.json()["success"] is False
    assert (refused.json()["error"], refused.json()["shouldRetry"]) == ("token_expired", False)
    assert "solicite a corrida de novo" in refused.json()["message"]
    assert query(settings, "SELECT count(*) FROM rides") == [(0,)]


def test_ownership(client: Client, settings: Settings) -> None:
    """S1.07."""
    token = token_of(client)

    before = confirm(client, token, "mallory")
    made = confirm(client, token)
    after = confirm(client, token, "mallory")

    for refused in (before, after):
        assert (refused.status_code, refused.json()["error"]) == (403, "token_not_owned")
        assert made.json()["ride"]["id"] not in refused.text
    assert before.text == after.text
    assert made.status_code == 201


def test_limpeza(client: Client, settings: Settings) -> None:
    used, expired = token_of(client), token_of(client)
    token_of(client, "other")
    made = confirm(client, used)
    client.post(f"/api/governance/rides/{made.json()['ride']['id']}/cancel", json={"passengerId": "passenger123"})
    age(settings, 301)

    live = token_of(client)

    digests = {row[0] for row in query(settings, "SELECT confirmation_token FROM ride_confirmations WHERE NOT is_used")}
    assert hashlib.sha256(expired.encode()).hexdigest() not in digests
    assert hashlib.sha256(live.encode()).hexdigest() in digests
    assert len(digests) == 2
    assert confirm(client, used).status_code == 200


def test_race_conditions(client: Client, settings: Settings) -> None:
    token = token_of(client)

    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda _: confirm(client, token), range(32)))

    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200] * 31 + [201]
    rides = {answer.json().get("rideId") or answer.json()["ride"]["id"] for answer in answers}
    assert len(rides) == 1
    assert query(settings, "SELECT count(*) FROM rides") == [(1,)]


def test_used_then_expired_still_returns_the_ride(client: Client, settings: Settings) -> None:
    token = token_of(client)
    made = confirm(client, token)
    age(settings, 3600)

    again = confirm(client, token)

    assert (again.status_code, again.json()["rideId"]) == (200, made.json()["ride"]["id"])


@pytest.mark.parametrize("token", ["0" * 64, "abc123", "", "ção", "A" * 64])
def test_an_unknown_token_is_invalid(client: Client, token: str) -> None:
    """S1.07."""
    refused = confirm(client, token)

    assert (refused.status_code, refused.json()["error"]) == (404, "token_invalid")
    assert refused.json()["success"] is False


def test_a_cancelled_token_is_refused_and_cancelling_twice_is_no_error(client: Client, settings: Settings) -> None:
    token = token_of(client)
    holder = {"passengerId": "passenger123", "confirmationToken": token}

    answers = [client.post("/api/governance/ride/confirmation/cancel", json=holder) for _ in range(2)]
    refused = confirm(client, token)

    assert [answer.status_code for answer in answers] == [200, 200]
    assert (refused.status_code, refused.json()["error"]) == (410, "token_cancelled")
    assert query(settings, "SELECT count(*) FROM ride_confirmations") == [(0,)]


def test_a_used_token_cannot_be_cancelled(client: Client) -> None:
    token = token_of(client)
    confirm(client, token)

    late = client.post(
        "/api/governance/ride/confirmation/cancel", json={"passengerId": "passenger123", "confirmationToken": token}
    )

    assert (late.status_code, late.json()["error"]) == (409, "token_used")


def test_a_driver_inside_the_fence_needs_no_token(client: Client) -> None:
    """S1.01."""
    fenced(client)
    driver(client, "perto", -23.5506, -46.6334)

    made = ask(client)

    assert made.status_code == 201
    assert made.json()["success"] is True
    assert made.json()["ride"]["driverId"] == "perto"
    assert made.json()["ride"]["outOfFence"] is False
    assert made.json()["ride"]["communityId"] == "centro"


def test_the_confirmed_ride_gets_the_nearest_driver_from_outside(client: Client) -> None:
    fenced(client)
    driver(client, "longe", -23.70, -46.60)
    driver(client, "vizinho", -23.555, -46.595)

    made = confirm(client, token_of(client))

    assert made.status_code == 201
    assert made.json()["ride"]["driverId"] == "vizinho"


@pytest.mark.parametrize("geofence", [True, False])
def test_confirmation_works_whatever_the_geofence_flag_says(database: str, serving: Any, geofence: bool) -> None:
    """S1.10."""
    with serving(Settings(database=database, enable_geofence=geofence)) as client:
        token = token_of(client)
        assert confirm(client, token).status_code == 201
        assert confirm(client, token).status_code == 200
        fenced(client)
        for name in ("fora", "longe"):
            # The first of them gets the ride that waits.
            driver(client, name, -23.70, -46.60)
        assert ask(client, passengerId="outra").status_code == (202 if geofence else 201)


def test_the_geofence_flag_and_the_ttl_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENABLE_GEOFENCE", "false")
    monkeypatch.setenv("UMAVEZ_CONFIRMATION_TTL_SECONDS", "90")

    assert (Settings().enable_geofence, Settings().confirmation_ttl_seconds) == (False, 90)


def test_the_ttl_can_be_set(database: str, serving: Any, settings: Settings) -> None:
    with serving(Settings(database=database, confirmation_ttl_seconds=90)) as client:
        offered = ask(client)
        assert offered.json()["ttlMinutes"] == 1.5
        age(settings, 91)
        assert confirm(client, offered.json()["confirmationToken"]).status_code == 410


def test_every_operation_is_audited_without_the_token(client: Client, settings: Settings) -> None:
    token = token_of(client)
    confirm(client, token, "mallory")
    confirm(client, token)
    confirm(client, token)
    confirm(client, "0" * 64)

    trail = client.get("/api/governance/ride/confirmation/audit", params={"passengerId": "passenger123"})
    stored = query(settings, "SELECT operation, passenger_id FROM ride_confirmation_audit ORDER BY id")

    assert [item["operation"] for item in trail.json()["items"]] == [
        "refused_invalid",
        "replayed",
        "confirmed",
        "issued",
    ]
    assert stored[1] == ("refused_not_owned", "mallory")
    assert token not in trail.text
    counted = client.get("/api/governance/ride/confirmation/metrics").text
    assert 'umavez_corridas_tokens_total{outcome="confirmed"} 1\n' in counted
    assert 'umavez_corridas_token_refusals_total{reason="not_owned"} 1\n' in counted


def test_the_token_itself_is_stored_nowhere(client: Client, settings: Settings) -> None:
    """S1.06."""
    token = token_of(client)
    confirm(client, token)

    for table in ("ride_confirmations", "ride_confirmation_audit", "rides", "idempotency_records"):
        assert token not in repr(query(settings, f"SELECT * FROM {table}"))


def test_the_sweep_removes_expired_rows_of_everybody(client: Client, settings: Settings) -> None:
    from umavez_systems.web import Carrier

    for name in ("a", "b"):
        token_of(client, name)
    used = token_of(client, "c")
    confirm(client, used, "c")
    age(settings, 301)
    carrier = Carrier(settings)
    try:
        assert carrier.corridas.sweep() == 2
        assert carrier.corridas.sweep() == 0
    finally:
        carrier.close()

    assert query(settings, "SELECT passenger_id FROM ride_confirmations") == [("c",)]
    assert confirm(client, used, "c").status_code == 200


def test_the_status_of_a_token_changes_nothing(client: Client) -> None:
    token = token_of(client)
    holder = {"passengerId": "passenger123", "confirmationToken": token}

    def state(**changed: str) -> Any:
        return client.post("/api/governance/ride/confirmation/status", json={**holder, **changed})

    assert state().json()["state"] == "unused"
    assert state(passengerId="mallory").status_code == 403
    made = confirm(client, token)
    assert (state().json()["state"], state().json()["rideId"]) == ("used", made.json()["ride"]["id"])


def test_the_same_idempotency_key_gives_the_same_ride(client: Client, settings: Settings) -> None:
    fenced(client)
    driver(client, "um", -23.5506, -46.6334)
    driver(client, "dois", -23.5507, -46.6335)
    route, key = "/api/governance/ride/request", {"Idempotency-Key": "toque-1"}

    first = client.post(route, json=SEED, headers=key)
    again = client.post(route, json=SEED, headers=key)
    other = client.post(route, json={**SEED, "price": 16}, headers=key)

    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 422)
    assert first.json()["ride"] == again.json()["ride"]
    assert query(settings, "SELECT count(*) FROM rides") == [(1,)]


def test_a_key_that_was_offered_a_token_may_still_become_a_ride(client: Client) -> None:
    route, key = "/api/governance/ride/request", {"Idempotency-Key": "toque-1"}

    assert client.post(route, json=SEED, headers=key).status_code == 202
    fenced(client)
    driver(client, "um", -23.5506, -46.6334)
    assert client.post(route, json=SEED, headers=key).status_code == 201


def test_principals_never_meet(database: str, serving: Any) -> None:
    settings = Settings(database=database, api_keys="ana:0123456789abcdef,rui:fedcba9876543210")
    ana, rui = {"Authorization": "Bearer 0123456789abcdef"}, {"Authorization": "Bearer fedcba9876543210"}
    with serving(settings) as client:
        assert ask(client).status_code == 401
        token = client.post("/api/governance/ride/request", json=SEED, headers=ana).json()["confirmationToken"]
        body = {"passengerId": "passenger123", "confirmationToken": token}
        assert client.post("/api/governance/ride/request", json=body, headers=rui).status_code == 403
        made = client.post("/api/governance/ride/request", json=body, headers=ana)
        path = f"/api/governance/rides/{made.json()['ride']['id']}"
        assert client.get(path, headers=ana).status_code == 200
        assert client.get(path, headers=rui).status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 400),
        ("[]", 422),
        ("{}", 422),
        ('{"passengerId": ""}', 422),
        ('{"passengerId": "p", "type": "comunidad", "passengerLat": 1, "passengerLng": 1}', 422),
        ('{"passengerId": "p", "type": "comunidade"}', 422),
        ('{"passengerId": "p", "type": "comunidade", "passengerLat": 91, "passengerLng": 1}', 422),
        ('{"passengerId": "p", "type": "comunidade", "passengerLat": 1e99, "passengerLng": 1}', 422),
        ('{"passengerId": "p", "type": "comunidade", "passengerLat": 1e999, "passengerLng": 1}', 400),
        ('{"passengerId": "p", "type": "comunidade", "passengerLat": 1, "passengerLng": 1, "price": 0.001}', 422),
        ('{"passengerId": "p", "type": "comunidade", "passengerLat": 1, "passengerLng": 1, "x": "\\u0000"}', 422),
        ('{"passengerId": "p\\ud800", "confirmationToken": "a"}', 422),
        ('{"passengerId": "p", "confirmationToken": 7}', 422),
        (
            '{"passengerId": "p", "type": "normal", "passengerLat": 1, "passengerLng": 1, "x": "' + "y" * 20_000 + '"}',
            422,
        ),
    ],
)
def test_bad_bodies_are_told_what_is_wrong(client: Client, body: str, status: int) -> None:
    refused = client.post("/api/governance/ride/request", content=body, headers={"Content-Type": "application/json"})

    assert refused.status_code == status
    assert refused.json()["detail"]


def test_used_confirmations_are_forgotten_by_the_databases_time(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1.06: a host whose clock is a year ahead deletes nothing that may still be asked for."""
    from umavez_systems.web import Carrier

    used = token_of(client, "c")
    confirm(client, used, "c")
    carrier = Carrier(settings)
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() + 366 * 86400)
    try:
        assert carrier.corridas.confirmations._delete_old() == 0
        query(settings, "UPDATE ride_confirmations SET used_at = '2020-01-01 00:00:00.000'")
        assert carrier.corridas.confirmations._delete_old() == 1
    finally:
        carrier.close()
