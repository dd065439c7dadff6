"""Freezes lease holders past their lease (SIGSTOP), lets others take over, wakes them, and counts what they can write.

    python -m chaos.leases [--rounds 1000] [--seed N] [--store URL ...]

Every holder has a named lease and a row lease. After the takeover it tries to write through both, to renew and to
release. One accepted write is a failure of the whole run.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.servers import KINDS, Missing, Run
from umavez import ClaimLost, Once
from umavez.leases import Leases
from umavez.row_leases import RowLease
from umavez.sql.connection import Dialect, Sql, dialect_of
from umavez.sql.row_lease import LeasedTable

LEASE = 1.0
"""Seconds. Long enough to freeze before the first heartbeat: frozen inside it, a holder would keep SQLite's lock."""
TOGETHER = 20
"""Holders frozen at the same time."""
STAGES = ("after acquiring", "after a write", "after a renewal")
TIMES = {Dialect.SQLITE: "TEXT", Dialect.POSTGRES: "timestamptz", Dialect.MARIADB: "DATETIME(6)"}


class Result(NamedTuple):
    """How many holders were frozen and taken over, and how many writes they got through afterwards."""

    frozen: int
    taken_over: int
    accepted: int
    refused: int
    seed: int


class Field:
    """The store under test, with a table to write to and one whose rows are leased."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.written, self.rows = f"chaos_written_{name}", f"chaos_rows_{name}"
        self.table = LeasedTable(self.rows, stale=LEASE)

    def connect(self) -> Any:
        """A driver's own connection."""
        if self.url.startswith("sqlite"):
            return sqlite3.connect(self.url.removeprefix("sqlite:///").partition("?")[0], timeout=30)
        import psycopg  # noqa: PLC0415  # only where PostgreSQL is asked for

        return psycopg.connect(self.url)

    def once(self) -> Once:
        """An engine of this process."""
        return Once(self.url, scope=self.rows)

    def prepare(self) -> None:
        """Create both tables."""
        with self.once() as once:
            once.migrate()
        connection = self.connect()
        kind = TIMES[dialect_of(connection)]
        sql = Sql.on(connection)
        sql.count(f"CREATE TABLE {self.written} (name VARCHAR(40), fence BIGINT, who VARCHAR(10))")
        sql.count(
            f"CREATE TABLE {self.rows} (id VARCHAR(40) PRIMARY KEY, status VARCHAR(20), last_attempt {kind},"
            " epoch BIGINT, who VARCHAR(10))"
        )
        connection.commit()
        connection.close()

    def drop(self) -> None:
        """Remove both tables."""
        connection = self.connect()
        for table in (self.written, self.rows):
            Sql.on(connection).count(f"DROP TABLE {table}")
        connection.commit()
        connection.close()


def holder(field: Field, name: str, stage: str) -> int:
    """A holder's life: acquire, freeze at `stage`, and on waking try everything. How many writes were accepted."""
    once, connection = field.once(), field.connect()
    leases = Leases(once)
    held = leases.acquire(name, lease=LEASE, wait=20)
    claim = RowLease(field.table).acquire(connection, name)
    connection.commit()
    assert claim is not None
    if stage == "after a write":
        _insert(field, connection, held, "holder")
        claim.write(connection, who="holder")
        connection.commit()
    elif stage == "after a renewal":
        held.renew()
        claim.renew(connection)
        connection.commit()
    os.kill(os.getpid(), signal.SIGSTOP)
    return sum(
        _accepted(connection, attempt)
        for attempt in (
            lambda: _insert(field, connection, held, "zombie"),
            lambda: claim.write(connection, who="zombie"),
            lambda: claim.finish(connection, who="zombie"),
            held.renew,
            lambda: leases.release(held),
        )
    )


def _insert(field: Field, connection: Any, held: Any, who: str) -> None:
    Sql.on(connection).count(f"INSERT INTO {field.written} VALUES (?, ?, ?)", (held.name, held.fence, who))
    held.guard(connection)


def _accepted(connection: Any, attempt: Callable[[], Any]) -> bool:
    try:
        attempt()
    except ClaimLost:
        connection.rollback()
        return False
    connection.commit()
    return True


def born(field: Field, name: str, stage: str) -> int:
    """The process of a holder; its exit code is what `holder` returns, 99 for an error of its own."""
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        code = holder(field, name, stage)
    except BaseException:  # noqa: BLE001  # the child must not return into its parent's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def take_over(field: Field, leases: Leases, connection: Any, name: str) -> Any:
    """Become the holder of both leases after the frozen one, and write."""
    held = leases.acquire(name, lease=60, wait=20)
    deadline = time.monotonic() + 20
    claim = None
    while claim is None and time.monotonic() < deadline:
        claim = RowLease(field.table).acquire(connection, name)
        connection.commit()
    assert claim is not None, "the row was never free"
    _insert(field, connection, held, "heir")
    claim.write(connection, who="heir")
    connection.commit()
    return held


def batch(field: Field, names: list[str], draw: random.Random) -> tuple[int, int]:
    """Freeze one holder for each name, take over, wake them; how many were taken over and what got through."""
    connection = field.connect()
    for name in names:
        Sql.on(connection).count(f"INSERT INTO {field.rows} (id, status) VALUES (?, 'PENDING')", (name,))
    connection.commit()
    connection.close()
    children: list[int] = []
    try:
        for name in names:
            children.append(born(field, name, draw.choice(STAGES)))
            _, status = os.waitpid(children[-1], os.WUNTRACED)
            assert os.WIFSTOPPED(status), f"a holder ended with {status} instead of freezing"
        return taken_over(field, names, children)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def taken_over(field: Field, names: list[str], children: list[int]) -> tuple[int, int]:
    """Become the heir of every holder, then wake them one by one; their number, and what got through."""
    connection = field.connect()
    accepted = 0
    with field.once() as once:
        leases = Leases(once)
        heirs = [take_over(field, leases, connection, name) for name in names]
        while children:
            pid = children[0]
            os.kill(pid, signal.SIGCONT)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            children.remove(pid)
            assert code != 99, "a holder failed on its own"
            accepted += code
        for heir in heirs:
            leases.release(heir)
    connection.close()
    return len(heirs), accepted


def run(url: str, rounds: int, seed: int | None = None, together: int = TOGETHER) -> Result:
    """Freeze `rounds` holders on the store at `url`. Raises AssertionError when anything was accepted."""
    seed = secrets.randbits(32) if seed is None else seed
    draw = random.Random(seed)
    field = Field(url, secrets.token_hex(4))
    field.prepare()
    taken = accepted = 0
    try:
        for first in range(0, rounds, together):
            names = [f"lease-{number}" for number in range(first, min(first + together, rounds))]
            heirs, through = batch(field, names, draw)
            taken, accepted = taken + heirs, accepted + through
        zombies = _zombies(field)
    finally:
        field.drop()
    result = Result(rounds, taken, accepted, rounds * 5 - accepted, seed)
    assert accepted == 0, f"{result}: a woken holder wrote"
    assert zombies == 0, f"{result}: {zombies} rows of woken holders are in the tables"
    return result


def _zombies(field: Field) -> int:
    connection = field.connect()
    sql = Sql.on(connection)
    found = sum(
        int(sql.rows(f"SELECT COUNT(*) FROM {table} WHERE who = 'zombie'")[0][0])
        for table in (field.written, field.rows)
    )
    connection.close()
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", action="append", help="may be given several times; a file and a PostgreSQL if not")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int)
    chosen = parser.parse_args()
    with ExitStack() as stack:
        for url in chosen.store or lent(stack):
            began = time.monotonic()
            result = run(url, chosen.rounds, chosen.seed)
            print(f"{url.partition(':')[0]}: {result} in {time.monotonic() - began:.1f} s", flush=True)


def lent(stack: ExitStack) -> list[str]:
    """A file of its own, and a database of a PostgreSQL server if one is to be had."""
    folder = stack.enter_context(TemporaryDirectory())
    servers = Run.begin()
    stack.callback(servers.end)
    urls = [f"sqlite:///{folder}/leases.db?journal=delete"]
    server = servers.server(KINDS["postgres"])
    if isinstance(server, Missing):
        print(f"postgres is left out: {server.advice}", flush=True)
        return urls
    return [*urls, stack.enter_context(servers.lend(KINDS["postgres"], server))]


if __name__ == "__main__":
    main()
