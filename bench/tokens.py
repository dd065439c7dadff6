"""Issuing and redeeming a token against a plain first call of the engine on the same store.

python -m bench.tokens [--pairs 400] [--rounds 5] [--quick]

A first call commits twice (claim, outcome). Issue and redeem commit three times on their own, and twice where the
redemption joins the caller's transaction. The contestants alternate, so that a noisy minute hits all of them.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

from chaos.leases import Field, lent
from umavez import Once
from umavez.tokens import Tokens


def main() -> None:
    """Print a table for each store."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    pairs, rounds = (50, 3) if given.quick else (given.pairs, given.rounds)
    with ExitStack() as stack:
        for url in lent(stack):
            measure(url, pairs, rounds)


def measure(url: str, pairs: int, rounds: int) -> None:
    """The rates of all contestants, and their ratio to a first call."""
    with Once(url, scope="bench") as once:
        once.migrate()
        rates = _rates(_contestants(once, url), pairs, rounds)
    first = statistics.median(rates["first call"])
    print(f"\n{url.partition(':')[0]}, median of {rounds} rounds of {pairs}")
    for name, found in rates.items():
        rate = statistics.median(found)
        print(f"  {name:34} {rate:8.0f} /s  {rate / first:5.2f} x  (from {min(found):.0f} to {max(found):.0f})")


def _contestants(once: Once, url: str) -> dict[str, Callable[[], object]]:
    tokens = Tokens(once, "confirm", unknown="rerun")
    connection = Field(url, "bench").connect()

    def first() -> object:
        return once.run("plain", key=secrets.token_hex(16), call=lambda: 1, unknown="rerun")

    def alone() -> object:
        owner = secrets.token_hex(8)
        return tokens.redeem(tokens.issue(owner, 1).token, owner, lambda payload: payload)

    def joined() -> None:
        owner = secrets.token_hex(8)
        with tokens.redeeming(connection, tokens.issue(owner, 1).token, owner) as attempt:
            attempt.succeed(attempt.progress)
        connection.commit()

    return {
        "first call": first,
        "issue": lambda: tokens.issue(secrets.token_hex(8), 1),
        "issue + redeem": alone,
        "issue + redeem in a transaction": joined,
    }


def _rates(contestants: dict[str, Callable[[], object]], pairs: int, rounds: int) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, call in contestants.items():
            began = time.perf_counter()
            for _ in range(pairs):
                call()
            rates[name].append(pairs / (time.perf_counter() - began))
    return rates


if __name__ == "__main__":
    main()
