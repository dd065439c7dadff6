"""Concurrent duplicates against real web servers: every round sends identical requests at once and counts effects.

    python -m chaos.http_duplicates --store sqlite:////tmp/x.db --server uvicorn --rounds 200 --width 50 [--seed 1]
    python -m chaos.http_duplicates --store redis://127.0.0.1:6379/9 --server django --rounds 200 --width 50

Each round has a key of its own; its requests come from several connections to several worker processes. Prints the
seed, how many requests were sent, how many ran, were replayed and were told to wait, and the effects per key.
Ends with status 1 if any key has not exactly one effect, or any answer differs from the others of its round.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx

from tests.http.serving import SERVERS, serving
from umavez import Once


async def round_of(
    client: httpx.AsyncClient, key: str, width: int, rng: random.Random, told: Counter[str]
) -> set[bytes]:
    """Send one request `width` times at once; the answers that were final."""

    async def one(delay: float) -> bytes:
        await asyncio.sleep(delay)
        while True:
            headers = {"idempotency-key": key, "x-user": "ana"}
            try:
                answer = await client.post("/orders", json={"item": key}, headers=headers)
            except httpx.TransportError:
                told["transport errors"] += 1
                continue
            told[_kind(answer)] += 1
            if answer.status_code != 409:
                return b"%d " % answer.status_code + answer.content
            await asyncio.sleep(rng.uniform(0.005, 0.03))

    return set(await asyncio.gather(*[one(rng.uniform(0, 0.003)) for _ in range(width)]))


def _kind(answer: httpx.Response) -> str:
    if answer.status_code == 409:
        return "told to wait"
    if answer.status_code != 201:
        return f"status {answer.status_code}"
    return "replayed" if "idempotent-replayed" in answer.headers else "ran"


async def storm(url: str, options: argparse.Namespace, told: Counter[str]) -> int:
    """All rounds; returns how many of them had answers that differ."""
    rng = random.Random(options.seed)
    limits = httpx.Limits(max_connections=options.width, max_keepalive_connections=options.width)
    differing = 0
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as client:
        for number in range(options.rounds):
            answers = await round_of(client, f"{options.seed}-{number}", options.width, rng, told)
            differing += len(answers) != 1
    return differing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default=None, help="a store's URL; by default a SQLite file of this run")
    parser.add_argument("--server", choices=sorted(SERVERS), default="uvicorn")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--width", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = options.store or f"sqlite:///{folder}/once.db"
        with Once(store, scope="shop") as once:
            once.migrate()
        told: Counter[str] = Counter()
        began = time.monotonic()
        with serving(options.server, Path(folder), STORE=store) as server:
            differing = asyncio.run(storm(server.url, options, told))
            effects = Counter(server.lines)
        seconds = time.monotonic() - began
    wrong = [key for key, count in effects.items() if count != 1]
    print(f"seed {options.seed}: {options.server} on {store.partition(':')[0]}, {seconds:.0f} s")
    print(f"{options.rounds} rounds x {options.width} identical requests: {dict(told)}")
    print(f"keys with an effect {len(effects)}, with several {len(wrong)}; rounds that differ {differing}")
    if wrong or differing or len(effects) != options.rounds:
        sys.exit(1)


if __name__ == "__main__":
    main()
