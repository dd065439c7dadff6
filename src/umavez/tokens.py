"""Confirmation tokens: issued to an owner, redeemed once, replayed afterwards. `aio_tokens.py` is its twin for tasks.

tokens = Tokens(once, "confirm_ride", unknown="rerun")
issued = tokens.issue("passenger-7", {"price": "15.50"})
ride = tokens.redeem(issued.token, "passenger-7", create_ride).value
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from umavez.admission import Admission, Entered, refuse_reentry
from umavez.attempt import CURRENT, PAUSES, Attempt, drive
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
from umavez.once import Once
from umavez.outcome import Outcome
from umavez.plan import Plan
from umavez.stamps import STAMPS
from umavez.stores import Store

T = TypeVar("T")
__all__ = [
    "Issued",
    "TokenCancelled",
    "TokenError",
    "TokenExpired",
    "TokenNotYours",
    "TokenState",
    "TokenUnknown",
    "TokenUsed",
    "TokenView",
    "Tokens",
    "TooManyTokens",
]


class Tokens:
    """Tokens for one purpose. `options` are the operation's: unknown= must be said, and keep=, lease=, wait=, … may be.

    `bounds` limits ttl=; `max_live` how many unused tokens an owner may hold (about: two at once may both pass).
    """

    def __init__(
        self,
        once: Once,
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
        self._engine = Redeemer(once)
        self._store: Store = once.store
        self._bounds = bounds
        self._ttl = self._checked(ttl)
        self._linger = int(linger * 1000)
        self._max_live = max_live

    def issue(self, owner: str, payload: Any = None, *, ttl: float | None = None) -> Issued:
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
        self._tidy(owner)
        issued_at = self._kept(wanted, STAMPS.owner())
        self._engine.tell("issued", key)
        return Issued(token, issued_at + wanted.ttl, key)

    def redeem(self, token: str, owner: str, call: Callable[[Any], T], *, payload: Any = None) -> Outcome[T]:
        """Run `call(payload)` once for this token; a repeat gets the same outcome, also past the token's time.

        Raises TokenUnknown, TokenNotYours, TokenExpired, TokenCancelled; KeyReused when `payload` is given and is
        not what the token was issued for; and whatever Once.run raises.
        """

        def run() -> T:
            return call(_payload())

        meaning = None if payload is None else fingerprint(payload)
        return self._engine.perform(self.plan, Intent(self._key(token), meaning, named(owner)), run, (), {})

    @contextmanager
    def attempt(self, token: str, owner: str, *, payload: Any = None) -> Iterator[Attempt]:
        """A block that is the redemption, as Once.attempt; `attempt.progress` is the token's payload."""
        with self._engine.attempt(
            self.purpose, key=digest_of(token), fingerprint=payload, process_instance=named(owner)
        ) as attempt:
            yield attempt

    @contextmanager
    def redeeming(
        self, connection: Any, token: str, owner: str, *, payload: Any = None, wait: float = 10.0
    ) -> Iterator[Attempt]:
        """A block that redeems inside the caller's transaction, as Once.joined: token and effect commit together."""
        with self._engine.joined(
            connection,
            self.purpose,
            key=digest_of(token),
            fingerprint=payload,
            process_instance=named(owner),
            wait=wait,
            **self._joined,
        ) as attempt:
            yield attempt

    def status(self, token: str, owner: str) -> TokenView:
        """Where the token stands; changes nothing. Raises TokenUnknown, TokenNotYours."""
        seen = self._store.read(self._key(token))
        return self._view(flows.owned(seen.current, named(owner)), seen.now)

    def cancel(self, token: str, owner: str, *, by: str = "owner", reason: str = "cancelled") -> bool:
        """Close an unused token; whether this call did it. Raises as `redeem`, TokenUsed, OperationInProgress."""
        key = self._key(token)
        refusal = self.plan.refusal(key, TokenCancelled())
        flow = flows.cancel(key, named(owner), refusal, self.plan.keep_ms, (by, reason), STAMPS.owner())
        done = drive(flow, self._store)
        if done:
            self._engine.tell("cancelled", key)
        return done

    def find(self, owner: str, *, limit: int = LOOK) -> list[TokenView]:
        """The owner's tokens that are still kept, oldest first. The tokens themselves are stored nowhere."""
        records = self._store.find(Query(self.plan.scope, self.purpose, process_instance=named(owner), limit=limit))
        if not records:
            return []
        now = (self._store.read(records[0].key)).now
        return [self._view(record, now) for record in records if not record.is_expired(now)]

    def expire(self, *, limit: int = 1000) -> list[TokenView]:
        """Close tokens whose time passed unused and tell observers; each is returned to one caller only.

        For whoever must give something back, such as a reserved seat. Run it more often than `linger`.
        """
        query = Query(self.plan.scope, self.purpose, status=Status.FAILED, limit=limit)
        return self._retired(self._store.find(query), self._linger)

    def _tidy(self, owner: str) -> None:
        query = Query(self.plan.scope, self.purpose, None, owner, Status.FAILED, limit=LOOK)
        records = [record for record in self._store.find(query) if record.settled is None]
        if not records:
            return
        gone = self._retired(records, 0)
        if gone:
            # The sweep takes the longest expired first; as many go as came, so no owner makes the table grow.
            self._store.sweep(len(gone))
        if self._max_live is not None and len(records) - len(gone) >= self._max_live:
            raise TooManyTokens

    def _retired(self, records: list[Record], keep: int) -> list[TokenView]:
        gone: list[TokenView] = []
        if not records:
            return gone
        now = (self._store.read(records[0].key)).now
        for record in records:
            if not flows.retirable(record, now):
                continue
            refusal = self.plan.refusal(record.key, TokenExpired())
            if drive(flows.retire(record, now, refusal, keep, STAMPS.owner()), self._store):
                self._engine.tell("expired", record.key)
                gone.append(self._view(record, now))
        return gone

    def _kept(self, wanted: flows.Issue, stamp: str) -> Instant:
        try:
            return drive(flows.issue(wanted, stamp), self._store)
        except StoreUncertain:
            # Under the same stamp: a token whose answer was lost is recognised.
            return drive(flows.issue(wanted, stamp), self._store)

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


class Redeemer(Once):
    """The engine, with the tokens' own admission; it shares store, plans, observers and heart with `once`."""

    def __init__(self, once: Once) -> None:
        super().__init__(
            once.store,
            scope=once.scope,
            codec=once.codec,
            observers=once._observers,  # noqa: SLF001  # the same engine, seen by another module
        )
        self.plans = once.plans
        self._admission = TokenAdmission(self.store, self._observe)
        self._admission.heart = once._admission.heart  # noqa: SLF001  # one heart, closed by its owner

    def tell(self, kind: str, key: Key) -> None:
        """Let observers hear of something that is no attempt."""
        self._observe(kind, key, 0)


class TokenAdmission(Admission):
    """Lets in whoever holds a token of its own that can still be redeemed or was."""

    def enter(
        self, plan: Plan, intent: Intent, store: Store | None = None, pauses: tuple[float, ...] = PAUSES
    ) -> Entered:
        """As Admission's, by the rules of tokens."""
        refuse_reentry(intent.key, plan)
        store = store or self._store
        return self._entered(plan, intent, self._verdict(plan, intent, store), store, pauses)

    def _verdict(self, plan: Plan, intent: Intent, store: Store) -> Verdict:
        owner = STAMPS.owner()
        try:
            return self._judged(plan, intent, owner, store)
        except StoreUncertain:
            # Under the same stamp: a claim whose answer was lost is recognised.
            return self._judged(plan, intent, owner, store)

    def _judged(self, plan: Plan, intent: Intent, stamp: str, store: Store) -> Verdict:
        try:
            return drive(flows.redeem(intent, plan.policy, stamp), store)
        except TokenError:
            self._observe("rejected", intent.key, 0)
            raise


def _payload() -> Any:
    running = CURRENT.get()
    return None if running is None else running.progress
