"""InstrumentBench: what the laws of tokens and leases work on. One text serves sync and async engines alike."""

from __future__ import annotations

import asyncio
import inspect
import secrets
import threading
from collections.abc import Callable
from typing import Any

from umavez._async.once import AsyncOnce
from umavez._sync.once import Once
from umavez.engine.outcome import Event
from umavez.stores import AsyncStore, Store
from umavez.testing.clock import ManualClock


class InstrumentBench:
    """An engine on the store to be judged, in a scope that nobody else uses, and the clock that moves it.

    With a `runner` the store is an AsyncStore, what is awaited runs in its loop, and rivals are tasks; without one
    the store is a Store and rivals are threads.
    """

    def __init__(self, store: Any, clock: ManualClock, runner: asyncio.Runner | None = None) -> None:
        self.clock = clock
        self.scope = f"law-{secrets.token_hex(6)}"
        self.events: list[Event] = []
        self._runner = runner
        self.once: Any = self.engine(store)

    def engine(self, store: Store | AsyncStore) -> Any:
        """Another engine on the same store and scope, such as another process would have."""
        kind: Any = Once if self._runner is None else AsyncOnce
        return kind(store, scope=self.scope, observers=(self.events.append,))

    def pick(self, sync: Any, tasks: Any) -> Any:
        """The class for this kind of engine."""
        return sync if self._runner is None else tasks

    def do(self, result: Any) -> Any:
        """`result`, awaited if it must be."""
        if self._runner is not None and inspect.isawaitable(result):
            return self._runner.run(_awaited(result))
        return result

    def work(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` as a caller's own code: a coroutine function where those are called."""
        if self._runner is None:
            return function

        async def coroutine(*args: Any) -> Any:
            await asyncio.sleep(0)
            return function(*args)

        return coroutine

    def together(self, count: int, thunk: Callable[[], Any]) -> list[Any]:
        """What `count` calls of `thunk` give when all start at once: results, or the errors they raised."""
        if self._runner is None:
            return _threads(count, thunk)

        async def gathered() -> list[Any]:
            return await asyncio.gather(*(thunk() for _ in range(count)), return_exceptions=True)

        return self._runner.run(gathered())

    def kinds(self) -> list[str]:
        """What observers heard, in order."""
        return [event.kind for event in self.events]


async def _awaited(result: Any) -> Any:
    return await result


def _threads(count: int, thunk: Callable[[], Any]) -> list[Any]:
    results: list[Any] = [None] * count
    start = threading.Barrier(count)

    def run(number: int) -> None:
        start.wait(60)
        try:
            results[number] = thunk()
        except Exception as error:  # noqa: BLE001  # the law looks at it
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return results
