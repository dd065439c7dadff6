"""Tokens against a model: issued, redeemed, refused, failed, cancelled, expired, swept, in any order and by anybody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from umavez import KeyReused, MaxRetriesExceeded, Once, OutcomeUnknown
from umavez.stores.memory import MemoryStore
from umavez.testing import ManualClock
from umavez.tokens import (
    TokenCancelled,
    TokenExpired,
    TokenNotYours,
    Tokens,
    TokenState,
    TokenUnknown,
    TokenUsed,
    TooManyTokens,
)

TTL, LINGER, KEEP, RETRIES, MOST = 100.0, 50.0, 400.0, 2, 3
OWNERS = st.sampled_from(["ana", "rui"])


class Refusal(Exception):
    """A final no."""


class NotNow(Exception):
    """Nothing happened."""


def attempted(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """What `call` returns, and what it raises."""
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001  # whatever it is, the model says whether it is right
        return None, error


@dataclass
class Kept:
    """What the model knows of a token."""

    token: str
    owner: str
    payload: int
    until: float
    state: TokenState = TokenState.UNUSED
    failures: int = 0
    outcome: Any = None
    closed_at: float = 0.0
    runs: list[Any] = field(default_factory=list)


class Confirmations(RuleBasedStateMachine):
    """Two owners and their tokens."""

    tokens = Bundle("tokens")

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.once = Once(MemoryStore(self.clock), scope="loja")
        self.purpose = Tokens(
            self.once,
            "confirm",
            ttl=TTL,
            linger=LINGER,
            keep=KEEP,
            max_live=MOST,
            unknown="hold",
            final=(Refusal,),
            free=(NotNow,),
            max_retries=RETRIES,
            wait=0,
        )
        self.time = 0.0
        self.all: list[Kept] = []
        self.gone: Counter[str] = Counter()

    def state(self, kept: Kept) -> TokenState:
        """As it is to be told now."""
        if kept.state is TokenState.UNUSED and self.time >= kept.until:
            return TokenState.EXPIRED
        return kept.state

    def forgotten(self, kept: Kept) -> bool:
        """Whether a sweep may have removed it."""
        if kept.state is TokenState.UNUSED:
            return self.time >= kept.until
        return kept.state is not TokenState.UNKNOWN and self.time >= kept.closed_at + KEEP

    @rule(target=tokens, owner=OWNERS)
    def issue(self, owner: str) -> Any:
        live = [kept for kept in self.all if kept.owner == owner and self.state(kept) is TokenState.UNUSED]
        if len(live) >= MOST:
            with pytest.raises(TooManyTokens):
                self.purpose.issue(owner, len(self.all))
            return None
        issued = self.purpose.issue(owner, len(self.all))
        kept = Kept(issued.token, owner, len(self.all), self.time + TTL)
        self.all.append(kept)
        return kept

    @rule(seconds=st.sampled_from([1.0, 49.0, 50.0, 99.0, 100.0, 101.0, 399.0, 401.0]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.time += seconds

    @rule(kept=tokens, owner=OWNERS, end=st.sampled_from(["done", "done", "refused", "not now", "cut"]))
    def redeem(self, kept: Kept | None, owner: str, end: str) -> None:
        if kept is None:
            return
        before = self.state(kept)

        def call(payload: int) -> str:
            assert before is TokenState.UNUSED, f"it ran although it was {before}"
            assert (owner, payload) == (kept.owner, kept.payload)
            kept.runs.append(end)
            if end == "done":
                return f"ride {len(kept.runs)}"
            raise {"refused": Refusal, "not now": NotNow, "cut": ConnectionResetError}[end](end)

        outcome, error = attempted(lambda: self.purpose.redeem(kept.token, owner, call))
        if error is not None:
            self._refused(kept, owner, before, end, error)
            return
        assert owner == kept.owner
        if before is TokenState.USED:
            assert (outcome.replayed, outcome.value) == (True, kept.outcome)
        else:
            self._closed(kept, TokenState.USED, f"ride {len(kept.runs)}")
            assert (outcome.replayed, outcome.value) == (False, kept.outcome)

    def _refused(self, kept: Kept, owner: str, before: TokenState, end: str, error: Exception) -> None:
        if isinstance(error, TokenUnknown):
            assert self.forgotten(kept)
        elif owner != kept.owner:
            assert isinstance(error, TokenNotYours)
        elif before is TokenState.UNUSED:
            if kept.failures > RETRIES:
                assert isinstance(error, MaxRetriesExceeded)
                return
            assert error.args == (end,)
            if end == "refused":
                self._closed(kept, TokenState.USED, error)
            elif end == "cut":
                kept.state = TokenState.UNKNOWN
            else:
                kept.failures += 1
        else:
            self._told(kept, before, error)

    def _told(self, kept: Kept, before: TokenState, error: Exception) -> None:
        wanted = {
            TokenState.EXPIRED: TokenExpired,
            TokenState.CANCELLED: TokenCancelled,
            TokenState.UNKNOWN: OutcomeUnknown,
            TokenState.USED: type(kept.outcome),
        }
        assert type(error) is wanted[before]

    def _closed(self, kept: Kept, state: TokenState, outcome: Any) -> None:
        kept.state, kept.outcome, kept.closed_at = state, outcome, self.time

    @rule(kept=tokens, owner=OWNERS)
    def redeem_for_something_else(self, kept: Kept | None, owner: str) -> None:
        if kept is None or owner != kept.owner or self.state(kept) is not TokenState.UNUSED:
            return
        with pytest.raises(KeyReused):
            self.purpose.redeem(kept.token, owner, lambda _: pytest.fail("it ran"), payload=-1)

    @rule(kept=tokens, owner=OWNERS)
    def cancel(self, kept: Kept | None, owner: str) -> None:
        if kept is None:
            return
        before = self.state(kept)
        done, error = attempted(lambda: self.purpose.cancel(kept.token, owner))
        if isinstance(error, TokenUnknown):
            assert self.forgotten(kept)
        elif owner != kept.owner:
            assert isinstance(error, TokenNotYours)
        elif error is not None:
            wanted = {TokenState.EXPIRED: TokenExpired, TokenState.USED: TokenUsed, TokenState.UNKNOWN: OutcomeUnknown}
            assert type(error) is wanted[before]
        else:
            assert done is (before is TokenState.UNUSED)
            assert before in (TokenState.UNUSED, TokenState.CANCELLED)
            if done:
                self._closed(kept, TokenState.CANCELLED, None)

    @rule(kept=tokens, owner=OWNERS)
    def look(self, kept: Kept | None, owner: str) -> None:
        if kept is None:
            return
        try:
            view = self.purpose.status(kept.token, owner)
        except TokenUnknown:
            assert self.forgotten(kept)
        except TokenNotYours:
            assert owner != kept.owner
        else:
            assert view.state is self.state(kept)
            assert view.payload == kept.payload
            if isinstance(kept.outcome, str):
                assert view.outcome == kept.outcome

    @rule()
    def expire(self) -> None:
        for view in self.purpose.expire():
            assert view.state is TokenState.EXPIRED
            self.gone[view.key.value] += 1

    @rule()
    def sweep(self) -> None:
        self.once.store.sweep(1000)

    @rule(kept=tokens)
    def issue_amid_a_redemption_that_fails(self, kept: Kept | None) -> None:
        """What is being redeemed does not count; once it failed it can be redeemed again, and does."""
        if kept is None or self.state(kept) is not TokenState.UNUSED or kept.failures > RETRIES:
            return
        others = [one for one in self.all if one.owner == kept.owner and self.state(one) is TokenState.UNUSED]
        if len(others) > MOST:
            return  # such a redemption has left one more than allowed

        def call(_: int) -> None:
            made = self.purpose.issue(kept.owner, len(self.all))
            self.all.append(Kept(made.token, kept.owner, len(self.all), self.time + TTL))
            kept.runs.append("not now")
            raise NotNow("not now")

        with pytest.raises(NotNow):
            self.purpose.redeem(kept.token, kept.owner, call)
        kept.failures += 1

    @invariant()
    def each_runs_as_often_as_its_failures_allow(self) -> None:
        for kept in self.all:
            assert len(kept.runs) == kept.failures + (kept.outcome is not None or kept.state is TokenState.UNKNOWN)
            assert kept.runs.count("done") <= 1
        assert not self.gone or max(self.gone.values()) == 1, "the end of a token was told twice"


Confirmations.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestConfirmations = Confirmations.TestCase
