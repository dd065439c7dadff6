"""Growth on PostgreSQL: claims in a small and in a large table, and claims while a large table is swept."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import psycopg

from bench.engine.cell import ROOT, measure
from bench.engine.limits import BODY
from bench.engine.load import RESULT
from chaos import given
from umavez import AsyncOnce, Once
from umavez.sweep import Sweeper

SMALL = 10_000
_LOAD = (
    "INSERT INTO idempotency_records (digest, scope, operation_name, idempotency_key, stamp, fence, status, attempt,"
    " created_at, updated_at, expires_at, outcome_kept, result_data)"
    " SELECT sha256(('load' || number)::bytea), 'load', 'charge', 'load' || number, 'load/' || number, number,"
    " 'SUCCESS', 1, now() - interval '2 days', now() - interval '2 days',"
    " now() + CASE WHEN number <= %(expired)s THEN interval '-1 day' ELSE interval '1 day' END, true, %(body)s"
    " FROM generate_series(1, %(rows)s::bigint) AS number"
)
_INDEXES = (
    "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'idempotency_records'"
    " AND indexname NOT IN (SELECT conname FROM pg_constraint)"
)


def loaded(url: str, rows: int, expired: int = 0) -> None:
    """Fill the table; indexes are built after the rows, and everything is on disk at the end."""
    with Once(url, scope="bench") as once:
        once.migrate()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("TRUNCATE idempotency_records")
        indexes = connection.execute(_INDEXES).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}")
        connection.execute(_LOAD, {"expired": expired, "body": BODY, "rows": rows})
        connection.execute("SET maintenance_work_mem = '512MB'")
        for _, definition in indexes:
            connection.execute(definition)
        connection.execute("VACUUM (ANALYZE) idempotency_records")
        connection.execute("CHECKPOINT")


def claims(small: str, large: str, rounds: int, seconds: float, callers: int) -> tuple[list[float], list[float]]:
    """First calls per second in both tables, measured in turn; the small one is refilled each time."""
    found: dict[str, list[float]] = {small: [], large: []}
    shell = "umavez:threads" if callers == 1 else "umavez:tasks"
    for number in range(rounds):
        loaded(small, SMALL)
        for url in (small, large) if number % 2 else (large, small):
            found[url].append(measure(shell, url, callers, seconds).measured["first"].rate)
    return found[small], found[large]


def swept(url: str, seconds: float, callers: int = 4) -> dict[str, Any]:
    """Sweep from another process while tasks claim; claims per second before, during and after."""
    return asyncio.run(_swept(url, seconds, callers))


async def _swept(url: str, seconds: float, callers: int) -> dict[str, Any]:
    ends: list[float] = []
    stop = asyncio.Event()
    async with AsyncOnce(url, scope="bench") as once:
        tasks = [
            asyncio.create_task(_claiming(once, f"{time.time_ns()}-{number}", ends, stop)) for number in range(callers)
        ]
        await asyncio.sleep(0.5)
        began = time.perf_counter()
        await asyncio.sleep(seconds)
        sweep = await _sweeping(url)
        await asyncio.sleep(0.3)
        again = time.perf_counter()
        await asyncio.sleep(seconds)
        stop.set()
        await asyncio.gather(*tasks)
    rest = _rate(ends, began, began + seconds), _rate(ends, again, again + seconds)
    return {
        "before": rest[0],
        "during": _rate(ends, sweep["began"], sweep["ended"]),
        "after": rest[1],
        "swept": sweep["swept"],
        "sweep_seconds": round(sweep["ended"] - sweep["began"], 2),
    }


async def _claiming(once: AsyncOnce, salt: str, ends: list[float], stop: asyncio.Event) -> None:
    async def body() -> object:
        return RESULT

    number = 0
    while not stop.is_set():
        number += 1
        await once.run("charge", key=f"{salt}-{number}", call=body, unknown="rerun")
        ends.append(time.perf_counter())


async def _sweeping(url: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.engine.growth", url, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    text, _ = await process.communicate()
    return dict(json.loads(text))


def _rate(ends: list[float], began: float, ended: float) -> float:
    return sum(began <= end < ended for end in ends) / (ended - began)


def main(url: str) -> None:
    """Sweep what has expired, at the pace of the Sweeper; the clock is the one that the claiming process reads."""
    with Once(url, scope="bench") as once:
        once.sweep(limit=1)
        began = time.perf_counter()
        count = Sweeper(once).run().deleted
        print(json.dumps({"began": began, "ended": time.perf_counter(), "swept": count}))


if __name__ == "__main__":
    main(*given(__doc__, "url"))
