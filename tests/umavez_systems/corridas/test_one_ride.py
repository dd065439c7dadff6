"""One ride under way for each passenger, one live token for each key, and what becomes of every token."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from httpx import Client, Response
from typer.testing import CliRunner

from tests.umavez_systems.corridas.conftest import ROUTE, SEED, age, ask, confirm, driver, fenced, query, token_of
from umavez_systems.corridas.command import group
from umavez_systems.settings import Settings

STATUS = "/api/governance/ride/confirmation/status"


def tap(client: Client, key: str = "toque-1", **changed: Any) -> Response:
    return client.post(ROUTE, json={**SEED, **changed}, headers={"Idempotency-Key": key})


def step(client: Client, ride: str, name: str, **who: str) -> Response:
    return client.post(f"/api/governance/rides/{ride}/{name}", json=who)


def state(client: Client, token: str, passenger: str = "passenger123") -> Response:
    return client.post(STATUS, json={"passengerId": passenger, "confirmationToken": token})


def trail(settings: Settings) -> list[str]:
    return [row[0] for row in query(settings, "SELECT operation FROM ride_confirmation_audit ORDER BY id")]


def together(many: int, work: Any) -> list[Response]:
    start = threading.Barrier(many)

    def go(number: int) -> Any:
        start.wait(30)
        return work(number)

    with ThreadPoolExecutor(many) as pool:
        return list(pool.map(go, range(many)))


def test_s1_04_a_lost_202_is_repeated_under_its_key_and_only_the_last_token_confirms(
    client: Client, settings: Settings
) -> None:
    tokens = [tap(client).json()["confirmationToken"] for _ in range(3)]

    early = [confirm(client, token) for token in tokens[:2]]
    made = confirm(client, tokens[2])

    assert [(answer.status_code, answer.json()["error"]) for answer in early] == [(410, "token_superseded")] * 2
    assert made.status_code == 201
    assert state(client, tokens[0]).json()["state"] == "cancelled"
    assert query(settings, "SELECT count(*) FROM rides") == [(1,)]
    assert trail(settings).count("superseded") == 2


def test_s1_11_a_superseded_token_that_is_cancelled_has_ended_once(client: Client, settings: Settings) -> None:
    first, _ = (tap(client).json()["confirmationToken"] for _ in range(2))

    holder = {"passengerId": "passenger123", "confirmationToken": first}
    assert client.post("/api/governance/ride/confirmation/cancel", json=holder).status_code == 200

    assert trail(settings) == ["issued", "superseded", "issued"]


def test_s1_04_a_key_whose_token_was_confirmed_gives_that_ride(client: Client, settings: Settings) -> None:
    ride = confirm(client, tap(client).json()["confirmationToken"]).json()["ride"]["id"]

    again = [tap(client) for _ in range(2)]
    step(client, ride, "cancel", passengerId="passenger123")
    later = tap(client)

    assert [(answer.status_code, answer.json()["ride"]["id"]) for answer in again] == [(200, ride)] * 2
    assert (later.status_code, later.json()["ride"]["status"]) == (200, "cancelled")
    assert later.headers["idempotent-replayed"] == "true"
    assert query(settings, "SELECT count(*) FROM rides") == [(1,)]


def test_the_key_of_a_token_is_bound_to_its_wish(client: Client) -> None:
    first = tap(client)

    other = tap(client, price=16)

    assert (other.status_code, other.json()["error"]) == (422, "key_reused")
    assert confirm(client, first.json()["confirmationToken"]).status_code == 201
    assert tap(client, price=16).status_code == 422


def test_a_key_that_becomes_a_ride_leaves_no_token_behind(client: Client) -> None:
    token = tap(client).json()["confirmationToken"]
    fenced(client)
    driver(client, "d1", -23.5506, -46.6334)
    made = tap(client)
    step(client, made.json()["ride"]["id"], "cancel", passengerId="passenger123")

    late = confirm(client, token)

    assert (made.status_code, late.status_code, late.json()["error"]) == (201, 410, "token_superseded")


def test_many_repeats_of_a_key_at_once_leave_one_token_that_confirms(client: Client, settings: Settings) -> None:
    answers = together(12, lambda _: tap(client))

    assert {answer.status_code for answer in answers} <= {202, 409}
    tokens = [answer.json()["confirmationToken"] for answer in answers if answer.status_code == 202]
    confirmed = [confirm(client, token).status_code for token in tokens]
    assert sorted(confirmed) == [201] + [410] * (len(tokens) - 1)
    assert query(settings, "SELECT count(*) FROM rides") == [(1,)]


def test_a_repeat_and_a_confirmation_at_once_make_one_ride(client: Client, settings: Settings) -> None:
    for number in range(10):
        who, key = f"p{number}", f"toque-{number}"
        token = tap(client, key, passengerId=who).json()["confirmationToken"]

        def go(n: int, token: str = token, who: str = who, key: str = key) -> Response:
            return confirm(client, token, who) if n % 2 else tap(client, key, passengerId=who)

        answers = together(4, go)
        for answer in answers:
            if answer.status_code == 202:
                confirm(client, answer.json()["confirmationToken"], who)
        assert tap(client, key, passengerId=who).status_code == 200

    assert query(settings, "SELECT count(*), count(DISTINCT passenger_id) FROM rides") == [(10, 10)]


def test_a_second_request_is_told_the_ride_that_is_under_way(client: Client) -> None:
    fenced(client)
    for name in ("d1", "d2"):
        driver(client, name, -23.5506, -46.6334)
    first = ask(client).json()["ride"]

    second = ask(client)

    assert (second.status_code, second.json()["error"]) == (409, "corrida_ativa")
    assert (second.json()["rideId"], second.json()["rideStatus"]) == (first["id"], "requested")
    assert first["id"] in second.json()["message"]
    for name in ("accept", "start", "finish"):
        assert ask(client).status_code == 409
        assert step(client, first["id"], name, driverId=first["driverId"]).status_code == 200
    assert ask(client).status_code == 201


def test_a_left_over_token_is_refused_while_a_ride_is_under_way_and_stays_good(client: Client) -> None:
    used, left = token_of(client), token_of(client)
    ride = confirm(client, used).json()["ride"]["id"]

    refused = confirm(client, left)

    assert (refused.status_code, refused.json()["rideId"]) == (409, ride)
    assert ask(client).status_code == 409
    assert confirm(client, used).status_code == 200
    step(client, ride, "cancel", passengerId="passenger123")
    assert confirm(client, left).status_code == 201


def test_many_tokens_of_one_passenger_at_once_make_one_ride(client: Client, settings: Settings) -> None:
    fenced(client)
    for number in range(8):
        driver(client, f"d{number}", -23.57, -46.62 + number / 10_000)
    tokens = [token_of(client) for _ in range(8)]

    answers = together(8, lambda n: confirm(client, tokens[n]))

    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 7
    ride = query(settings, "SELECT id FROM rides")
    assert {(answer.json()["rideId"],) for answer in answers if answer.status_code == 409} == set(ride)
    assert query(settings, "SELECT count(*) FROM drivers WHERE ride_id IS NOT NULL") == [(1,)]


def test_many_requests_of_one_passenger_at_once_make_one_ride(client: Client, settings: Settings) -> None:
    fenced(client)
    for number in range(8):
        driver(client, f"d{number}", -23.5506, -46.6334 + number / 10_000)

    answers = together(8, lambda n: tap(client, f"toque-{n}") if n % 2 else ask(client))

    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 7
    assert query(settings, "SELECT count(*) FROM drivers WHERE ride_id IS NOT NULL") == [(1,)]


def test_the_database_itself_refuses_a_second_ride(client: Client, settings: Settings) -> None:
    confirm(client, token_of(client))
    columns = "principal, passenger_id, type, status, out_of_fence, passenger_lat, passenger_lng"

    with pytest.raises(Exception, match=r"(?i)unique"):
        query(settings, f"INSERT INTO rides (id, {columns}) SELECT 'cother', {columns} FROM rides")


@pytest.mark.parametrize(
    "more",
    [
        {"passengerLat": 999, "passengerLng": "oeste"},
        {"price": "dez", "type": "?"},
        {"origin": "x" * 600, "destination": 7},
    ],
)
def test_s1_03_a_confirmation_comes_before_validation(client: Client, more: dict[str, Any]) -> None:
    body = {**SEED, **more, "confirmationToken": token_of(client)}

    made = client.post(ROUTE, json=body, headers={"Idempotency-Key": "ç".encode()})  # type: ignore[dict-item]

    assert made.status_code == 201
    assert {name: made.json()["ride"][name] for name in SEED} == SEED


def test_s1_03_the_ride_is_made_from_the_stored_ride_data(client: Client, settings: Settings) -> None:
    token = token_of(client)
    kept = json.dumps({**SEED, "destination": "Outro", "price": 17.25})
    query(settings, f"UPDATE ride_confirmations SET ride_data = '{kept}'")

    made = confirm(client, token)

    assert (made.json()["ride"]["destination"], made.json()["ride"]["price"]) == ("Outro", 17.25)


def test_ride_data_that_cannot_be_read_is_a_clear_refusal(client: Client, settings: Settings) -> None:
    token = token_of(client)
    query(settings, "UPDATE ride_confirmations SET ride_data = '[]'")

    refused = confirm(client, token)

    assert refused.status_code == 422
    assert "solicite a corrida de novo" in refused.json()["message"]


def test_s1_08_s1_11_the_command_removes_expired_confirmations_and_notes_each(
    client: Client, settings: Settings
) -> None:
    for name in ("a", "b"):
        token_of(client, name)
    age(settings, 301)
    token_of(client, "c")

    runs = [CliRunner().invoke(group, ["sweep", "--database", settings.database]) for _ in range(2)]

    assert [run.output for run in runs] == ["2 confirmations removed.\n", "0 confirmations removed.\n"]
    assert query(settings, "SELECT passenger_id FROM ride_confirmations") == [("c",)]
    expired = "SELECT passenger_id FROM ride_confirmation_audit WHERE operation = 'expired' ORDER BY passenger_id"
    assert query(settings, expired) == [("a",), ("b",)]
    counted = client.get("/api/governance/ride/confirmation/metrics").text
    assert 'umavez_corridas_tokens_total{outcome="expired"} 2\n' in counted


def test_s1_11_a_new_token_notes_the_expired_ones_it_removes(client: Client, settings: Settings) -> None:
    token_of(client)
    age(settings, 301)
    token_of(client)

    assert trail(settings) == ["issued", "expired", "issued"]


def test_s1_11_refusals_are_events_of_their_own(client: Client, settings: Settings) -> None:
    token = token_of(client)
    age(settings, 301)
    for _ in range(3):
        assert confirm(client, token).status_code == 410
    CliRunner().invoke(group, ["sweep", "--database", settings.database])

    counted = client.get("/api/governance/ride/confirmation/metrics").text
    assert 'umavez_corridas_tokens_total{outcome="expired"} 1\n' in counted
    assert 'umavez_corridas_token_refusals_total{reason="expired"} 3\n' in counted


def test_s1_11_a_thief_at_status_is_audited(client: Client, settings: Settings) -> None:
    token = token_of(client)

    assert state(client, token, "mallory").status_code == 403

    rows = query(settings, "SELECT operation, passenger_id FROM ride_confirmation_audit ORDER BY id")
    assert rows == [("issued", "passenger123"), ("refused_not_owned", "mallory")]


def test_one_key_in_every_form_of_its_header_is_one_ride(client: Client, settings: Settings) -> None:
    tokens = [tap(client, key).json()["confirmationToken"] for key in ("k", '"k"', '"k";v=1')]

    assert [confirm(client, token).status_code for token in tokens] == [410, 410, 201]
    assert query(settings, "SELECT count(*) FROM rides") == [(1,)]
    assert tap(client, "k, k").status_code == 400
    twice = [("Idempotency-Key", "k"), ("Idempotency-Key", "k")]
    assert client.post(ROUTE, json=SEED, headers=twice).status_code == 400
