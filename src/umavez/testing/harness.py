"""Bench: what a law works on. One text of the laws serves sync and async stores alike, through the shells' own code."""

from __future__ import annotations

import asyncio
import inspect
import secrets
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

from umavez._async import attempt as async_attempt
from umavez._async.admission import AsyncAdmission
from umavez._async.attempt import AsyncAttempt
from umavez._sync import attempt as sync_attempt
from umavez._sync.admission import Admission
from umavez._sync.attempt import Attempt
from umavez.core.drafts import checkpointing, doubting, failing, renewing, rerunning, settling
from umavez.core.flow import Seen, Stale, Swapped
from umavez.core.key import Key
from umavez.core.policy import Policy
from umavez.core.protocol import Claim, Granted, Intent, Replay, Verdict
from umavez.core.record import Draft, Query, Record, Settled
from umavez.core.resolution import Resolution, resolve
from umavez.core.telling.events import EventDraft, PastEvent
from umavez.core.telling.minutes import Tally
from umavez.core.telling.origin import Origin
from umavez.engine.declaration import Plan
from umavez.engine.observing import Observers
from umavez.stores import AsyncStore, Chronicle, Provenance, Store, Tallies
from umavez.testing.clock import ManualClock

T = TypeVar("T")
Job = Coroutine[Any, Any, T]
"""What one of several rivals does. On a sync store it never waits, and each runs in a thread of its own."""

LEASE = 30.0
KEEP = 3600.0
RETRIES = 2
RERUN = Policy("rerun", lease=LEASE, keep=KEEP, max_retries=RETRIES)
HOLD = Policy("hold", lease=LEASE, keep=KEEP, max_retries=RETRIES)
ASK = Policy(lambda: None, lease=LEASE, keep=KEEP, max_retries=RETRIES)


class Texts:
    """A codec for texts that are stored as they are: a law compares what a store gives back, not what it means."""

    def encode(self, value: Any, key: Key) -> str:
        """The text itself."""
        return str(value)

    def decode(self, text: str, key: Key) -> Any:
        """The text itself."""
        return text


class Holder:
    """Somebody who holds a claim. Every change goes through an Attempt of the shell that suits the store.

    The verbs return the holder, and raise ClaimLost when somebody has taken over.
    """

    def __init__(self, attempt: Any) -> None:
        self._attempt = attempt
        self._before: Claim = attempt._claim  # noqa: SLF001  # the engine's own bench

    @property
    def claim(self) -> Claim:
        """The claim as it is now."""
        claim: Claim = self._attempt._claim  # noqa: SLF001  # as above
        return claim

    @property
    def draft(self) -> Draft:
        """What the holder wrote last."""
        return self.claim.draft

    @property
    def fence(self) -> int:
        """The claim's fence."""
        return self.claim.fence

    async def renew(self) -> Holder:
        """Extend the lease."""
        return await self._write(renewing, ())

    async def checkpoint(self, progress: str) -> Holder:
        """Keep how far it got."""
        return await self._write(checkpointing, (progress,))

    async def rerun(self, evidence: str) -> Holder:
        """Turn a claim to ask into a claim to run."""
        return await self._write(rerunning, (evidence,))

    async def settle(self, settled: Settled, *, error: str | None = None, evidence: str | None = None) -> Holder:
        """Keep the outcome."""
        return await self._write(settling, (settled, self._attempt.plan.keep_ms, error, evidence), "succeeded")

    async def fail(self, error: str) -> Holder:
        """Record a failure that frees the key."""
        return await self._write(failing, (error, self._attempt.plan.keep_ms), "failed")

    async def doubt(self, error: str, evidence: str | None = None) -> Holder:
        """Record that it may have happened."""
        return await self._write(doubting, (error, evidence), "unknown")

    def lose_answer(self) -> None:
        """Know nothing of the last write, as if its answer had been lost on the way."""
        self._attempt._claim = self._before  # noqa: SLF001  # as above

    async def _write(self, drafting: Any, words: tuple[Any, ...], ends: str | None = None) -> Holder:
        self._before = self.claim
        await done(self._attempt._write(drafting, words, ends))  # noqa: SLF001  # as above
        return self


class AnyBench(ABC):
    """A store to be judged, the clock that moves it, and a scope that nobody else uses.

    Laws keep to `scope` (and scopes that begin with it), so one server may serve many laws in turn.
    """

    store: Any
    _admission: Any
    _shell: Any
    """The module with the `drive` that suits the store."""
    _attempt: Any

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.scope = f"law-{secrets.token_hex(6)}"
        self._owners = count()

    @abstractmethod
    def drive(self, job: Job[T]) -> T:
        """What `job` gives."""

    @abstractmethod
    def together(self, jobs: Sequence[Job[T]]) -> list[T]:
        """What the jobs give, in their order, when all start at once. Raises what one of them raised."""

    def read(self, key: Key) -> Seen:
        """The store's `read`."""
        return self.drive(self.reading(key))

    def sweep(self, limit: int, older_than: int = 0) -> int:
        """The store's `sweep`."""
        return self.drive(self.sweeping(limit, older_than))

    def find(self, query: Query) -> list[Record]:
        """The store's `find`."""
        return self.drive(done(self.store.find(query)))

    def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """The store's `swap`."""
        return self.drive(self.swapping(expected, draft))

    @property
    def keeps_events(self) -> bool:
        """Whether the store is a Chronicle, and the laws of events are its laws."""
        return isinstance(self.store, Chronicle)

    def history(self, key: Key) -> list[PastEvent]:
        """The store's `history`."""
        return self.drive(done(self.store.history(key)))

    @property
    def keeps_origins(self) -> bool:
        """Whether the store is a Provenance, and the laws of origins are its laws."""
        return isinstance(self.store, Provenance)

    def origin(self, key: Key) -> Origin | None:
        """The store's `origin`."""
        kept: Origin | None = self.drive(done(self.store.origin(key)))
        return kept

    @property
    def keeps_minutes(self) -> bool:
        """Whether the store is one of Tallies, and the laws of minutes are its laws."""
        return isinstance(self.store, Tallies)

    def tally(self, process: str, span: int, *tallies: Tally) -> int:
        """The store's `tally`, of a process in this bench's scope."""
        now: int = self.drive(done(self.store.tally(f"{self.scope}{process}", span, tallies)))
        return now

    def tallied(self, span: int, newer_than: int, limit: int = 100) -> list[Tally]:
        """The store's `tallied`, of the operation that is called as this bench's scope."""
        kept: list[Tally] = self.drive(done(self.store.tallied(span, newer_than, self.scope, limit)))
        return kept

    def remark(self, key: Key, event: EventDraft) -> None:
        """The store's `remark`, of attempt 7 under fence 8 by somebody late."""
        self.drive(done(self.store.remark(key, event, 7, 8, "late")))

    async def reading(self, key: Key) -> Seen:
        """The job of reading."""
        return await done(self.store.read(key))  # type: ignore[no-any-return]  # either store's

    async def sweeping(self, limit: int, older_than: int = 0) -> int:
        """The job of sweeping."""
        return await done(self.store.sweep(limit, older_than))  # type: ignore[no-any-return]  # either store's

    async def swapping(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        """The job of one swap."""
        return await done(self.store.swap(expected, draft))  # type: ignore[no-any-return]  # either store's

    def key(self, value: str = "42", operation: str = "charge") -> Key:
        """A key in this bench's scope."""
        return Key(self.scope, operation, value)

    def stamp(self) -> str:
        """The name of an owner that nobody bore before."""
        return f"{self.scope}-{next(self._owners)}"

    async def admission(self, intent: Key | Intent, policy: Policy = RERUN) -> Verdict:
        """The job of one caller that asks for the right to run; what it is told."""
        intent = intent if isinstance(intent, Intent) else Intent(intent)
        entered = await done(self._admission.enter(_plan(intent.key, policy), intent))
        if isinstance(entered, Record):
            return Replay(entered)
        if isinstance(entered, self._attempt):
            return Granted(entered._claim)  # noqa: SLF001  # as above
        verdict: Verdict = entered
        return verdict

    def admit(self, intent: Key | Intent, policy: Policy = RERUN) -> Verdict:
        """What one caller that asks for the right to run is told."""
        return self.drive(self.admission(intent, policy))

    def holder(self, claim: Claim, policy: Policy = RERUN) -> Holder:
        """Whoever was granted `claim`."""
        key = claim.draft.key
        return Holder(self._attempt(self.store, _plan(key, policy), key, claim, Observers(), False, ()))

    async def claiming(self, intent: Key | Intent, policy: Policy = RERUN) -> Holder:
        """The job of a caller that must be granted the right to run."""
        verdict = await self.admission(intent, policy)
        assert isinstance(verdict, Granted), f"the key should be free, but the verdict was {verdict}"
        return self.holder(verdict.claim, policy)

    def claim(self, intent: Key | Intent, policy: Policy = RERUN) -> Holder:
        """A caller that must be granted the right to run."""
        return self.drive(self.claiming(intent, policy))

    def resolve(
        self,
        key: Key,
        resolution: Resolution,
        policy: Policy,
        *,
        override: bool = False,
        expected: str | None = None,
    ) -> Record:
        """Close a record by decision; what stood there before."""
        flow = resolve(key, resolution, policy.keep_ms, self.stamp(), override=override, expected=expected)
        was, _ = self.drive(done(self._shell.drive(flow, self.store)))
        return was  # type: ignore[no-any-return]  # either shell's

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

    _shell = sync_attempt
    _attempt = Attempt

    def __init__(self, store: Store, clock: ManualClock) -> None:
        super().__init__(clock)
        self.store = store
        self._admission = _Verdicts(store, Observers())

    def drive(self, job: Job[T]) -> T:
        """What `job` gives, at once."""
        try:
            job.send(None)
        except StopIteration as end:
            value: T = end.value
            return value
        raise AssertionError("a sync store made its caller wait for an event loop")

    def together(self, jobs: Sequence[Job[T]]) -> list[T]:
        """One thread for each job; a barrier lets them go."""
        start = threading.Barrier(len(jobs))
        answers: dict[int, T] = {}
        failures: list[BaseException] = []

        def run(number: int, job: Job[T]) -> None:
            try:
                start.wait(30)
                answers[number] = self.drive(job)
            except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread below)
                failures.append(error)

        threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in enumerate(jobs)]
        with _restless():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive(), "a caller hangs in the store"
        if failures:
            raise failures[0]
        return [answers[number] for number in range(len(jobs))]


@contextmanager
def _restless() -> Iterator[None]:
    """Let the interpreter change threads as often as it can: a store that lacks a lock then shows it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class AsyncBench(AnyBench):
    """A bench for an AsyncStore, whose verbs run in `runner`'s loop; rivals are tasks."""

    _shell = async_attempt
    _attempt = AsyncAttempt

    def __init__(self, store: AsyncStore, clock: ManualClock, runner: asyncio.Runner) -> None:
        super().__init__(clock)
        self.store = store
        self._runner = runner
        self._admission = _AsyncVerdicts(store, Observers())

    def drive(self, job: Job[T]) -> T:
        """What `job` gives when it is awaited."""
        return self._runner.run(job)

    def together(self, jobs: Sequence[Job[T]]) -> list[T]:
        """One task for each job."""

        async def gathered() -> list[T]:
            async with asyncio.timeout(60):
                return await asyncio.gather(*jobs)

        return self._runner.run(gathered())


class _Verdicts(Admission):
    """The shell's own admission, which tells its verdict instead of acting on it."""

    def _entered(self, plan: Plan, intent: Intent, verdict: Verdict, *_: object) -> Any:
        return verdict


class _AsyncVerdicts(AsyncAdmission):
    """As _Verdicts, awaited."""

    async def _entered(self, plan: Plan, intent: Intent, verdict: Verdict, *_: object) -> Any:
        return verdict


async def done(result: Any) -> Any:
    """What a verb of either shell or store gave, awaited if it must be."""
    return await result if inspect.isawaitable(result) else result


def _plan(key: Key, policy: Policy) -> Plan:
    return Plan(key.scope, key.operation, policy, Texts())
