"""Bench: what a law works on. One text of the laws serves sync and async stores alike."""

from __future__ import annotations

import asyncio
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import count
from typing import TypeVar

from umavez.core.flow import Seen, Stale, Swap, SwapFlow, Swapped
from umavez.core.key import Key
from umavez.core.policy import Policy
from umavez.core.protocol import Claim, Granted, Intent, Verdict, admit
from umavez.core.record import Draft, Query, Record
from umavez.stores import AsyncStore, Store
from umavez.testing.clock import ManualClock
from umavez.testing.drive import Steps, adrive, drive

T = TypeVar("T")

LEASE = 30.0
KEEP = 3600.0
RETRIES = 2
RERUN = Policy("rerun", lease=LEASE, keep=KEEP, max_retries=RETRIES)
HOLD = Policy("hold", lease=LEASE, keep=KEEP, max_retries=RETRIES)
ASK = Policy(lambda: None, lease=LEASE, keep=KEEP, max_retries=RETRIES)


class AnyBench(ABC):
    """A store to be judged, the clock that moves it, and a scope that nobody else uses.

    Laws keep to `scope` (and scopes that begin with it), so one server may serve many laws in turn.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.scope = f"law-{secrets.token_hex(6)}"
        self._owners = count()

    @abstractmethod
    def read(self, key: Key) -> Seen:
        """The store's `read`."""

    @abstractmethod
    def sweep(self, limit: int, older_than: int = 0) -> int:
        """The store's `sweep`."""

    @abstractmethod
    def find(self, query: Query) -> list[Record]:
        """The store's `find`."""

    @abstractmethod
    def drive(self, flow: Steps[T]) -> T:
        """What `flow` returns when it talks to the store."""

    @abstractmethod
    def together(self, flows: Sequence[Steps[T]]) -> list[T]:
        """What the flows return, in their order, when all start at once. Raises what one of them raised."""

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """The store's `swap`."""
        return self.drive(_one_swap(expected, draft))

    def key(self, value: str = "42", operation: str = "charge") -> Key:
        """A key in this bench's scope."""
        return Key(self.scope, operation, value)

    def stamp(self) -> str:
        """The name of an owner that nobody bore before."""
        return f"{self.scope}-{next(self._owners)}"

    def admission(self, intent: Key | Intent, policy: Policy = RERUN) -> SwapFlow[Verdict]:
        """The flow of one caller that asks for the right to run."""
        return admit(intent if isinstance(intent, Intent) else Intent(intent), policy, self.stamp())

    def admit(self, intent: Key | Intent, policy: Policy = RERUN) -> Verdict:
        """What one caller that asks for the right to run is told."""
        return self.drive(self.admission(intent, policy))

    def claim(self, intent: Key | Intent, policy: Policy = RERUN) -> Claim:
        """The claim of a caller that must be granted it."""
        verdict = self.admit(intent, policy)
        assert isinstance(verdict, Granted), f"the key should be free, but the verdict was {verdict}"
        return verdict.claim

    def record(self, key: Key) -> Record:
        """The record under `key`, which must be there."""
        current = self.read(key).current
        assert current is not None, f"a record was written under {key} and is not found"
        return current

    def lapse(self) -> None:
        """Let every lease end."""
        self.clock.advance(LEASE + 1)

    def expire(self) -> None:
        """Let every kept outcome's time pass."""
        self.clock.advance(KEEP + 1)


class Bench(AnyBench):
    """A bench for a Store; rivals are threads."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        super().__init__(clock)
        self.store = store

    def read(self, key: Key) -> Seen:
        """The store's `read`."""
        return self.store.read(key)

    def sweep(self, limit: int, older_than: int = 0) -> int:
        """The store's `sweep`."""
        return self.store.sweep(limit, older_than)

    def find(self, query: Query) -> list[Record]:
        """The store's `find`."""
        return self.store.find(query)

    def drive(self, flow: Steps[T]) -> T:
        """What `flow` returns when it talks to the store."""
        return drive(flow, self.store)

    def together(self, flows: Sequence[Steps[T]]) -> list[T]:
        """One thread for each flow; a barrier lets them go."""
        start = threading.Barrier(len(flows))
        answers: dict[int, T] = {}
        failures: list[BaseException] = []

        def run(number: int, flow: Steps[T]) -> None:
            try:
                start.wait(30)
                answers[number] = drive(flow, self.store)
            except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread below)
                failures.append(error)

        threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in enumerate(flows)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a caller hangs in the store"
        if failures:
            raise failures[0]
        return [answers[number] for number in range(len(flows))]


class AsyncBench(AnyBench):
    """A bench for an AsyncStore, whose verbs run in `runner`'s loop; rivals are tasks."""

    def __init__(self, store: AsyncStore, clock: ManualClock, runner: asyncio.Runner) -> None:
        super().__init__(clock)
        self.store = store
        self._runner = runner

    def read(self, key: Key) -> Seen:
        """The store's `read`."""
        return self._runner.run(self.store.read(key))

    def sweep(self, limit: int, older_than: int = 0) -> int:
        """The store's `sweep`."""
        return self._runner.run(self.store.sweep(limit, older_than))

    def find(self, query: Query) -> list[Record]:
        """The store's `find`."""
        return self._runner.run(self.store.find(query))

    def drive(self, flow: Steps[T]) -> T:
        """What `flow` returns when it talks to the store."""
        return self._runner.run(adrive(flow, self.store))

    def together(self, flows: Sequence[Steps[T]]) -> list[T]:
        """One task for each flow."""

        async def gathered() -> list[T]:
            return await asyncio.wait_for(asyncio.gather(*(adrive(flow, self.store) for flow in flows)), 60)

        return self._runner.run(gathered())


def _one_swap(expected: str | None, draft: Draft) -> SwapFlow[Swapped | Stale]:
    return (yield Swap(expected, draft))
