"""Redeeming inside the caller's transaction, many at once, and after a freeze or a crash."""

from __future__ import annotations

import asyncio
import secrets
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.instrument_benches import JOINING, connect, connect_async, sql_url
from umavez import AsyncOnce, CannotTell, ConfigurationError, Happened, InvalidKey, NotDeclared, NotHappened, Once
from umavez.core.flow import Read, Seen, Stale, Swapped
from umavez.core.policy import Policy
from umavez.core.protocol import Asking, Granted, Intent
from umavez.core.resolution import RecordChanged
from umavez.core.token import redeem
from umavez.errors import OutcomeUnknown, StoreUnavailable
from umavez.sql.connection import Sql
from umavez.stores import open_store
from umavez.testing import ManualClock
from umavez.tokens import AsyncTokens, TokenExpired, Tokens, TokenState, TokenUnknown

__all__ = ["sql_url"]
SERVERS = JOINING[1:]


@pytest.fixture
def once(sql_url: str) -> Any:
    with Once(sql_url, scope=f"joined-{secrets.token_hex(4)}") as engine:
        engine.migrate()
        yield engine


@pytest.fixture
def table(sql_url: str) -> str:
    name = f"rides_{secrets.token_hex(4)}"
    with_connection = connect(sql_url)
    Sql.on(with_connection).count(f"CREATE TABLE {name} (id VARCHAR(64))")
    with_connection.commit()
    with_connection.close()
    return name


def rides(url: str, table: str) -> int:
    connection = connect(url)
    try:
        return int(Sql.on(connection).rows(f"SELECT COUNT(*) FROM {table}")[0][0])
    finally:
        connection.close()


def test_token_and_effect_commit_together(once: Once, sql_url: str, table: str) -> None:
    tokens = Tokens(once, "confirm", unknown="rerun")
    issued = tokens.issue("ana", {"to": "home"})
    for expected in (False, True):
        connection = connect(sql_url)
        with tokens.redeeming(connection, issued.token, "ana") as attempt:
            assert attempt.replayed is expected
            if not attempt.replayed:
                assert attempt.progress == {"to": "home"}
                Sql.on(connection).count(f"INSERT INTO {table} VALUES (?)", ("ride-1",))
                attempt.succeed("ride-1")
            assert attempt.outcome == "ride-1"
        connection.commit()
        connection.close()
    assert rides(sql_url, table) == 1
    assert tokens.redeem(issued.token, "ana", pytest.fail).value == "ride-1"


def looked(url: str) -> Any:
    """A connection whose transaction has looked already, and sees things as they were then."""
    connection = connect(url)
    if url.startswith("postgresql"):
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    Sql.on(connection).rows("SELECT COUNT(*) FROM idempotency_records")
    return connection


@pytest.mark.parametrize("sql_url", SERVERS, indirect=True)
def test_a_transaction_from_before_a_token_was_issued_does_not_call_it_invalid(once: Once, sql_url: str) -> None:
    tokens = Tokens(once, "confirm", unknown="rerun")
    with closing(looked(sql_url)) as connection:
        token = tokens.issue("ana").token
        with pytest.raises(StoreUnavailable, match="run it again"), tokens.redeeming(connection, token, "ana"):
            pytest.fail("it ran")
        connection.rollback()
        for wrong, owner in ((token, "rui"), (secrets.token_hex(32), "ana")):
            with pytest.raises(TokenUnknown.__base__) as refused, tokens.redeeming(connection, wrong, owner):
                pytest.fail("it ran")
            assert str(refused.value) == TokenUnknown.sentence
            connection.rollback()
        with tokens.redeeming(connection, token, "ana") as attempt:
            assert not attempt.replayed
            attempt.succeed("ride")
        connection.commit()


@pytest.mark.parametrize("sql_url", SERVERS[1:], indirect=True)
def test_a_decision_in_a_transaction_is_about_what_stands_now(once: Once, sql_url: str) -> None:
    """Else it met the same stranger again and again, and said at last that the operation was in progress."""
    _cut(once)
    with closing(looked(sql_url)) as connection:
        seen = once.get("pay", "k")
        assert seen is not None
        once.release("pay", "k", by="rui", reason="never sent")
        _cut(once)
        with pytest.raises(RecordChanged):
            once.resolve("pay", "k", Happened(1), by="ana", reason="seen", expected=seen.stamp, connection=connection)
        once.resolve("pay", "k", Happened("paid"), by="ana", reason="seen at the bank", connection=connection)
        connection.commit()
    assert once.run("pay", key="k", call=pytest.fail, unknown="hold").value == "paid"


def _cut(once: Once) -> None:
    def cut() -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        once.run("pay", key="k", call=cut, unknown="hold")


def test_a_rolled_back_redemption_leaves_the_token_unused(once: Once, sql_url: str, table: str) -> None:
    tokens = Tokens(once, "confirm", unknown="rerun")
    issued = tokens.issue("ana")
    connection = connect(sql_url)
    with pytest.raises(RuntimeError), tokens.redeeming(connection, issued.token, "ana"):
        Sql.on(connection).count(f"INSERT INTO {table} VALUES (?)", ("ride-1",))
        raise RuntimeError("no driver")
    connection.rollback()
    connection.close()
    assert tokens.status(issued.token, "ana").state is TokenState.UNUSED
    assert rides(sql_url, table) == 0


def test_joined_redemptions_at_once_create_one_ride(once: Once, sql_url: str, table: str) -> None:
    tokens = Tokens(once, "confirm", unknown="rerun")
    issued = tokens.issue("ana")
    start, values = threading.Barrier(8), []

    def confirm() -> None:
        start.wait(30)
        connection = connect(sql_url)
        try:
            with tokens.redeeming(connection, issued.token, "ana") as attempt:
                if not attempt.replayed:
                    Sql.on(connection).count(f"INSERT INTO {table} VALUES (?)", ("ride-1",))
                    attempt.succeed("ride-1")
                values.append(attempt.outcome)
            connection.commit()
        finally:
            connection.close()

    threads = [threading.Thread(target=confirm) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert values == ["ride-1"] * 8
    assert rides(sql_url, table) == 1


def test_a_token_is_redeemed_in_the_transaction_of_a_task(sql_url: str, once: Once, table: str) -> None:
    async def confirm() -> Any:
        async with AsyncOnce(sql_url, scope=once.scope) as engine:
            tokens = AsyncTokens(engine, "confirm", unknown="rerun")
            issued = await tokens.issue("ana", 7)
            connection = await connect_async(sql_url)
            async with tokens.redeeming(connection, issued.token, "ana") as attempt:
                await attempt.succeed(attempt.progress * 2)
            await connection.commit()
            await asyncio.gather(*filter(None, [connection.close()]))
            return await tokens.redeem(issued.token, "ana", None)  # type: ignore[arg-type]  # never called

    outcome = asyncio.run(confirm())
    assert (outcome.value, outcome.replayed) == (14, True)


def test_a_thousand_threads_redeem_one_token_once(tmp_path: Path) -> None:
    effects: list[Any] = []
    with Once(f"sqlite:///{tmp_path / 'many.db'}", scope="rides") as once:
        tokens = Tokens(once, "confirm", unknown="rerun", wait=120.0)
        issued = tokens.issue("ana", "home")
        start, values = threading.Barrier(1000), []

        def confirm() -> None:
            start.wait(60)
            values.append(tokens.redeem(issued.token, "ana", lambda payload: effects.append(payload) or len(effects)))

        threads = [threading.Thread(target=confirm) for _ in range(1000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert len(effects) == 1
    assert [outcome.value for outcome in values] == [1] * 1000
    assert sum(not outcome.replayed for outcome in values) == 1


def test_thirty_two_tasks_redeem_each_of_thirty_two_tokens_once(tmp_path: Path) -> None:
    async def confirm() -> list[int]:
        effects: list[str] = []

        async def ride(payload: str) -> str:
            await asyncio.sleep(0)
            effects.append(payload)
            return payload

        async with AsyncOnce(f"sqlite:///{tmp_path / 'tasks.db'}", scope="rides") as once:
            tokens = AsyncTokens(once, "confirm", unknown="rerun", wait=60.0)
            issued = [await tokens.issue(f"p{n}", f"r{n}") for n in range(32)]
            calls = (tokens.redeem(i.token, f"p{n}", ride) for n, i in enumerate(issued) for _ in range(32))
            outcomes = await asyncio.gather(*calls)
        assert len(outcomes) == 1024
        return [effects.count(f"r{n}") for n in range(32)]

    assert asyncio.run(confirm()) == [1] * 32


def intent_of(tokens: Tokens, token: str) -> Intent:
    return Intent(tokens.status(token, "ana").key, None, "ana")


def test_a_process_frozen_between_its_look_and_its_claim_redeems_nothing_after_the_time_passed() -> None:
    clock = ManualClock()
    with Once(open_store("memory:", clock=clock), scope="rides") as once:
        tokens = Tokens(once, "confirm", unknown="rerun")
        issued = tokens.issue("ana")
        flow = redeem(intent_of(tokens, issued.token), Policy("rerun"), "frozen")
        looked = next(flow)
        assert isinstance(looked, Read)
        claiming = flow.send(once.store.read(looked.key))
        clock.advance(301)
        back = flow.send(once.store.swap(claiming.expected, claiming.draft))  # type: ignore[union-attr]  # a Swap
        with pytest.raises(TokenExpired):
            flow.send(once.store.swap(back.expected, back.draft))  # type: ignore[union-attr]  # a Swap
        assert tokens.status(issued.token, "ana").state is TokenState.EXPIRED


@pytest.mark.parametrize(("offset", "state"), [(-1, "unused"), (0, "expired"), (1, "expired")])
def test_expiry_is_exact_to_the_millisecond(offset: int, state: str) -> None:
    clock = ManualClock()
    with Once(open_store("memory:", clock=clock), scope="rides") as once:
        tokens = Tokens(once, "confirm", unknown="rerun")
        issued = tokens.issue("ana")
        clock.offset += 300_000 + offset
        assert tokens.status(issued.token, "ana").state == state


@pytest.mark.parametrize(("policy", "verdict"), [(Policy("rerun"), Granted), (Policy("hold"), Granted)])
def test_a_claim_whose_answer_was_lost_is_recognised(policy: Policy, verdict: type) -> None:
    with Once("memory:", scope="rides") as once:
        tokens = Tokens(once, "confirm", unknown="rerun")
        intent = intent_of(tokens, tokens.issue("ana").token)
        flow = redeem(intent, policy, "lost")
        command = flow.send(once.store.read(next(flow).key))  # type: ignore[union-attr]  # a Read
        assert isinstance(once.store.swap(command.expected, command.draft), Swapped)  # type: ignore[union-attr]
        again = redeem(intent, policy, "lost")
        next(again)
        with pytest.raises(StopIteration) as done:
            again.send(once.store.read(intent.key))
        assert isinstance(done.value.value, verdict)
        assert done.value.value.claim.draft.stamp == "lost"


def test_a_lost_claim_of_an_operation_that_asks_is_asked_about_before_it_runs() -> None:
    with Once("memory:", scope="rides") as once:
        tokens = Tokens(once, "confirm", unknown="rerun")
        intent = intent_of(tokens, tokens.issue("ana").token)
        policy = Policy(lambda _: NotHappened())
        flow = redeem(intent, policy, "lost")
        command = flow.send(once.store.read(next(flow).key))  # type: ignore[union-attr]  # a Read
        once.store.swap(command.expected, command.draft)  # type: ignore[union-attr]  # a Swap
        again = redeem(intent, policy, "lost")
        next(again)
        with pytest.raises(StopIteration) as done:
            again.send(once.store.read(intent.key))
        assert isinstance(done.value.value, Asking)


def test_a_redemption_whose_holder_died_is_asked_about_with_the_payload() -> None:
    clock, asked = ManualClock(), []

    def ask(question: Any) -> Any:
        asked.append(question.progress)
        return NotHappened() if len(asked) > 1 else CannotTell("closed")

    with Once(open_store("memory:", clock=clock), scope="rides") as once:
        tokens = Tokens(once, "confirm", unknown=ask)
        issued = tokens.issue("ana", {"to": "home"})
        with pytest.raises(KeyboardInterrupt):
            tokens.redeem(issued.token, "ana", lambda _: (x for x in ()).throw(KeyboardInterrupt))
        assert tokens.status(issued.token, "ana").state is TokenState.UNKNOWN
        clock.advance(1000)
        with pytest.raises(OutcomeUnknown):
            tokens.redeem(issued.token, "ana", lambda _: "ride")
        outcome = tokens.redeem(issued.token, "ana", lambda payload: ("ride", payload))
        assert outcome.value == ("ride", {"to": "home"}), "a redemption that began in time may end after it"
        assert asked == [{"to": "home"}] * 2


def test_a_token_swept_after_its_time_is_unknown_and_runs_nothing() -> None:
    clock = ManualClock()
    with Once(open_store("memory:", clock=clock), scope="rides") as once:
        tokens = Tokens(once, "confirm", unknown="rerun", linger=60)
        issued = tokens.issue("ana")
        clock.advance(359)
        assert once.sweep() == 0
        clock.advance(2)
        assert once.sweep() == 1
        with pytest.raises(TokenUnknown):
            tokens.redeem(issued.token, "ana", pytest.fail)


def test_a_record_swept_while_a_redemption_goes_on_is_not_made_anew() -> None:
    with Once("memory:", scope="rides") as once:
        tokens = Tokens(once, "confirm", unknown="rerun")
        intent = intent_of(tokens, tokens.issue("ana").token)
        flow = redeem(intent, Policy("rerun"), "late")
        flow.send(once.store.read(next(flow).key))  # type: ignore[union-attr]  # a Read
        with pytest.raises(TokenUnknown):
            flow.send(Stale(None, 0))
        assert isinstance(once.store.read(intent.key), Seen)


def test_an_owner_that_never_redeems_does_not_make_the_table_grow() -> None:
    clock = ManualClock()
    with Once(open_store("memory:", clock=clock), scope="rides") as once:
        tokens = Tokens(once, "confirm", unknown="rerun")
        for _ in range(50):
            tokens.issue("ana")
            clock.advance(301)
        assert len(once.find()) <= 2


@pytest.mark.parametrize("ttl", [0, 9.9, 86_401, -1])
def test_a_ttl_out_of_bounds_is_refused(ttl: float) -> None:
    with Once("memory:", scope="rides") as once:
        tokens = Tokens(once, "confirm", unknown="rerun")
        with pytest.raises(ConfigurationError):
            tokens.issue("ana", ttl=ttl)


def test_a_purpose_that_does_not_say_what_unknown_means_is_refused() -> None:
    with Once("memory:", scope="rides") as once, pytest.raises(NotDeclared):
        Tokens(once, "confirm")


@pytest.mark.parametrize("owner", ["", "x" * 256, "a\0b"])
def test_an_owner_that_cannot_be_kept_is_refused(owner: str) -> None:
    with Once("memory:", scope="rides") as once:
        tokens = Tokens(once, "confirm", unknown="rerun")
        with pytest.raises(InvalidKey):
            tokens.issue(owner)


def test_what_a_plain_function_did_under_tasks_has_redeemed_the_token() -> None:
    async def main() -> None:
        tokens = AsyncTokens(AsyncOnce("memory:", scope="rides"), "confirm", unknown="rerun")
        issued = await tokens.issue("ana", {"to": "home"})
        taken: list[Any] = []
        for replayed in (False, True):
            outcome = await tokens.redeem(issued.token, "ana", lambda ride: taken.append(ride) or "ride-1")
            assert outcome[:2] == ("ride-1", replayed)
        assert taken == [{"to": "home"}]
        with pytest.raises(ConfigurationError, match="for `with`"):
            tokens.attempt(issued.token, "ana")(main)

    asyncio.run(main())
