"""Named leases: one holder at a time, across processes. `aio_leases.py` is its twin for tasks.

leases = Leases(once)
with leases.hold("nightly-report", lease=30) as held:
    send(report, fence=held.fence)
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from umavez.attempt import Attempt, drive
from umavez.core import lease as flows
from umavez.core.key import Key
from umavez.core.protocol import Busy, Granted, Intent, Verdict, admit
from umavez.errors import ClaimLost, OperationInProgress, StoreError, StoreUncertain
from umavez.once import Once
from umavez.outcome import Observe
from umavez.plan import Plan
from umavez.stamps import STAMPS
from umavez.stores import Store
from umavez.stores.joining import driver_connection

POLLS = (0.01, 0.02, 0.05, 0.1, 0.25)
"""Seconds between looks at a lease that somebody else holds."""


class Held:
    """A lease that is held, and kept alive by a heartbeat until it is released.

    `fence` is higher than every earlier holder's: write it beside what you change, and refuse lower ones.
    """

    def __init__(self, leased: Leased) -> None:
        self._leased = leased
        self.name = leased.key.value
        self.fence = leased.fence

    @property
    def lost(self) -> bool:
        """Whether somebody else is known to have taken over, or no heartbeat got through for a whole lease."""
        return self._leased.lost

    def check(self) -> None:
        """Raise ClaimLost if the lease is lost. Asks the store when the last heartbeat is old, as after a freeze."""
        self._leased.check()
        if time.monotonic() - self._leased.beaten_at > self._leased.plan.policy.lease / 2:
            self._leased.renew()

    def renew(self) -> None:
        """Extend the lease now. Raises ClaimLost when somebody else has it."""
        self._leased.renew()

    def guard(self, connection: Any, wait: float = 10.0) -> None:
        """Prove inside the caller's transaction that the lease is held; it cannot be taken over until that ends.

        Raises ClaimLost: roll back. Needs a store that can join (SQL).
        """
        self._leased.guard(connection, wait)


class Leases:
    """The leases of one scope: `kind` says what is leased, such as "report"; the engine's scope unless given."""

    def __init__(self, once: Once, kind: str | None = None) -> None:
        self._store: Store = once.store
        self._kind = once.scope if kind is None else kind
        self._codec = once.codec
        self._observe: Observe = once._observe  # noqa: SLF001  # the same engine, seen by another module
        self._heart = once._admission.heart  # noqa: SLF001  # one heart, closed by its owner

    @contextmanager
    def hold(self, name: str, *, lease: float = 30.0, wait: float = 0.0) -> Iterator[Held]:
        """Hold the lease for the block. Raises OperationInProgress when it is not free within `wait` seconds.

        The block's own error leaves as it is; a lease lost at the end raises ClaimLost only if the block had none.
        """
        held = self.acquire(name, lease=lease, wait=wait)
        try:
            yield held
        except BaseException:
            self._release_quietly(held)
            raise
        try:
            self.release(held)
        except StoreError:
            # The work is done, and a lease that cannot be given back lapses by itself.
            return

    def acquire(self, name: str, *, lease: float = 30.0, wait: float = 0.0) -> Held:
        """The lease, kept alive until `release`. Raises OperationInProgress."""
        key = Key(self._kind, flows.OPERATION, name)
        plan = Plan(self._kind, flows.OPERATION, flows.policy(lease, wait), self._codec)
        verdict = self._waited(plan, Intent(key))
        if not isinstance(verdict, Granted):
            self._observe("busy", key, 0)
            left = verdict.retry_after if isinstance(verdict, Busy) else plan.policy.lease_ms
            raise OperationInProgress(key, max(left, 1) / 1000)
        leased = Leased(self._store, plan, key, verdict.claim, self._observe)
        self._heart.begin(leased)
        self._observe("acquired" if verdict.taken_over is None else "taken_over", key, leased.number)
        return Held(leased)

    def try_acquire(self, name: str, *, lease: float = 30.0) -> Held | None:
        """As `acquire`; None when somebody else holds it."""
        try:
            return self.acquire(name, lease=lease)
        except OperationInProgress:
            return None

    def release(self, held: Held) -> None:
        """Give the lease back; safe to repeat. Raises ClaimLost when somebody else had taken it over."""
        leased = held._leased  # noqa: SLF001  # Held is this module's own face of it
        self._heart.end(leased)
        if not leased.done:
            leased.release()

    def _release_quietly(self, held: Held) -> None:
        """Give it back on the way out of a failed block; what cannot be given back lapses by itself."""
        try:
            self.release(held)
        except (ClaimLost, StoreError):
            return

    def _waited(self, plan: Plan, intent: Intent) -> Verdict:
        deadline = time.monotonic() + plan.policy.wait
        polls = iter(POLLS)
        verdict = self._verdict(plan, intent)
        while not isinstance(verdict, Granted) and time.monotonic() < deadline:
            time.sleep(min(next(polls, POLLS[-1]), max(deadline - time.monotonic(), 0.0)))
            verdict = self._verdict(plan, intent)
        return verdict

    def _verdict(self, plan: Plan, intent: Intent) -> Verdict:
        owner = STAMPS.owner()
        try:
            return drive(admit(intent, plan.policy, owner), self._store)
        except StoreUncertain:
            # Under the same stamp: a claim whose answer was lost is recognised, not waited for.
            return drive(admit(intent, plan.policy, owner), self._store)


class Leased(Attempt):
    """The claim behind a Held: what the heart renews. A lease is released, never settled."""

    def release(self) -> None:
        """Give the lease back. Raises ClaimLost."""
        self._write(flows.releasing, (self.plan.keep_ms,), "released")

    def guard(self, connection: Any, wait: float) -> None:
        """Prove in the caller's transaction that the claim stands. Raises ClaimLost."""
        store = self._store.joined(driver_connection(connection), wait)
        with self._lock:
            # Under the lock: a heartbeat between reading the stamp and proving it would look like a takeover.
            if self._claim is None or self.lost or self.done:
                raise ClaimLost(self.key)
            drive(flows.prove(self._claim), store)
