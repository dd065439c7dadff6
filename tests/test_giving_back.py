"""A claim whose caller was cancelled before it heard of it: the code never began, so nobody has to decide anything."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from tests.instrument_benches import store_url
from umavez import AsyncOnce, CannotTell, OperationInProgress, OutcomeUnknown
from umavez.core.flow import Stale, Swapped
from umavez.core.protocol import Intent
from umavez.core.record import Draft, Query, Record, Status
from umavez.leases import AsyncLeases
from umavez.stores import open_async_store
from umavez.stores.memory import AsyncMemoryStore
from umavez.testing import ManualClock
from umavez.tokens import AsyncTokens, TokenState

__all__ = ["store_url"]
SEED = 1902


def in_a_loop(test: Callable[..., Any]) -> Callable[..., None]:
    """The test as a function that runs it in a loop of its own."""

    @wraps(test)
    def run(*given: Any, **named: Any) -> None:
        asyncio.run(test(*given, **named))

    return run


class Slow(AsyncMemoryStore):
    """Its swaps are done at once, and after so many of them not answered until the test says so."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.answers = asyncio.Event()
        self.answers.set()
        self.answered = 0

    async def swap(self, expected: str | None, draft: Draft) -> Swapped | Stale:
        reply = await super().swap(expected, draft)
        self.answered -= 1
        if self.answered < 0:
            await self.answers.wait()
        return reply


async def cut_off(store: Slow, call: Any, answered: int = 0) -> None:
    """Cancel `call` when its next swap but `answered` is done, before the answer."""
    store.answers.clear()
    store.answered = answered
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    store.answers.set()
    await asyncio.sleep(0.01)


async def record(once: AsyncOnce, key: str = "k") -> Record:
    found = await once.get("charge", key)
    assert found is not None
    return found


async def charged() -> str:
    return "charged"


@in_a_loop
async def test_a_first_claim_is_free_again_and_counts_no_attempt() -> None:
    store = Slow(ManualClock())
    async with AsyncOnce(store, scope="shop") as once:
        for unknown in ("hold", "rerun", lambda _: CannotTell("?")):
            key = secrets.token_hex(4)
            await cut_off(store, once.run("charge", key=key, call=charged, unknown=unknown))

            freed = await record(once, key)
            assert (freed.status, freed.attempt, freed.error) == (Status.FAILED, 0, "cancelled before its code began")
            outcome = await once.run("charge", key=key, call=charged, unknown=unknown, max_retries=0)
            assert (outcome.value, outcome.attempt) == ("charged", 1)


@in_a_loop
async def test_a_retry_that_never_began_is_not_counted_either() -> None:
    store = Slow(ManualClock())

    async def broken() -> str:
        raise ValueError("no money")

    async with AsyncOnce(store, scope="shop") as once:
        options: dict[str, Any] = {"unknown": "hold", "free": ValueError, "max_retries": 1}
        with pytest.raises(ValueError, match="no money"):
            await once.run("charge", key="k", call=broken, **options)
        await cut_off(store, once.run("charge", key="k", call=charged, **options), answered=1)

        freed = await record(once)
        assert (freed.status, freed.attempt, freed.error) == (Status.FAILED, 1, "ValueError: no money")
        assert (await once.run("charge", key="k", call=charged, **options)).attempt == 2


@in_a_loop
async def test_a_claim_to_ask_about_an_earlier_attempt_frees_nothing() -> None:
    clock = ManualClock()
    store, asked = Slow(clock), []

    def ask(_: object) -> CannotTell:
        asked.append(1)
        return CannotTell("no idea")

    async with AsyncOnce(store, scope="shop") as once:
        gone = await store.swap(None, claim_of(once, "hold"))
        assert isinstance(gone, Swapped)
        clock.advance(31_000)
        await cut_off(store, once.run("charge", key="k", call=charged, unknown=ask), answered=1)

        assert (await record(once)).status is Status.PENDING
        clock.advance(31_000)
        with pytest.raises(OutcomeUnknown):
            await once.run("charge", key="k", call=charged, unknown=ask)
        assert asked, "nobody was asked about the first attempt, which may have charged"


@in_a_loop
async def test_a_doubt_that_was_found_stays_one() -> None:
    clock = ManualClock()
    store = Slow(clock)
    async with AsyncOnce(store, scope="shop") as once:
        await store.swap(None, claim_of(once, "hold"))
        clock.advance(31_000)
        await cut_off(store, once.run("charge", key="k", call=charged, unknown="hold"), answered=1)

        assert (await record(once)).status is Status.UNKNOWN


def claim_of(once: AsyncOnce, unknown: Any) -> Draft:
    """The claim of a process that is gone since."""
    plan = once.plans.of("charge", {"unknown": unknown})
    return Draft(plan.key("k"), "another process", Status.PENDING, claims=True, lease=30_000)


@in_a_loop
async def test_a_claim_within_a_transaction_is_its_callers_to_roll_back() -> None:
    within = Slow(ManualClock())
    async with AsyncOnce(AsyncMemoryStore(ManualClock()), scope="shop") as once:
        plan = once.plans.of("charge", {"unknown": "hold"})
        await cut_off(within, once._admission.enter(plan, Intent(plan.key("k")), within))

        assert (await within.read(plan.key("k"))).current is not None
        assert not once._admission.returns._afterwards._tasks


@in_a_loop
async def test_a_lease_is_free_again() -> None:
    store = Slow(ManualClock())
    async with AsyncOnce(store, scope="shop") as once:
        leases = AsyncLeases(once)
        await cut_off(store, leases.acquire("report", lease=600))
        held = await leases.try_acquire("report")
        assert held is not None
        await cut_off(store, leases.acquire("report"))
        await held.check()


@in_a_loop
async def test_a_token_can_be_redeemed_again() -> None:
    store = Slow(ManualClock())

    async def ride(_: object) -> str:
        return "ride-1"

    async with AsyncOnce(store, scope="shop") as once:
        tokens = AsyncTokens(once, "confirm_ride", unknown="hold", wait=0, max_retries=0)
        issued = await tokens.issue("ana", {"to": "home"})
        await cut_off(store, tokens.redeem(issued.token, "ana", ride))

        assert (await tokens.status(issued.token, "ana")).state is TokenState.UNUSED
        assert (await tokens.redeem(issued.token, "ana", ride)).value == "ride-1"


@in_a_loop
async def test_a_store_that_is_away_meanwhile_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Slow(ManualClock())
    reading, tries = store.read, Counter[str]()

    async def read(key: Any) -> Any:
        tries["read"] += 1
        if tries["read"] < 3:
            raise OperationInProgress(key, 1.0)
        return await reading(key)

    monkeypatch.setattr(store, "read", read)
    monkeypatch.setattr("umavez._async.giving_back.LOOKS", (0.0, 0.001, 0.001, 0.001))
    async with AsyncOnce(store, scope="shop") as once:
        await cut_off(store, once.run("charge", key="k", call=charged, unknown="hold"))
        await asyncio.sleep(0.05)
        monkeypatch.undo()
        assert (await record(once)).status is Status.FAILED


@in_a_loop
async def test_what_was_left_behind_is_bounded_and_ends_with_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umavez.concurrency.unbroken.MOST", 2)
    store = Slow(ManualClock())
    once = AsyncOnce(store, scope="shop")
    store.answers.clear()
    calls = [asyncio.ensure_future(once.run("charge", key=f"{n}", call=charged, unknown="hold")) for n in range(5)]
    await asyncio.sleep(0.01)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    await asyncio.sleep(0)

    assert len(once._admission.returns._afterwards._tasks) == 2
    before = asyncio.all_tasks()
    await once.close()
    assert len(before) - len(asyncio.all_tasks()) == 2


def test_no_call_that_is_cancelled_before_its_code_began_leaves_its_key_taken(store_url: str) -> None:
    scope, begun = f"cut-{secrets.token_hex(4)}", set[str]()

    async def effect(key: str) -> str:
        begun.add(key)
        return key

    async def crowd() -> list[Record]:
        random_ = random.Random(SEED)
        async with AsyncOnce(open_async_store(store_url), scope=scope) as once:
            await once.store.migrate()
            names = [f"k{number}" for number in range(60)]
            calls = [
                asyncio.ensure_future(
                    once.run("charge", key=name, call=lambda name=name: effect(name), unknown="hold", lease=600)
                )
                for name in names
            ]
            for call in random_.sample(calls, len(calls)):
                for _ in range(random_.randrange(4)):
                    await asyncio.sleep(0)
                call.cancel()
            await asyncio.wait(calls)
            taken: list[Record] = []
            for _ in range(60):
                pending = await once.store.find(
                    Query(scope=scope, operation="charge", status=Status.PENDING, limit=100)
                )
                taken = [one for one in pending if one.key.value not in begun]
                if not taken:
                    return taken
                await asyncio.sleep(0.1)
            return taken

    assert asyncio.run(crowd()) == [], f"seed {SEED}"
