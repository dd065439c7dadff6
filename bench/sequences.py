"""Gapless numbers against a bare `UPDATE ... RETURNING` loop on the same server, a commit for each number.

python -m bench.sequences [--numbers 2000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count

import psycopg

from chaos.messaging import lent_store
from tests.servers import Run
from umavez.sequences import Sequences, UniqueNumbers

BARE = "UPDATE bare SET next_number = next_number + 1 WHERE organisation = %s AND series = %s RETURNING next_number - 1"
NAMES = ("bench", "numbers")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--numbers", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    run = Run.begin()
    try:
        with lent_store(run, None) as url:
            measure(url, given.numbers, given.rounds)
    finally:
        run.end()


def measure(url: str, numbers: int, rounds: int) -> None:
    """Alternate the contestants, so that a noisy minute hits all of them."""
    with closing(psycopg.connect(url)) as connection:
        Sequences().migrate(connection)
        Sequences().define(connection, *NAMES)
        connection.execute(
            "CREATE TABLE bare (organisation text, series text, next_number bigint, PRIMARY KEY (organisation, series))"
            " WITH (fillfactor = 20)"
        )
        connection.execute("INSERT INTO bare VALUES (%s, %s, 1)", NAMES)
        connection.commit()
        keys = count()
        unique = UniqueNumbers(lambda: psycopg.connect(url), *NAMES, block=1000)

        def bare() -> None:
            connection.execute(BARE, NAMES).fetchone()
            connection.commit()

        def gapless() -> None:
            Sequences().next_number(connection, *NAMES)
            connection.commit()

        def keyed() -> None:
            Sequences().next_number(connection, *NAMES, key=f"order-{next(keys)}")
            connection.commit()

        def blocks() -> None:
            unique.next_number()

        contestants = {"bare": bare, "gapless": gapless, "gapless with key": keyed, "unique": blocks}
        rates: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(rounds):
            for name, take in contestants.items():
                rates[name].append(numbers / _timed(take, numbers))
    base = statistics.median(rates["bare"])
    for name, measured in rates.items():
        rate = statistics.median(measured)
        print(f"{name:17} {rate:10,.0f}/s  {rate / base:8.2f} x bare (N={numbers}, {rounds} rounds)")


def _timed(take: Callable[[], None], numbers: int) -> float:
    began = time.perf_counter()
    for _ in range(numbers):
        take()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
