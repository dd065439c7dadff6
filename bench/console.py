"""The console before five million records: how long each page takes, and what it costs those who claim.

python -m bench.console [--rows 5000000] [--rounds 20] [--seconds 5] [--every 5] [--quick] [--server URL]
                        [--database NAME [--only fill|pages|claims]]

The rows are made by the server itself, in a database of their own that is dropped at the end. Filling takes minutes, so
a database that is given a name is filled once and stays; drop it with `dropdb`. *Pages*: every page is asked three
times, then `PAGES` times over, through a real socket; its median must stay below 100 ms. *Claims*: claim and settle of
new keys, with the console closed and open in alternating rounds; open means four tabs whose script asks every ten s,
and an operator who opens a page `--every` so many seconds. The ratio is the median of the rounds' ratios. Exits with 1
where a page is too slow or the ratio is below 0.97. Where others use the machine, read the best beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx
import psycopg

from umavez import Key, Once
from umavez.core.key import prefix_of
from umavez.migration import migrate

SERVER = "postgresql://postgres@127.0.0.1:5432/postgres"
SCOPE = "loja"
LIMIT_MS = 100.0
LEAST_RATIO = 0.97
PAGES = 20
RESULT = Path(__file__).parent / "results" / "console.json"
OPERATIONS = ("charge", "invoice", "ship", "POST /pagamentos")


def main() -> int:
    """Make the rows, measure, print, keep."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--server", default=os.environ.get("UMAVEZ_TEST_POSTGRES", SERVER))
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--database")
    parser.add_argument("--only", choices=("fill", "pages", "claims"))
    given = parser.parse_args()
    rows, rounds, seconds = (50_000, 2, 1.0) if given.quick else (given.rows, given.rounds, given.seconds)
    pages: dict[str, list[float]] = {}
    ratios: list[tuple[float, float]] = []
    with database(given.server, given.database) as url:
        size = filled(url, rows)
        if given.only in (None, "pages"):
            with serving(url) as address:
                pages = timed(address)
        if given.only in (None, "claims"):
            ratios = claims(url, rounds, seconds, given.every)
    return told(rows, size, pages, ratios, keep=not given.quick and given.only is None)


@contextmanager
def database(server: str, kept: str | None = None) -> Iterator[str]:
    """A database of the measurement's own, dropped at the end, whatever happens; or the one that is `kept`."""
    name = kept or f"umavez_console_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone():
            connection.execute(f"CREATE DATABASE {name}")
    try:
        yield f"{server.rpartition('/')[0]}/{name}"
    finally:
        if kept is None:
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


ROWS = """
INSERT INTO idempotency_records (digest, scope, operation_name, idempotency_key, stamp, fence, status, attempt,
    created_at, updated_at, lease_until, expires_at, process_instance_id, outcome_kept, result_data, error_message)
SELECT sha256(%(prefix)s::bytea || convert_to('order-' || n, 'UTF8')), %(scope)s, %(operation)s, 'order-' || n,
    'bench-' || (n %% 40) || '/' || n, nextval('umavez_fence'), s.status, 1 + (n %% 50 = 0)::int, born, born,
    CASE WHEN s.status = 'PENDING' THEN born + interval '30 s' END,
    CASE WHEN s.status IN ('SUCCESS', 'FAILED') THEN now() + interval '30 days' END,
    'p-' || (n / 20), s.status = 'SUCCESS', CASE WHEN s.status = 'SUCCESS' THEN '{"id":' || n || ',"valor":1500}' END,
    CASE WHEN s.status IN ('FAILED', 'UNKNOWN') THEN 'Timeout: the bank said nothing for 30 s' END
FROM generate_series(%(first)s::bigint, %(rows)s::bigint, %(step)s::bigint) n
CROSS JOIN LATERAL (SELECT CASE WHEN n / 4 %% 2000 = 7 THEN 'UNKNOWN' WHEN n / 4 %% 100 = 3 THEN 'FAILED'
    WHEN n / 4 %% 50000 = 9 THEN 'PENDING' ELSE 'SUCCESS' END AS status) s
CROSS JOIN LATERAL (SELECT now() - ((%(rows)s::bigint - n) * interval '500 ms') AS born) b
"""
"""A month's records, two a second: a twentieth of a percent unknown, one percent failed, some holders gone."""


MINUTES = """
INSERT INTO umavez_minutes
SELECT span, (extract(epoch FROM now())::bigint * 1000 / span - back) * span, operation, kind,
    'bench-' || process, 10, 0.5, 0, 8, 0, 2, 0, 0, 0, 0, 0, 0
FROM (VALUES (60000::bigint, 2880), (3600000::bigint, 720)) spans (span, many)
CROSS JOIN LATERAL generate_series(0, many - 1) back
CROSS JOIN unnest(%(operations)s::text[]) operation
CROSS JOIN unnest('{succeeded,replayed,failed,unknown,taken_over}'::text[]) kind
CROSS JOIN generate_series(1, 2) process
"""
"""Two days of minutes and a month of hours, of twenty operations that two processes count."""


def filled(url: str, rows: int) -> str:
    """Make the tables and the rows, where there are none yet; the size of the table."""
    migrate(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        empty = connection.execute("SELECT 1 FROM idempotency_records LIMIT 1").fetchone() is None
        for first, operation in enumerate(OPERATIONS if empty else (), 1):
            values = {"prefix": prefix_of(SCOPE, operation), "scope": SCOPE, "operation": operation}
            connection.execute(ROWS, values | {"first": first, "step": len(OPERATIONS), "rows": rows})
        if empty:
            connection.execute("VACUUM ANALYZE idempotency_records")
        if connection.execute("SELECT 1 FROM umavez_minutes LIMIT 1").fetchone() is None:
            names = [*OPERATIONS, *(f"operation-{number}" for number in range(20 - len(OPERATIONS)))]
            connection.execute(MINUTES, {"operations": names})
            connection.execute("VACUUM ANALYZE umavez_minutes")
        row = connection.execute("SELECT pg_size_pretty(pg_total_relation_size('idempotency_records'))").fetchone()
    return "" if row is None else str(row[0])


@contextmanager
def serving(url: str) -> Iterator[str]:
    """`umavez console` in a process of its own."""
    words = [sys.executable, "-m", "umavez.cli", "console", "--store", url, "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            yield line.partition(" is at ")[2].partition("/ (")[0]
        finally:
            server.terminate()
            server.wait(30)


def timed(address: str) -> dict[str, list[float]]:
    """Milliseconds of each page, once it is warm."""
    some = Key(SCOPE, "charge", "order-29").digest.hex()
    paths = {
        "overview": "/",
        "one operation": "/operation?name=charge",
        "unknown": "/unknown",
        "records": "/records",
        "status:unknown": "/records?q=status%3Aunknown",
        "status:failed": "/records?q=status%3Afailed",
        "status:lapsed": "/records?q=status%3Alapsed",
        "op:charge": "/records?q=op%3Acharge",
        "op:charge, a month": "/records?q=op%3Acharge&days=30",
        "error:Timeout": "/records?q=status%3Aunknown+error%3ATimeout",
        "process:": "/records?q=process%3Ap-17",
        "key:": "/records?q=key%3Aorder-29",
        "a word": "/records?q=order-33",
        "a digest's beginning": f"/records?q={some[:12]}",
        "one key": f"/records/{some}",
        "happened": f"/records/{some}/happened",
        "bulk": "/bulk?q=status%3Aunknown+op%3Acharge&action=not-happened",
        "messages": "/messages",
        "leases": "/leases",
        "tokens": "/tokens?purpose=charge",
        "sequences": "/sequences",
        "processes": "/processes",
        "decisions": "/decisions",
        "pulse": "/pulse",
    }
    found: dict[str, list[float]] = {}
    with httpx.Client(base_url=address, timeout=30, trust_env=False, headers={"accept-language": "en"}) as client:
        for name, path in paths.items():
            for _ in range(3):
                answer = client.get(path, follow_redirects=True)
            if answer.status_code not in (200, 404):
                raise SystemExit(f"{path} answered {answer.status_code}: {answer.text[:500]}")
            if answer.status_code == 404:
                print(f"  {name}: not there on this store", file=sys.stderr)
                continue
            found[name] = [_milliseconds(client, path) for _ in range(PAGES)]
    return found


def _milliseconds(client: httpx.Client, path: str) -> float:
    begun = time.perf_counter()
    client.get(path, follow_redirects=True)
    return (time.perf_counter() - begun) * 1000


def claims(url: str, rounds: int, seconds: float, every: int) -> list[tuple[float, float]]:
    """Calls a second with the console closed and open, for each round."""
    found = []
    with Once(url, scope="bench") as once, serving(url) as address:
        _rate(once, seconds)
        for number in range(rounds):
            pair: dict[bool, float] = {}
            for is_open in (bool(number % 2), not number % 2):
                with visited(address, every) if is_open else nullcontext():
                    pair[is_open] = _rate(once, seconds)
            found.append((pair[False], pair[True]))
    return found


def _rate(once: Once, seconds: float) -> float:
    done = 0
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        once.run("bench", key=secrets.token_hex(16), call=lambda: 1, unknown="rerun")
        done += 1
    return done / (time.perf_counter() - begun)


@contextmanager
def visited(address: str, every: int) -> Iterator[None]:
    """The console with four tabs open and somebody who walks through its pages."""
    with subprocess.Popen([sys.executable, "-c", VISITORS.format(address=address, every=every)]) as visitors:
        time.sleep(1.0)  # for the program to start
        try:
            yield
        finally:
            visitors.terminate()
            visitors.wait(30)


VISITORS = """
import itertools, time, httpx
pages = itertools.cycle(("/unknown", "/records", "/", "/records?q=status%3Aunknown", "/decisions"))
with httpx.Client(base_url="{address}", trust_env=False, timeout=30) as client:
    for second in itertools.count():
        if second % 10 in (0, 2, 5, 7):
            client.get("/pulse")
        if second % {every} == 1 % {every}:
            client.get(next(pages))
        time.sleep(1)
"""


def told(rows: int, size: str, pages: dict[str, list[float]], rates: list[tuple[float, float]], *, keep: bool) -> int:
    """Print what was found; 1 where it is not good enough."""
    print(f"\n{rows:,} records, {size} with indexes; milliseconds, {PAGES} requests each, warm")
    slow = []
    for name, times in pages.items():
        median, most = statistics.median(times), sorted(times)[int(len(times) * 0.9)]
        slow += [name] if median >= LIMIT_MS else []
        print(f"  {name:24} best {min(times):6.1f}   median {median:6.1f}   90 % {most:6.1f}   most {max(times):6.1f}")
    ratios = [opened / closed for closed, opened in rates]
    ratio = statistics.median(ratios) if ratios else 1.0
    if rates:
        print(f"\nclaim + settle, {len(rates)} rounds: open / closed {ratio:.3f}")
        print(f"  ratios from {min(ratios):.3f} to {max(ratios):.3f}; load {os.getloadavg()[0]:.1f}")
        print("  closed " + " ".join(f"{closed:.0f}" for closed, _ in rates))
        print("  open   " + " ".join(f"{opened:.0f}" for _, opened in rates))
    if keep:
        kept: dict[str, Any] = {
            "rows": rows,
            "size": size,
            "load_1m": os.getloadavg()[0],
            "pages_ms": {name: [round(each, 1) for each in times] for name, times in pages.items()},
            "claims_per_second": [[round(each) for each in pair] for pair in rates],
            "ratio": round(ratio, 3),
        }
        RESULT.write_text(json.dumps(kept, indent=1) + "\n")
    if slow:
        print(f"too slow (100 ms): {', '.join(slow)}")
    if ratio < LEAST_RATIO:
        print(f"the console costs more than {1 - LEAST_RATIO:.0%}")
    return 1 if slow or ratio < LEAST_RATIO else 0


if __name__ == "__main__":
    sys.exit(main())
