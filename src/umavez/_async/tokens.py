"""Confirmation tokens: issued to an owner, redeemed once, replayed afterwards. See `umavez.tokens`."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from umavez._async.admission import AsyncAdmission, Entered
from umavez._async.attempt import AsyncAttempt, drive
from umavez._async.once import AsyncOnce
from umavez._async.paging import async_pages
from umavez.concurrency.unbroken import AsyncCancelled
from umavez.concurrency.waiting import async_awaited
from umavez.core import token as flows
from umavez.core.encoding.fingerprint import fingerprint
from umavez.core.key import Key
from umavez.core.protocol import Intent, Verdict
from umavez.core.record import Instant, Query, Record, Status
from umavez.core.token import TokenState, digest_of
from umavez.core.token_errors import (
    TokenCancelled,
    TokenError,
    TokenExpired,
    TokenUnknown,
)
from umavez.core.token_view import BOUNDS, KEEP, LINGER, LOOK, TTL, WAIT, Issued, TokenView, named
from umavez.engine.blocks import async_block
from umavez.engine.current import CURRENT
from umavez.engine.declaration import Plan
from umavez.engine.insistence import Insistence, not_at_all
from umavez.engine.outcome import Outcome
from umavez.engine.stamps import STAMPS
from umavez.errors import ConfigurationError, StoreError, StoreUnavailable, StoreUncertain
from umavez.stores import AsyncStore

T = TypeVar("T")

MOST_OWNERS = 10_000
"""Owners remembered as looked at."""


class AsyncTokens:
    """Tokens for one purpose. `options` are the operation's: unknown= must be said, and keep=, lease=, wait=, … may be.

    `bounds` limits ttl=; `max_live` how many unused tokens an owner may hold. One that is being redeemed does not
    count, nor does one that was issued without `max_live`.
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
        self._tidied: dict[str, Instant] = {}
        """Until when, by the store's clock, each owner's tokens need no look."""

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
        if self._max_live is not None:
            await self._reserve(wanted, self._max_live)
        issued_at = await self._kept(wanted, STAMPS.owner())
        self._engine.tell("issued", key)
        if self._max_live is None:
            await self._tidy_now_and_then(owner, issued_at)
        return Issued(token, issued_at + wanted.ttl, key)

    async def redeem(
        self, token: str, owner: str, call: Callable[[Any], Awaitable[T]], *, payload: Any = None
    ) -> Outcome[T]:
        """Run `call(payload)` once for this token; a repeat gets the same outcome, also past the token's time.

        Raises TokenUnknown, TokenNotYours, TokenExpired, TokenCancelled; KeyReused when `payload` is given and is
        not what the token was issued for; and whatever Once.run raises.
        """

        async def run() -> T:
            return await async_awaited(call(_payload()))

        meaning = None if payload is None else fingerprint(payload)
        return await self._engine.perform(self.plan, Intent(self._key(token), meaning, named(owner)), run, (), {})

    @async_block
    async def attempt(self, token: str, owner: str, *, payload: Any = None) -> AsyncIterator[AsyncAttempt]:
        """A block that is the redemption, as Once.attempt; `attempt.progress` is the token's payload."""
        async with self._engine.attempt(
            self.purpose, key=digest_of(token), fingerprint=payload, process_instance=named(owner)
        ) as attempt:
            yield attempt

    @async_block
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
        """Close up to `limit` tokens whose time passed unused, and tell observers; each is given to one caller only.

        For whoever must give something back, such as a reserved seat. Run it more often than `linger`.
        """
        gone: list[TokenView] = []
        # Page by page: those that still live, and those expired before, must not hide the expired behind them.
        async for records in async_pages(self._store, Query(self.plan.scope, self.purpose, status=Status.FAILED)):
            gone += await self._retire(records, self._linger, limit - len(gone))
            if len(gone) >= limit:
                break
        return gone

    async def _tidy_now_and_then(self, owner: str, now: Instant) -> None:
        """Tidy if none of the owner's tokens was looked at for the shortest time to redeem.

        A look grows with what the owner has, used tokens among it; one with every token would cost more and more.
        """
        if now < self._tidied.get(owner, 0):
            return
        if len(self._tidied) >= MOST_OWNERS:
            self._tidied.clear()
        self._tidied[owner] = now + int(self._bounds[0] * 1000)
        try:
            await self._tidy(owner)
        except StoreError:
            return  # the token is issued; the next one tidies, or the sweep

    async def _tidy(self, owner: str) -> None:
        query = Query(self.plan.scope, self.purpose, None, owner, Status.FAILED, limit=LOOK)
        records = [record for record in await self._store.find(query) if record.settled is None]
        if not records:
            return
        gone = await self._retire(records, 0, LOOK)
        if gone:
            # The sweep takes the longest expired first; as many go as came, so no owner makes the table grow.
            await self._store.sweep(len(gone))

    async def _reserve(self, wanted: flows.Issue, most: int) -> None:
        """Enter the token in its owner's ledger, which is kept for as long as a token in it may be of use."""
        keep = int(self._bounds[1] * 1000) + self._linger
        over = await drive(flows.reserve(wanted, most, keep, STAMPS.owner()), self._store)
        if over and await self._retire(over, 0, len(over)):
            await self._store.sweep(len(over))

    async def _retire(self, records: list[Record], keep: int, most: int) -> list[TokenView]:
        gone: list[TokenView] = []
        now = (await self._store.read(records[0].key)).now
        for record in records:
            if len(gone) == most:
                break
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
            observers=once.observers.all,
        )
        self.plans = once.plans
        self._admission = AsyncTokenAdmission(self.store, self._observe)
        owners = once._admission  # noqa: SLF001  # one set of heartbeats and of returns, closed by its owner
        self._admission.heartbeats, self._admission.returns = owners.heartbeats, owners.returns

    def tell(self, kind: str, key: Key) -> None:
        """Let observers hear of something that is no attempt."""
        self._observe(kind, key, 0)


class AsyncTokenAdmission(AsyncAdmission):
    """Lets in whoever holds a token of its own that can still be redeemed or was."""

    async def enter(self, plan: Plan, intent: Intent, store: AsyncStore | None = None) -> Entered:
        """As AsyncAdmission's, by the rules of tokens."""
        self.refuse_reentry(intent.key, plan)
        insistence: Insistence = not_at_all
        if store is None:
            store, insistence = self._store, self._insistence
        return await self._entered(plan, intent, await self._verdict(plan, intent, store), store, insistence)

    async def _verdict(self, plan: Plan, intent: Intent, store: AsyncStore) -> Verdict:
        owner = STAMPS.owner()
        try:
            try:
                return await self._judged(plan, intent, owner, store)
            except StoreUncertain:
                # Under the same stamp: a claim whose answer was lost is recognised.
                return await self._judged(plan, intent, owner, store)
        except AsyncCancelled:
            self._left_in_doubt(plan, intent.key, owner, store)
            raise

    async def _judged(self, plan: Plan, intent: Intent, stamp: str, store: AsyncStore) -> Verdict:
        try:
            return await drive(flows.redeem(intent, plan.policy, stamp), store)
        except TokenUnknown as unknown:
            if store is not self._store:
                await self._refuse_blind(intent, unknown)
            self._observe("rejected", intent.key, 0)
            raise
        except TokenError:
            self._observe("rejected", intent.key, 0)
            raise

    async def _refuse_blind(self, intent: Intent, unknown: TokenUnknown) -> None:
        """Raise StoreUnavailable where only the caller's transaction knows no such token: by its snapshot, at
        REPEATABLE READ, whatever was issued since its first look is not there.
        """
        seen = await self._store.read(intent.key)
        with suppress(TokenError):
            flows.owned(seen.current, intent.process_instance)
            raise StoreUnavailable(
                "The transaction began before this token was issued and does not see it; roll back and run it again."
            ) from unknown


def _payload() -> Any:
    running = CURRENT.get()
    return None if running is None else running.progress
