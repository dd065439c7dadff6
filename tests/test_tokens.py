"""Confirmation tokens: their laws on every store, and what only one store can show."""

from __future__ import annotations

import pytest

from tests.instrument_benches import async_bench, async_store, bench, store_url, sync_store
from umavez import Once, StoreUnavailable
from umavez.core.flow import Seen, Stale, Swapped
from umavez.core.key import Key
from umavez.core.record import Draft, Query, Record
from umavez.core.token import ON_ITS_WAY, TokenState
from umavez.core.token_view import LOOK
from umavez.stores.memory import MemoryStore
from umavez.testing import ManualClock
from umavez.testing.instruments import InstrumentBench
from umavez.testing.laws.instruments import tokens as token_laws
from umavez.tokens import Tokens, TooManyTokens

__all__ = ["async_bench", "async_store", "bench", "store_url", "sync_store"]


@pytest.mark.parametrize("law", token_laws.LAWS, ids=lambda law: law.__name__)
def test_tokens_obey(law: token_laws.Law, bench: InstrumentBench) -> None:
    law(bench)


@pytest.mark.parametrize("law", token_laws.LAWS, ids=lambda law: law.__name__)
def test_async_tokens_obey(law: token_laws.Law, async_bench: InstrumentBench) -> None:
    law(async_bench)


def test_issuing_does_not_look_at_all_the_owner_has_every_time() -> None:
    """A look grows with the owner's tokens; one in the shortest time to redeem is enough."""
    looks = 0

    class Counting(MemoryStore):
        def find(self, query: Query) -> list[Record]:
            nonlocal looks
            looks += 1
            return super().find(query)

    clock = ManualClock()
    with Once(Counting(clock), scope="s") as once:
        tokens = Tokens(once, "confirm", unknown="rerun", ttl=60)
        for _ in range(200):
            tokens.issue("ana")
        assert looks == 1
        clock.advance(61)
        tokens.issue("ana")
        assert looks == 2
        assert len([view for view in tokens.find("ana", limit=1000) if view.state is TokenState.UNUSED]) == 1


class Weighing(MemoryStore):
    """Counts the records that it is asked for."""

    records = 0

    def find(self, query: Query) -> list[Record]:
        found = super().find(query)
        # What the store has to look through: the owner's records, whatever else is asked.
        self.records += len([one for one in self._records.values() if one.process_instance == query.process_instance])
        return found

    def read(self, key: Key) -> Seen:
        self.records += 1
        return super().read(key)


def test_what_a_limited_owner_costs_does_not_grow_with_what_it_has_used() -> None:
    """With max_live=3 at most the ledger and three tokens are read, after 10 tokens as after 300."""
    store = Weighing(ManualClock())
    with Once(store, scope="s") as once:
        tokens = Tokens(once, "confirm", unknown="rerun", max_live=3)
        costs = []
        for number in range(300):
            before = store.records
            token = tokens.issue("ana").token
            costs.append(store.records - before)
            if number % 2:
                tokens.redeem(token, "ana", lambda _: "ride")
            else:
                tokens.cancel(token, "ana")
        assert max(costs) <= 4, f"after {costs.index(max(costs))} tokens: {max(costs)} records"


def test_closed_tokens_hide_no_live_one_from_the_limit() -> None:
    clock = ManualClock()
    with Once(MemoryStore(clock), scope="s") as once:
        tokens = Tokens(once, "confirm", unknown="rerun", max_live=1)
        for _ in range(LOOK + 1):
            tokens.cancel(tokens.issue("ana").token, "ana")
            clock.advance(0.001)
        tokens.issue("ana")
        with pytest.raises(TooManyTokens):
            tokens.issue("ana")


def test_a_token_whose_redemption_failed_counts_again() -> None:
    """Else an owner could hold ever more of them, by asking for one amid each redemption that fails."""
    with Once(MemoryStore(ManualClock()), scope="s") as once:
        tokens = Tokens(once, "confirm", unknown="rerun", max_live=2)

        def fail(_: object) -> None:
            tokens.issue("ana")
            raise ConnectionResetError

        token = tokens.issue("ana").token
        with pytest.raises(ConnectionResetError):
            tokens.redeem(token, "ana", fail)
        assert [view.state for view in tokens.find("ana")] == [TokenState.UNUSED] * 2
        with pytest.raises(TooManyTokens):
            tokens.issue("ana")


def test_a_place_that_was_taken_for_a_token_that_never_came_is_free_again() -> None:
    clock = ManualClock()

    class Failing(MemoryStore):
        broken = False

        def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
            if self.broken and draft.key.operation == "confirm":
                raise StoreUnavailable("nothing was written")
            return super().swap(expected, draft)

    store = Failing(clock)
    with Once(store, scope="s") as once:
        tokens = Tokens(once, "confirm", unknown="rerun", max_live=1)
        store.broken = True
        with pytest.raises(StoreUnavailable):
            tokens.issue("ana")
        store.broken = False
        with pytest.raises(TooManyTokens):
            tokens.issue("ana")
        clock.advance(ON_ITS_WAY / 1000 + 1)
        tokens.issue("ana")


def test_expiring_finds_every_expired_token_a_limit_at_a_time() -> None:
    clock = ManualClock()
    with Once(MemoryStore(clock), scope="s") as once:
        tokens = Tokens(once, "confirm", unknown="rerun")
        for number in range(1200):
            tokens.issue(f"owner-{number}", ttl=60)
        clock.advance(61)
        assert [len(tokens.expire(limit=1000)) for _ in range(3)] == [1000, 200, 0]


def test_expired_tokens_behind_a_thousand_live_ones_are_found() -> None:
    clock = ManualClock()
    with Once(MemoryStore(clock), scope="s") as once:
        tokens = Tokens(once, "confirm", unknown="rerun")
        for number in range(1000):
            tokens.issue(f"owner-{number}", ttl=3600)
        for number in range(10):
            tokens.issue(f"late-{number}", ttl=60)
        clock.advance(61)
        assert len(tokens.expire()) == 10
