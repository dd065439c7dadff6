"""What the tests of the Redis store share: drafts, and an async store that is called like a sync one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from umavez.clock import SYSTEM, Clock
from umavez.core.key import Key
from umavez.core.record import Draft, Settled, Status
from umavez.stores import open_async_store, open_store


def claim(value: str, stamp: str, **changes: Any) -> Draft:
    return Draft(Key("shop", "charge", value), stamp, Status.PENDING, True, lease=30_000)._replace(**changes)


def done(draft: Draft, stamp: str, keep: int = 60_000, body: str = '"ok"') -> Draft:
    return draft._replace(
        stamp=stamp,
        status=Status.SUCCESS,
        claims=False,
        lease=None,
        keep=keep,
        settled=Settled(True, body),
    )


class Awaited:
    """An async store on a loop of its own, with the verbs of a sync one."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.runner = asyncio.Runner()
        self.store = open_async_store(url, clock=clock)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        def call(*words: Any) -> Any:
            return self.runner.run(getattr(self.store, verb)(*words))

        return call

    def joined(self, connection: Any) -> Any:
        return self.store.joined(connection)


@contextmanager
def opened(kind: str, url: str, clock: Clock = SYSTEM) -> Iterator[Any]:
    """A store, sync or async, closed at the end."""
    store: Any = open_store(url, clock=clock) if kind == "sync" else Awaited(url, clock)
    try:
        yield store
    finally:
        store.close()
        if kind == "async":
            store.runner.close()
