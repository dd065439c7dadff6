# Written by tools/sync.py from src/umavez/_async/leases.py: change that, then run `make format`.
"""Named leases: one holder at a time, across processes. See `umavez.leases`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from umavez._sync.attempt import Attempt, drive
from umavez._sync.once import Once
from umavez.concurrency.courtesy import Courtesy
from umavez.concurrency.unbroken import Cancelled
from umavez.core import lease as flows
from umavez.core.key import Key
from umavez.core.protocol import Busy, Granted, Intent, Verdict, admit
from umavez.engine.declaration import Plan
from umavez.engine.stamps import STAMPS
from umavez.errors import ClaimLost, OperationInProgress, StoreError, StoreUnavailable, StoreUncertain
from umavez.sql.joining import driver_connection
from umavez.stores import Store


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
        """Whether somebody else is known to have taken over, or no heartbeat got through for a whole lease.

        So is one that was given back: whoever still works with it, such as a thread that outlived its block, must stop.
        """
        leased = self._leased
        return leased.done or leased.lost or time.monotonic() - leased.renewed_at >= leased.plan.policy.lease

    def check(self) -> None:
        """Raise ClaimLost if the lease is lost. Asks the store when the last heartbeat is old, as after a freeze."""
        self._refuse_given_back()
        self._leased.check()

    def renew(self) -> None:
        """Extend the lease now. Raises ClaimLost when somebody else has it."""
        self._refuse_given_back()
        self._leased.renew()

    def _refuse_given_back(self) -> None:
        if self._leased.done:
            raise ClaimLost(self._leased.key)

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
        self._observe = once.observers
        self._courtesy = Courtesy()
        self._heartbeats = once._admission.heartbeats  # noqa: SLF001  # one set, closed by its owner
        self._returns = once._admission.returns  # noqa: SLF001  # the same

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
        self._heartbeats.add(leased)
        self._courtesy.granted(name, leased.number, time.monotonic())
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
        self._heartbeats.discard(leased)
        if not leased.done:
            leased.release()
            self._courtesy.released(held.name, time.monotonic())

    def _release_quietly(self, held: Held) -> None:
        """Give it back on the way out of a failed block; what cannot be given back lapses by itself."""
        try:
            self.release(held)
        except (ClaimLost, StoreError):
            return

    def _waited(self, plan: Plan, intent: Intent) -> Verdict:
        name, looks, wait = intent.key.value, 1, plan.policy.wait
        deadline = time.monotonic() + wait
        if wait > 0 and (pause := self._courtesy.pause(name, time.monotonic())):
            time.sleep(min(pause, wait))
        verdict = self._looked(plan, intent, deadline)
        if not isinstance(verdict, Granted):
            self._courtesy.met(name, time.monotonic())
        while not isinstance(verdict, Granted) and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(self._courtesy.polled(looks), left))
            verdict, looks = self._looked(plan, intent, deadline), looks + 1
        return verdict

    def _looked(self, plan: Plan, intent: Intent, deadline: float) -> Verdict:
        """As `_verdict`; a record that somebody's open transaction holds is a lease that is held, while there is time.

        So it is when a holder that lapsed has proved its claim in a transaction that is still open.
        """
        try:
            return self._verdict(plan, intent)
        except (OperationInProgress, StoreUnavailable) as error:
            held = isinstance(error, OperationInProgress) or error.waited
            if not held or time.monotonic() >= deadline:
                raise
            return Busy(plan.policy.lease_ms)

    def _verdict(self, plan: Plan, intent: Intent) -> Verdict:
        owner = STAMPS.owner()
        try:
            try:
                return drive(admit(intent, plan.policy, owner), self._store)
            except StoreUncertain:
                # Under the same stamp: a claim whose answer was lost is recognised, not waited for.
                return drive(admit(intent, plan.policy, owner), self._store)
        except Cancelled:
            self._returns.begin(intent.key, owner, lambda record, stamp: flows.given_back(record, stamp, plan.keep_ms))
            raise


class Leased(Attempt):
    """The claim behind a Held: what the heart renews. A lease is released, never settled."""

    def release(self) -> None:
        """Give the lease back. Raises ClaimLost."""
        self._write(flows.releasing, (self.plan.keep_ms,), "released")

    def guard(self, connection: Any, wait: float) -> None:
        """Prove in the caller's transaction that the claim stands. Raises ClaimLost."""
        store = self._store.joined(driver_connection(connection), wait)
        # Not under the attempt's lock: a heartbeat holds it while it waits for a row or file that the caller's own
        # transaction may have locked, and the two would wait for each other.
        claim = self._claim
        if claim is None or self.lost or self.done:
            raise ClaimLost(self.key)
        drive(flows.prove(claim), store)
