"""Clientes and propostas under fire: many clients, the same keys at once, workers killed meanwhile.

A real `umavez serve` with two workers, or several. Each client sends every key again and again in its own order; a
request that gets no answer, or is asked to come again, is sent again with the same key, as a real client would, to
any of the servers. Afterwards the tables are counted.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack

import httpx

from chaos import Report, Setting, Trial
from chaos.server import Answers, killing, one_row, serving

CLIENTS, REPEATS = 64, 5
AGAIN = 503
PATIENCE = 120.0
"""Seconds within which every request must have its answer, sent as often as it takes."""
COUNT = "SELECT count(*), count(DISTINCT idempotencia_key) FROM clientes WHERE idempotencia_key LIKE 'client-%'"
FIXED = ("id", "nome", "email", "documento", "idempotencia_key")


def under_fire(setting: Setting) -> Report:
    """`count` keys from 64 clients, 5 times each, while workers are killed; one row per key, one answer per key."""
    return on_hosts(setting, 1, (0.1, 0.8), lambda: None)


def on_hosts(setting: Setting, hosts: int, pause: tuple[float, float], began: Callable[[], None]) -> Report:
    """The same on so many servers, which share nothing but the database; `began` is called when they serve."""
    report = Report(done=setting.count)
    with ExitStack() as stack:
        places = [stack.enter_context(serving(setting)) for _ in range(hosts)]
        began()
        answers = asyncio.run(_storm(setting, places, pause, report))
    answers.judge(report)
    rows = one_row(setting, COUNT)
    if rows != (setting.count, setting.count):
        report.blame(f"{rows[0]} rows with {rows[1]} keys for {setting.count} keys")
    return report


async def _storm(
    setting: Setting, places: list[tuple[str, int]], pause: tuple[float, float], report: Report
) -> Answers:
    answers = Answers()
    keys = [f"client-{setting.seed}-{number}" for number in range(setting.count)]
    work = [(key, repeat) for key in keys for repeat in range(REPEATS)]
    random.Random(setting.seed).shuffle(work)
    addresses = [address for address, _ in places]
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            httpx.AsyncClient(limits=httpx.Limits(max_connections=CLIENTS), timeout=60)
        )
        queue = iter(work)
        for _, supervisor in places:
            await stack.enter_async_context(killing(supervisor, setting.seed, pause, report))
        await asyncio.gather(*(_client(client, addresses, queue, answers, setting) for _ in range(CLIENTS)))
    return answers


async def _client(
    client: httpx.AsyncClient, addresses: list[str], queue: Iterator[tuple[str, int]], answers: Answers, at: Setting
) -> None:
    for key, _ in queue:
        body: dict[str, object] = {"nome": f"Nome {key}", "email": f"{key}@example.com", "documento": None}
        answer = await _answered(client, addresses, key, body, answers)
        if answer.status_code not in (200, 201):
            answers.wrong.append(f"{key}: {answer.status_code} {answer.text[:200]}")
            continue
        answers.created[key] += answer.status_code == 201
        answers.replayed += "idempotent-replayed" in answer.headers
        shown = answer.json()
        answers.told[key].add(json.dumps([shown[name] for name in FIXED]))
        at.advance(len(answers.told))


async def _answered(
    client: httpx.AsyncClient, addresses: list[str], key: str, body: dict[str, object], answers: Answers
) -> httpx.Response:
    deadline = time.monotonic() + PATIENCE
    heard: Counter[str] = Counter()
    while time.monotonic() < deadline:
        try:
            address = random.choice(addresses)
            answer = await client.post(f"{address}/api/v1/clientes", json=body, headers={"Idempotency-Key": key})
            if answer.status_code != AGAIN:
                return answer
            answers.put_off += 1
            heard[answer.text[:200]] += 1
        except httpx.TransportError as error:
            # A worker died with the request in hand: nobody knows, so the same key is sent again.
            answers.unanswered += 1
            heard[type(error).__name__] += 1
        await asyncio.sleep(0.05)
    raise TimeoutError(f"{key} was never answered; instead: {heard.most_common(5)}")


TRIALS = (
    Trial(
        "propostas under fire",
        under_fire,
        backends=("sqlite", "postgres"),
        short=80,
        long=500,
        sometimes=("replays", "workers killed"),
    ),
)
