"""CPU that the ASGI shell adds to a request, in process: bare route, first call and replay on memory:.

    python bench/http_overhead.py [--requests 20000] [--rounds 7]

Prints the median over rounds and the lowest round, in microseconds of process CPU time per request.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from umavez import AsyncOnce
from umavez.http import from_header
from umavez.http.asgi import Idempotency

BODY = b'{"order":"o-17","amount":1999,"currency":"BRL"}'
ANSWER = b'{"id":"c-1","order":"o-17","amount":1999,"status":"paid"}'
START = {"type": "http.response.start", "status": 201, "headers": [(b"content-type", b"application/json")]}


async def bare(_: Any, receive: Any, send: Any) -> None:
    """The smallest route: reads its body, answers JSON."""
    await receive()
    await send(START)
    await send({"type": "http.response.body", "body": ANSWER})


async def receive() -> dict[str, Any]:
    """The whole body at once."""
    return {"type": "http.request", "body": BODY, "more_body": False}


async def send(_: Any) -> None:
    """Forget the message."""


def scope_of(key: bytes) -> dict[str, Any]:
    headers = [
        (b"host", b"localhost"),
        (b"accept", b"*/*"),
        (b"content-type", b"application/json"),
        (b"content-length", b"47"),
        (b"idempotency-key", key),
        (b"x-user", b"ana"),
        (b"user-agent", b"bench"),
    ]
    return {"type": "http", "method": "POST", "path": "/charges", "query_string": b"", "headers": headers, "state": {}}


async def timed(app: Callable[..., Awaitable[None]], keys: list[bytes]) -> float:
    began = time.process_time()
    for key in keys:
        # Made here, as a server does: thousands made beforehand are no longer in the processor's caches when met.
        await app(scope_of(key), receive, send)
    return (time.process_time() - began) / len(keys) * 1e6


async def measure(requests: int, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"bare": [], "first": [], "replay": []}
    for _ in range(rounds):
        once = AsyncOnce("memory:", scope="bench")
        app = Idempotency(bare, once=once, principal=from_header("x-user"), unknown="rerun")
        keys = [b"8e03978e-40d5-43dd-bc93-%012d" % number for number in range(requests)]
        found["bare"].append(await timed(bare, keys))
        found["first"].append(await timed(app, keys))
        found["replay"].append(await timed(app, keys))
        await once.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--uvloop", action="store_true")
    options = parser.parse_args()
    if options.uvloop:
        import uvloop  # noqa: PLC0415 - only where asked for

        found = uvloop.run(measure(options.requests, options.rounds))
    else:
        found = asyncio.run(measure(options.requests, options.rounds))
    bare_us = min(found["bare"])
    print(f"{options.requests} requests x {options.rounds} rounds, CPU microseconds per request")
    for name, values in found.items():
        added = min(values) - bare_us
        print(f"{name:7} median {statistics.median(values):6.1f}  lowest {min(values):6.1f}  added {added:6.1f}")


if __name__ == "__main__":
    main()
