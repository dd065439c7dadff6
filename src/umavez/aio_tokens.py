"""Confirmation tokens for tasks. The twin of `tokens.py`; see there."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from umavez.aio import AsyncOnce
from umavez.aio_admission import AsyncAdmission, Entered, refuse_reentry
from umavez.aio_attempt import CURRENT, PAUSES, AsyncAttempt, drive
from umavez.core import token as flows
from umavez.core.fingerprint import fingerprint
from umavez.core.key import Key
from umavez.core.protocol import Intent, Verdict
from umavez.core.record import Instant, Query, Record, Status
from umavez.core.token import TokenState, digest_of
from umavez.core.token_errors import (
    TokenCancelled,
    TokenError,
    TokenExpired,
    TokenNotYours,
    TokenUnknown,
    TokenUsed,
    TooManyTokens,
)
from umavez.core.token_view import BOUNDS, KEEP, LINGER, LOOK, TTL, WAIT, Issued, TokenView, named
from umavez.errors import ConfigurationError, StoreUncertain
from umavez.outcome import Outcome
from umavez.plan import Plan
from umavez.stamps import STAMPS
from umavez.stores import AsyncStore

T = TypeVar("T")
__all__ = [
    "AsyncTokens",
    "Issued",
    "TokenCancelled",
    "TokenError",
    "TokenExpired",
    "TokenNotYours",
    "TokenState",
    "TokenUnknown",
    "TokenUsed",
    "TokenView",
    "TooManyTokens",
]


class AsyncTokens:
    """Tokens for one purpose. `options` are the operation's: unknown= must be said, and keep=, lease=, wait=, … may be.

    `bounds` limits ttl=; `max_live` how many unused tokens an owner may hold (about: two at once may both pass).
    """

    def __init__(
        self,
        once: AsyncOnce,
        purpose: str,
        *,
        ttl: float = TTL,
        bounds: tuple[float, float] = BOUNDS,
        linger: float = LINGER,
        max_live: int | None = None,
        **options: Any,
    ) -> None:
        self.purpose = purpose
        options = {"keep": KEEP, "wait": WAIT} | options
        self.plan: Plan = once.plans.declared(purpose, options)
        self._joined = {name: value for name, value in options.items() if name not in ("unknown", "heartbeat", "wait")}
        self._engine = AsyncRedeemer(once)
        self._store: AsyncStore = once.store
        self._bounds = bounds
        self._ttl = self._checked(ttl)
        self._linger = int(linger * 1000)
        self._max_live = max_live

    async def issue(self, owner: str, payload: Any = None, *, ttl: float | None = None) -> Issued:
        """A new token for `owner`; those of the owner whose time has passed are removed.

        Raises ConfigurationError for a ttl out of bounds, NotStorable for the payload, TooManyTokens.
        """
        token = secrets.token_hex(32)
        key = self._key(token)
        wanted = flows.Issue(
            key,
            named(owner),
            self.plan.codec.encode(payload, key),
            fingerprint(payload),
            self._ttl if ttl is None else self._checked(ttl),
            self._linger,
        )
        await self._tidy(owner)
        issued_at = await self._kept(wanted, STAMPS.owner())
        self._engine.tell("issued", key)
        return Issued(token, issued_at + wanted.ttl, key)

    async def redeem(
        self, token: str, owner: str, call: Callable[[Any], Awaitable[T]], *, payload: Any = None
    ) -> Outcome[T]:
        """Run `await call(payload)` once for this token; a repeat gets the same outcome, also past the token's time.

        Raises TokenUnknown, TokenNotYours, TokenExpired, TokenCancelled; KeyReused when `payload` is given and is
        not what the token was issued for; and whatever Once.run raises.
        """

        async def run() -> T:
            return await call(_payload())

        meaning = None if payload is None else fingerprint(payload)
        return await self._engine.perform(self.plan, Intent(self._key(token), meaning, named(owner)), run, (), {})

    @asynccontextmanager
    async def attempt(self, token: str, owner: str, *, payload: Any = None) -> AsyncIterator[AsyncAttempt]:
        """A block that is the redemption, as Once.attempt; `attempt.progress` is the token's payload."""
        async with self._engine.attempt(
            self.purpose, key=digest_of(token), fingerprint=payload, process_instance=named(owner)
        ) as attempt:
            yield attempt

    @asynccontextmanager
    async def redeeming(
        self, connection: Any, token: str, owner: str, *, payload: Any = None, wait: float = 10.0
    ) -> AsyncIterator[AsyncAttempt]:
        """A block that redeems inside the caller's transaction, as Once.joined: token and effect commit together."""
        async with self._engine.joined(
            connection,
            self.purpose,
            key=digest_of(token),
            fingerprint=payload,
            process_instance=named(owner),
            wait=wait,
            **self._joined,
        ) as attempt:
            yield attempt

    async def status(self, token: str, owner: str) -> TokenView:
        """Where the token stands; changes nothing. Raises TokenUnknown, TokenNotYours."""
        seen = await self._store.read(self._key(token))
        return self._view(flows.owned(seen.current, named(owner)), seen.now)

    async def cancel(self, token: str, owner: str, *, by: str = "owner", reason: str = "cancelled") -> bool:
        """Close an unused token; whether this call did it. Raises as `redeem`, TokenUsed, OperationInProgress."""
        key = self._key(token)
        refusal = self.plan.refusal(key, TokenCancelled())
        flow = flows.cancel(key, named(owner), refusal, self.plan.keep_ms, (by, reason), STAMPS.owner())
        done = await drive(flow, self._store)
        if done:
            self._engine.tell("cancelled", key)
        return done

    async def find(self, owner: str, *, limit: int = LOOK) -> list[TokenView]:
        """The owner's tokens that are still kept, oldest first. The tokens themselves are stored nowhere."""
        records = await self._store.find(
            Query(self.plan.scope, self.purpose, process_instance=named(owner), limit=limit)
        )
        if not records:
            return []
        now = (await self._store.read(records[0].key)).now
        return [self._view(record, now) for record in records if not record.is_expired(now)]

    async def expire(self, *, limit: int = 1000) -> list[TokenView]:
        """Close tokens whose time passed unused and tell observers; each is returned to one caller only.

        For whoever must give something back, such as a reserved seat. Run it more often than `linger`.
        """
        query = Query(self.plan.scope, self.purpose, status=Status.FAILED, limit=limit)
        return await self._retired(await self._store.find(query), self._linger)

    async def _tidy(self, owner: str) -> None:
        query = Query(self.plan.scope, self.purpose, None, owner, Status.FAILED, limit=LOOK)
        records = [record for record in await self._store.find(query) if record.settled is None]
        if not records:
            return
        gone = await self._retired(records, 0)
        if gone:
            # The sweep takes the longest expired first; as many go as came, so no owner makes the table grow.
            await self._store.sweep(len(gone))
        if self._max_live is not None and len(records) - len(gone) >= self._max_live:
            raise TooManyTokens

    async def _retired(self, records: list[Record], keep: int) -> list[TokenView]:
        gone: list[TokenView] = []
        if not records:
            return gone
        now = (await self._store.read(records[0].key)).now
        for record in records:
            if not flows.retirable(record, now):
                continue
            refusal = self.plan.refusal(record.key, TokenExpired())
            if await drive(flows.retire(record, now, refusal, keep, STAMPS.owner()), self._store):
                self._engine.tell("expired", record.key)
                gone.append(self._view(record, now))
        return gone

    async def _kept(self, wanted: flows.Issue, stamp: str) -> Instant:
        try:
            return await drive(flows.issue(wanted, stamp), self._store)
        except StoreUncertain:
            # Under the same stamp: a token whose answer was lost is recognised.
            return await drive(flows.issue(wanted, stamp), self._store)

    def _view(self, record: Record, now: Instant) -> TokenView:
        state = flows.state(record, now)
        used = state is TokenState.USED and record.settled is not None and record.settled.ok
        payload = None if record.progress is None else self.plan.codec.decode(record.progress, record.key)
        outcome = self.plan.stored(record) if used else None
        return TokenView(state, flows.expiry(record), payload, outcome, record.key)

    def _key(self, token: str) -> Key:
        return Key(self.plan.scope, self.purpose, digest_of(token))

    def _checked(self, ttl: float) -> int:
        shortest, longest = self._bounds
        if not shortest <= ttl <= longest:
            raise ConfigurationError(f"ttl={ttl:g} is out of bounds; give {shortest:g} to {longest:g} seconds.")
        return int(ttl * 1000)


class AsyncRedeemer(AsyncOnce):
    """The engine, with the tokens' own admission; it shares store, plans, observers and heart with `once`."""

    def __init__(self, once: AsyncOnce) -> None:
        super().__init__(
            once.store,
            scope=once.scope,
            codec=once.codec,
            observers=once._observers,  # noqa: SLF001  # the same engine, seen by another module
        )
        self.plans = once.plans
        self._admission = AsyncTokenAdmission(self.store, self._observe)
        self._admission.heart = once._admission.heart  # noqa: SLF001  # one heart, closed by its owner

    def tell(self, kind: str, key: Key) -> None:
        """Let observers hear of something that is no attempt."""
        self._observe(kind, key, 0)


class AsyncTokenAdmission(AsyncAdmission):
    """Lets in whoever holds a token of its own that can still be redeemed or was."""

    async def enter(
        self, plan: Plan, intent: Intent, store: AsyncStore | None = None, pauses: tuple[float, ...] = PAUSES
    ) -> Entered:
        """As AsyncAdmission's, by the rules of tokens."""
        refuse_reentry(intent.key, plan)
        store = store or self._store
        return await self._entered(plan, intent, await self._verdict(plan, intent, store), store, pauses)

    async def _verdict(self, plan: Plan, intent: Intent, store: AsyncStore) -> Verdict:
        owner = STAMPS.owner()
        try:
            return await self._judged(plan, intent, owner, store)
        except StoreUncertain:
            # Under the same stamp: a claim whose answer was lost is recognised.
            return await self._judged(plan, intent, owner, store)

    async def _judged(self, plan: Plan, intent: Intent, stamp: str, store: AsyncStore) -> Verdict:
        try:
            return await drive(flows.redeem(intent, plan.policy, stamp), store)
        except TokenError:
            self._observe("rejected", intent.key, 0)
            raise


def _payload() -> Any:
    running = CURRENT.get()
    return None if running is None else running.progress
