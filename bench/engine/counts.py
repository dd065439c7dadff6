"""What each call costs the server, counted by the server itself: numbers that no load can move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pymysql
import redis

from bench.engine.load import RESULT
from bench.engine.servers import Servers
from umavez import Once

CALLS = 400
Counter = Callable[[], dict[str, float]]


def counted(servers: Servers, name: str, url: str) -> dict[str, dict[str, float]]:
    """Per first call and per replay of a lone caller, what the server did."""
    counter = _COUNTERS[name](servers, url)
    found: dict[str, dict[str, float]] = {}
    for op in ("first", "replay"):
        with Once(url, scope="counts") as once:
            once.migrate()
            _call(once, f"warm-{op}")
            before = counter()
            for number in range(CALLS):
                _call(once, str(number))
        after = counter()
        found[op] = {what: round((after[what] - before[what]) / CALLS, 2) for what in after}
    return found


def _call(once: Once, key: str) -> None:
    once.run("charge", key=key, call=lambda: RESULT, unknown="rerun", heartbeat=False)


def _postgres(servers: Servers, url: str) -> Counter:
    database = url.rpartition("/")[2]

    def count() -> dict[str, float]:
        # Every statement is a transaction of its own. What a session did is counted at the latest when it ends.
        with psycopg.connect(servers.urls["postgres"], autocommit=True) as connection:
            (commits,) = connection.execute(
                "SELECT xact_commit FROM pg_stat_database WHERE datname = %s", (database,)
            ).fetchone() or (0,)
            (syncs, size) = connection.execute("SELECT wal_sync, wal_bytes FROM pg_stat_wal").fetchone() or (0, 0)
        return {"statements": commits, "wal_syncs": syncs, "wal_bytes": float(size)}

    return count


def _mariadb(servers: Servers, _: str) -> Counter:
    def count() -> dict[str, float]:
        with pymysql.connect(host="127.0.0.1", port=servers.port("mariadb"), user="root") as connection:
            cursor = connection.cursor()
            cursor.execute("SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Innodb_os_log_fsyncs')")
            rows: dict[str, Any] = dict(cursor.fetchall())
        names = {"Questions": "statements", "Innodb_os_log_fsyncs": "log_syncs"}
        return {names[name]: float(value) for name, value in rows.items()}

    return count


def _redis(_: Servers, url: str) -> Counter:
    def count() -> dict[str, float]:
        with redis.Redis.from_url(url) as client:
            stats: dict[str, Any] = client.info("commandstats")
        # What a script calls inside is not a round trip.
        return {"commands": sum(stats[name]["calls"] for name in ("cmdstat_evalsha", "cmdstat_eval") if name in stats)}

    return count


_COUNTERS: dict[str, Callable[[Servers, str], Counter]] = {
    "postgres": _postgres,
    "mariadb": _mariadb,
    "redis": _redis,
}
