"""Gapless numbers from many processes with random rollbacks and kills: no hole, no twin.

python -m chaos.sequences [--numbers 100000] [--processes 16] [--store URL] [--seed N]

Every process takes numbers in transactions that also write them into a ledger without a unique constraint; a part is
rolled back, and from time to time a process is killed in the middle and another goes on.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from contextlib import closing
from typing import Any

from chaos.messaging import lent_store
from chaos.messaging_parts import connect, rows
from tests.servers import Run
from umavez.sequences import Sequences

ORGANISATION, SERIES = "chaos", "gapless"


def main() -> None:
    """Print what was done and what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--numbers", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--store")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    given = parser.parse_args()
    run = Run.begin()
    try:
        with lent_store(run, given.store) as url:
            print(chaos(url, given.numbers, given.processes, given.seed))
    finally:
        run.end()


def chaos(url: str, numbers: int, processes: int, seed: int, kills: bool = True) -> str:
    """All of it; raises AssertionError for a hole or a twin."""
    prepare(url)
    chance = random.Random(seed)
    began = time.monotonic()
    share = -(-numbers // processes)
    children = {_started(url, index, share, seed): index for index in range(processes)}
    killed = 0
    while children:
        if kills and chance.random() < 0.05 and _count(url) < numbers * 0.9:
            os.kill(chance.choice(list(children)), signal.SIGKILL)
            killed += 1
        time.sleep(0.2)
        for pid, status in _ended(children):
            index = children.pop(pid)
            if status:
                children[_started(url, index, share, seed + pid)] = index
    return _told(url, numbers, processes, seed, killed, time.monotonic() - began)


def prepare(url: str) -> None:
    """The series, and a ledger that would take a number twice."""
    with closing(connect(url)) as connection:
        Sequences().migrate(connection)
        cursor = connection.cursor()
        cursor.execute("DROP TABLE IF EXISTS numbers_ledger")
        cursor.execute("CREATE TABLE numbers_ledger (worker INT, number BIGINT)")
        for table in ("umavez_sequences", "umavez_sequence_ranges", "umavez_numbers"):
            cursor.execute(f"DELETE FROM {table} WHERE organisation = '{ORGANISATION}'")
        Sequences().define(connection, ORGANISATION, SERIES)
        connection.commit()


def _started(url: str, index: int, share: int, seed: int) -> int:
    child = os.fork()
    if child:
        return child
    try:
        _take(url, index, share, random.Random(seed + index))
    except BaseException as error:  # noqa: BLE001 - a forked child must never return into its parent's code
        print(f"worker {index}: {type(error).__name__}: {error}", file=sys.stderr)
        os._exit(1)
    os._exit(0)


def _take(url: str, index: int, share: int, chance: random.Random) -> None:
    """Take numbers until this worker's share stands in the ledger; what an earlier life committed counts."""
    had = int(rows(url, f"SELECT count(*) FROM numbers_ledger WHERE worker = {index}")[0][0])
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        turn = had
        while turn < share:
            key = f"{index}-{turn}" if turn % 3 == 0 else None
            number = Sequences().next_number(connection, ORGANISATION, SERIES, key=key)
            if chance.random() < 0.2:
                connection.rollback()
                continue
            _write(cursor, index, number)
            connection.commit()
            turn += 1


def _write(cursor: Any, index: int, number: int) -> None:
    cursor.execute(f"INSERT INTO numbers_ledger VALUES ({index}, {number})")


def _ended(children: dict[int, int]) -> list[tuple[int, int]]:
    ended = []
    for pid in list(children):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            ended.append((done, status))
    return ended


def _count(url: str) -> int:
    return int(rows(url, "SELECT count(*) FROM numbers_ledger")[0][0])


def _told(url: str, numbers: int, processes: int, seed: int, killed: int, seconds: float) -> str:
    ((total, distinct, low, high),) = rows(
        url, "SELECT count(*), count(DISTINCT number), min(number), max(number) FROM numbers_ledger"
    )
    holes, twins = high - distinct - (low - 1), total - distinct
    told = (
        f"N={total} processes={processes} seed={seed} kills={killed} {seconds:.0f} s ({total / seconds:,.0f}/s):"
        f" {holes} holes, {twins} twins"
    )
    assert (holes, twins, low) == (0, 0, 1), told
    assert total >= numbers, told
    return told


if __name__ == "__main__":
    main()
