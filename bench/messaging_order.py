"""How much order costs a relay, and whether what is done slows it down.

python -m bench.messaging_order [--messages 100000] [--aggregates 10] [--on postgres,mariadb,sqlite]

A backlog without order and one in a few aggregates are drained in turn to a broker that takes everything at once, so
that the database alone is measured. Ordered >= 0.5 x unordered; the last fifth >= 0.5 x the first.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.messaging.places import Place, place_of
from tests.servers import KINDS, Found, Run
from umavez.messaging import Database, Message, Outbox, Relay, RelaySettings

BATCH = 200
MOST_SECONDS = 1800
SHARE = 5
"""The first and the last fifth of a drain are compared."""


class Drain(NamedTuple):
    """Messages per second: of all, of the first fifth, of the last."""

    whole: float
    first: float
    last: float


class Taking:
    """A broker that takes everything at once, and notes when."""

    def __init__(self, many: int) -> None:
        self.many = many
        self.taken = 0
        self.moments: list[tuple[int, float]] = [(0, time.perf_counter())]
        self.over = asyncio.Event()

    async def publish(self, messages: Sequence[Message]) -> Sequence[str | None]:
        """Take them."""
        self.taken += len(messages)
        self.moments.append((self.taken, time.perf_counter()))
        if self.taken >= self.many:
            self.over.set()
        return [None] * len(messages)

    async def close(self) -> None:
        """There is nothing to close."""

    def drain(self) -> Drain:
        """The rates so far."""
        edge = self.many // SHARE
        return Drain(self._rate(0, self.many), self._rate(0, edge), self._rate(self.many - edge, self.many))

    def _rate(self, begin: int, end: int) -> float:
        inside = [moment for moment in self.moments if begin <= moment[0] <= end]
        (low, since), (high, until) = inside[0], inside[-1]
        return (high - low) / max(until - since, 1e-9)


def main() -> None:
    """Print a line for each database."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--aggregates", type=int, default=10)
    parser.add_argument("--on", default="postgres,mariadb,sqlite")
    given = parser.parse_args()
    for name in given.on.split(","):
        with lent(name) as url:
            plain, ordered = (drained(url, given.messages, names) for names in (0, given.aggregates))
        print(
            f"{name}: ordered {ordered.whole:,.0f}/s in {given.aggregates} aggregates, unordered {plain.whole:,.0f}/s"
            f" (N={given.messages}, batches of {BATCH}): {ordered.whole / plain.whole:.2f} x (target 0.5);"
            f" its last fifth {ordered.last / ordered.first:.2f} x its first (target 0.5)",
            flush=True,
        )


@contextmanager
def lent(name: str) -> Iterator[str]:
    """A database of our own."""
    if name == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{Path(folder)}/order.db?journal=delete"
        return
    run = Run.begin()
    try:
        server = run.server(KINDS[name])
        assert isinstance(server, Found), f"no {name}"
        with run.lend(KINDS[name], server) as url:
            yield url
    finally:
        run.end()


def drained(url: str, many: int, names: int) -> Drain:
    """A backlog that was filled before, relayed until nothing waits."""
    place = place_of(url)
    place.empty()
    fill(place, many, names)
    return asyncio.run(_relayed(url, many))


def fill(place: Place, many: int, names: int) -> None:
    """Messages that wait, each in the aggregate of its turn."""
    with closing(place.connect()) as connection:
        for first in range(0, many, 5000):
            numbers = range(first, min(many, first + 5000))
            Outbox().append(connection, [_message(number, names) for number in numbers])
            connection.commit()


def _message(number: int, names: int) -> Message:
    return Message("t", f'{{"n":{number}}}', aggregate=f"a{number % names}" if names else None)


async def _relayed(url: str, many: int) -> Drain:
    database, broker = Database(url), Taking(many)
    relay: Any = Relay(database, broker, RelaySettings(batch=BATCH))
    stop = asyncio.Event()
    task = asyncio.create_task(relay.run(stop))
    over = asyncio.create_task(broker.over.wait())
    await asyncio.wait({task, over}, timeout=MOST_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    over.cancel()
    await task
    await database.close()
    return broker.drain()


if __name__ == "__main__":
    main()
