"""Kills processes while they redeem, and counts rides: one for each token, whatever dies.

    python -m chaos.tokens [--tokens 200] [--seed N] [--store URL ...]

Two processes redeem the same tokens in the caller's transaction; a part of them is killed (SIGKILL) at a random
moment. Afterwards every token is redeemed once more: each must have made one ride, the one it answers with.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import signal
import sys
import time
import traceback
from contextlib import ExitStack
from typing import Any, NamedTuple

from chaos.leases import Field, lent
from umavez.sql.connection import Sql
from umavez.tokens import Tokens

RACERS = 2


class Result(NamedTuple):
    """How many tokens there were, how many processes died redeeming them, and what came of it."""

    tokens: int
    killed: int
    rides: int
    doubled: int
    wrong: int
    seed: int


def redeem(field: Field, token: str, owner: str) -> str:
    """Make the ride of a token in one transaction, or get the one it has made."""
    with field.once() as once:
        connection = field.connect()
        with Tokens(once, "confirm", unknown="rerun").redeeming(connection, token, owner, wait=30) as attempt:
            if not attempt.replayed:
                ride = secrets.token_hex(8)
                Sql.on(connection).count(f"INSERT INTO {field.written} VALUES (?, 0, ?)", (owner, ride[:10]))
                attempt.succeed(ride[:10])
            made: str = attempt.outcome
        connection.commit()
        connection.close()
        return made


def racer(field: Field, token: str, owner: str) -> int:
    """A process that redeems once."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        redeem(field, token, owner)
        code = 0
    except BaseException:  # noqa: BLE001  # the child must not return into its parent's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def run(url: str, count: int, seed: int | None = None) -> Result:
    """Race for `count` tokens on the store at `url`. Raises AssertionError for a ride twice, lost or wrong."""
    seed = secrets.randbits(32) if seed is None else seed
    draw = random.Random(seed)
    field = Field(url, secrets.token_hex(4))
    field.prepare()
    try:
        killed, wrong = 0, 0
        for number in range(count):
            owner = f"p{number}"
            with field.once() as once:
                token = Tokens(once, "confirm", unknown="rerun").issue(owner).token
            killed += _raced(field, token, owner, draw)
            answers = {redeem(field, token, owner) for _ in range(2)}
            wrong += answers != _made(field, owner)
        rides, doubled = _rides(field)
    finally:
        field.drop()
    result = Result(count, killed, rides, doubled, wrong, seed)
    assert (rides, doubled, wrong) == (count, 0, 0), f"{result}"
    return result


def _raced(field: Field, token: str, owner: str, draw: random.Random) -> int:
    pids = [racer(field, token, owner) for _ in range(RACERS)]
    time.sleep(draw.random() * 0.12)
    victims = [pid for pid in pids if draw.random() < 0.7]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    assert 1 not in codes, "a racer failed on its own"
    return sum(code == -signal.SIGKILL for code in codes)


def _made(field: Field, owner: str) -> set[Any]:
    return {row[0] for row in _rows(field, f"SELECT who FROM {field.written} WHERE name = ?", owner)}


def _rides(field: Field) -> tuple[int, int]:
    counts = [row[0] for row in _rows(field, f"SELECT COUNT(*) FROM {field.written} GROUP BY name")]
    return len(counts), sum(count > 1 for count in counts)


def _rows(field: Field, text: str, *values: Any) -> list[Any]:
    connection = field.connect()
    try:
        return Sql.on(connection).rows(text, values)
    finally:
        connection.close()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", action="append", help="may be given several times; a file and a PostgreSQL if not")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--seed", type=int)
    chosen = parser.parse_args()
    with ExitStack() as stack:
        for url in chosen.store or lent(stack):
            began = time.monotonic()
            result = run(url, chosen.tokens, chosen.seed)
            print(f"{url.partition(':')[0]}: {result} in {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
