"""One caller of a mixed fleet, run as a script with either version of umavez. Given: URL, number, path of the history.

It imports nothing but what both versions have. It ends when its history's folder holds a file called "stop".
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from umavez import Once

FLEET = 4
"""Callers in all; each also repeats what the others did."""


def main(url: str, number: int, path: str) -> None:
    """Pay key after key, each again at once, and now and then one of another caller's."""
    chance, history = random.Random(number), os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    stop = Path(path).with_name("stop")

    def note(*words: object) -> None:
        os.write(history, ("\t".join(map(str, words)) + "\n").encode())

    with Once(url, scope="fleet") as once:
        for turn in range(10_000_000):
            if stop.exists():
                return
            other = f"w{chance.randrange(FLEET)}-{max(0, turn - chance.randrange(20))}"
            for key in (f"w{number}-{turn}", f"w{number}-{turn}", other):
                pay(once, key, number, note)
            time.sleep(0.002)


def pay(once: Once, key: str, number: int, note: Callable[..., None]) -> None:
    """One call; what came of it is noted."""

    def effect() -> str:
        token = secrets.token_hex(6)
        note("effect", key, token)
        return token

    began = time.monotonic()
    try:
        outcome = once.run("pay", key=key, call=effect, unknown="hold", wait=20.0)
    except Exception as error:  # noqa: BLE001  # whatever a caller sees counts
        note("error", key, f"{number} {type(error).__name__} {str(error)[:200]!r}")
    else:
        note("answer", key, outcome.value)
        note("took", key, f"{time.monotonic() - began:.3f}")


if __name__ == "__main__":
    # By itself: it is started with the packages of another version, beside which nothing of this one can be imported.
    parser = argparse.ArgumentParser(description=__doc__)
    for word, kind in (("url", str), ("number", int), ("path", str)):
        parser.add_argument(word, type=kind)
    main(**vars(parser.parse_args()))
