"""Confirmations under fire: each token confirmed 32 times at the same instant, workers killed meanwhile.

A real `umavez serve` with two workers. There are half as many drivers as tokens, so every ride fights for one. A
request that gets no answer is sent again, as a passenger would tap again. Afterwards the tables are counted: one
ride for each token, no driver twice, and every answer about a token names the same ride.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import httpx

from chaos import Report, Setting, Trial
from chaos.server import Answers, killing, one_row, serving

RIVALS = 32
AT_ONCE = 4
"""Tokens that are fought over at the same time."""
ROUTE = "/api/governance/ride/request"
WISH = {
    "type": "comunidade",
    "passengerLat": -23.5505,
    "passengerLng": -46.6333,
    "origin": "Origem",
    "destination": "Destino",
    "price": 15.50,
}


PAUSE = (2.0, 6.0)
"""Seconds between kills: time for the next worker to come up, as most of the storm must meet two that work."""


def storm(setting: Setting) -> Report:
    """`count` tokens, each confirmed by 32 at once, while workers are killed."""
    report = Report(done=setting.count)
    with serving(setting) as (address, supervisor):
        answers = asyncio.run(_storm(setting, address, supervisor, report))
    answers.judge(report)
    for what, (found, expected) in counted(setting).items():
        if found != expected:
            report.blame(f"{what}: {found} instead of {expected}")
    return report


async def _storm(setting: Setting, address: str, supervisor: int, report: Report) -> Answers:
    answers = Answers()
    limits = httpx.Limits(max_connections=RIVALS * AT_ONCE)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=60) as client:
        await _drivers(client, setting.count // 2, setting.seed)
        passengers = iter([f"p{setting.seed}-{number}" for number in range(setting.count)])
        async with killing(supervisor, setting.seed, PAUSE, report):
            await asyncio.gather(*(_passengers(client, passengers, answers, setting) for _ in range(AT_ONCE)))
    return answers


async def _drivers(client: httpx.AsyncClient, count: int, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(count):
        place = {"lat": -23.7 + chance.random() / 10, "lng": -46.6 + chance.random() / 10}
        answer = await client.put(f"/api/governance/drivers/d{number}", json={"name": f"D{number}", **place})
        answer.raise_for_status()


async def _passengers(client: httpx.AsyncClient, passengers: Any, answers: Answers, setting: Setting) -> None:
    for passenger in passengers:
        offered = await _answered(client, {"passengerId": passenger, **WISH}, answers)
        if offered.status_code != 202:
            # No community covers the passenger, so a driver is never given without a confirmation.
            answers.wrong.append(f"{passenger}: {offered.status_code} {offered.text[:200]}")
            continue
        body = {"passengerId": passenger, "confirmationToken": offered.json()["confirmationToken"]}
        await asyncio.gather(*(_confirmed(client, passenger, body, answers) for _ in range(RIVALS)))
        setting.advance(len(answers.told))


async def _confirmed(client: httpx.AsyncClient, passenger: str, body: dict[str, Any], answers: Answers) -> None:
    answer = await _answered(client, body, answers)
    if answer.status_code not in (200, 201):
        answers.wrong.append(f"{passenger}: {answer.status_code} {answer.text[:200]}")
        return
    shown = answer.json()
    answers.created[passenger] += answer.status_code == 201
    answers.replayed += answer.status_code == 200
    answers.told[passenger].add(shown["rideId"] if "rideId" in shown else shown["ride"]["id"])


async def _answered(client: httpx.AsyncClient, body: dict[str, Any], answers: Answers) -> httpx.Response:
    for _ in range(400):
        # A worker that died leaves its request without an answer; one that is told to wait tries again, too.
        with suppress(httpx.TransportError):
            answer = await client.post(ROUTE, json=body)
            if answer.status_code != 503 and not answer.json().get("shouldRetry"):
                return answer
        answers.unanswered += 1
        await asyncio.sleep(0.05)
    raise TimeoutError("a request was never answered")


def counted(setting: Setting) -> dict[str, tuple[int, int]]:
    """What stands in the tables, each beside what should."""
    tokens, drivers = setting.count, setting.count // 2
    return {
        "rides": (_one(setting, "SELECT count(*) FROM rides"), tokens),
        "passengers": (_one(setting, "SELECT count(DISTINCT passenger_id) FROM rides"), tokens),
        "drivers given": (_one(setting, "SELECT count(driver_id) FROM rides"), drivers),
        "drivers given once": (_one(setting, "SELECT count(DISTINCT driver_id) FROM rides"), drivers),
        "drivers engaged": (_one(setting, "SELECT count(DISTINCT ride_id) FROM drivers"), drivers),
        "tokens used": (_one(setting, "SELECT count(*) FROM ride_confirmations WHERE is_used"), tokens),
        "rides of tokens": (
            _one(setting, "SELECT count(*) FROM rides r JOIN ride_confirmations c ON c.created_ride_id = r.id"),
            tokens,
        ),
        "confirmed in the audit": (
            _one(setting, "SELECT count(*) FROM ride_confirmation_audit WHERE operation = 'confirmed'"),
            tokens,
        ),
    }


def _one(setting: Setting, sql: str) -> int:
    return int(one_row(setting, sql)[0])


TRIALS = [
    Trial(
        "corridas: confirmations at once",
        storm,
        ("sqlite", "postgres"),
        short=30,
        long=1000,
        sometimes=("replays", "unanswered", "workers killed"),
    )
]
