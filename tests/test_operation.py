"""The front door: what a declared operation is, for code that looks at it and for code that runs inside it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from typing import Any

import pytest
from pydantic import BaseModel, Field

from umavez import (
    AsyncOnce,
    ConfigurationError,
    KeyReused,
    NoAttempt,
    Once,
    ReplayIgnored,
    current_attempt,
)


class Order(BaseModel):
    """A pydantic model with an alias and with what it does not know."""

    model_config = {"extra": "allow"}
    id: int
    amount: int = Field(alias="quantia")


@pytest.fixture
def once() -> Once:
    return Once("memory:", scope="shop")


def test_an_operation_is_a_function_with_its_own_name_signature_and_kind(once: Once) -> None:
    tasks = AsyncOnce("memory:", scope="shop")

    @once.operation("charge", key=lambda order: order, unknown="rerun")
    def charge(order: str, amount: int = 1) -> int:
        """Charge an order."""
        return amount

    @tasks.operation("charge", key=lambda order: order, unknown="rerun")
    async def charge_later(order: str) -> None: ...

    assert inspect.isfunction(charge)
    assert (charge.__name__, charge.__doc__) == ("charge", "Charge an order.")
    assert list(inspect.signature(charge).parameters) == ["order", "amount"]
    assert not inspect.iscoroutinefunction(charge)
    assert inspect.iscoroutinefunction(charge_later)
    assert inspect.iscoroutinefunction(charge_later.once)


def test_methods_have_once_and_key_of_and_self_is_no_part_of_their_meaning(once: Once) -> None:
    class Till:
        def __init__(self, rate: int) -> None:
            self.rate = rate

        @once.operation("pay", key=lambda order: order, unknown="rerun")
        def pay(self, order: int) -> int:
            return order * self.rate

        @staticmethod
        @once.operation("close", key=lambda day: day, unknown="rerun")
        def close(day: str) -> str:
            return day

    assert Till(2).pay(4) == 8
    assert Till(3).pay.once(4).replayed
    assert Till(3).pay.key_of(5) == "5"
    assert list(inspect.signature(Till(1).pay).parameters) == ["order"]
    assert Till.pay(Till(5), 4) == 8
    assert Till.close("monday") == "monday"


def test_only_a_methods_own_instance_is_left_out_of_what_a_call_means(once: Once) -> None:
    @once.operation("note", key=lambda key, **_: key, unknown="rerun")
    def note(key: str, self: str) -> str:  # a plain function may call an argument so
        return self

    note("k", "one")

    with pytest.raises(KeyReused):
        note("k", "another")


async def coroutine(order: str) -> None: ...


def plain(order: str) -> None: ...


def generator(order: str) -> Iterator[int]:
    yield 1


async def async_generator(order: str) -> AsyncIterator[int]:
    yield 1


class Awaited:
    async def __call__(self, order: str) -> None: ...


def declare(engine: Any, function: Any) -> None:
    engine.operation("o", key=lambda order: order, unknown="rerun")(function)


@pytest.mark.parametrize(
    "function", [coroutine, functools.partial(coroutine), Awaited()], ids=["function", "partial", "object"]
)
def test_a_coroutine_function_is_for_tasks_only(once: Once, function: Any) -> None:
    declare(AsyncOnce("memory:", scope="shop"), function)

    with pytest.raises(ConfigurationError, match="AsyncOnce"):
        declare(once, function)


def test_a_plain_function_is_for_threads_only(once: Once) -> None:
    declare(once, plain)

    with pytest.raises(ConfigurationError, match="async def"):
        declare(AsyncOnce("memory:", scope="shop"), plain)


@pytest.mark.parametrize("engine", [Once, AsyncOnce])
@pytest.mark.parametrize(
    ("function", "said"), [(generator, "generator"), (async_generator, "generator"), (7, "not a int")]
)
def test_what_has_no_one_outcome_is_refused(engine: Any, function: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        declare(engine("memory:", scope="shop"), function)


def given(**options: Any) -> dict[str, Any]:
    return {"key": lambda order: order, "unknown": "rerun", **options}


@pytest.mark.parametrize("option", ["unknown", "replay", "key", "fingerprint"])
@pytest.mark.parametrize(
    "function", [coroutine, functools.partial(coroutine), Awaited()], ids=["def", "partial", "object"]
)
def test_an_option_whose_coroutine_nobody_would_await_is_refused(once: Once, option: str, function: Any) -> None:
    """Taken for an answer, it would be what a replay returns, and no outcome would ever be known."""
    with pytest.raises(ConfigurationError, match=f"{option}="):
        once.operation("o", **given(**{option: function}))(plain)
    if option in ("unknown", "replay"):
        with pytest.raises(ConfigurationError, match=f"{option}= is a coroutine function"):
            once.run("o", key="1", call=lambda: 1, **{"unknown": "rerun", option: function})
        AsyncOnce("memory:", scope="shop").operation("o", **given(**{option: function}))(coroutine)


@pytest.mark.parametrize("engine", [Once, AsyncOnce])
def test_a_reference_is_awaited_by_nobody(engine: Any) -> None:
    with pytest.raises(ConfigurationError, match="reference= is a coroutine function"):
        engine("memory:", scope="shop").operation("o", **given(replay=plain, reference=coroutine))


def test_an_option_that_does_not_exist_is_named(once: Once) -> None:
    with pytest.raises(ConfigurationError, match="'unknwon'; known are codec, final"):
        once.operation("o", key=str, unknwon="rerun")  # type: ignore[call-arg]


def test_code_inside_an_operation_finds_its_attempt() -> None:
    def helper() -> tuple[str, str]:
        attempt = current_attempt()
        return attempt.key.value, attempt.downstream_key("bank")

    async def tasks() -> tuple[str, str]:
        async with AsyncOnce("memory:", scope="shop") as once:

            @once.operation("charge", key=lambda order: order, unknown="rerun")
            async def charge(order: str) -> tuple[str, str]:
                return helper()

            return await charge("A")

    threads = Once("memory:", scope="shop").run("charge", key="A", call=helper, unknown="rerun").value

    assert threads == asyncio.run(tasks())
    assert threads[0] == "A"
    with pytest.raises(NoAttempt, match="from inside"):
        current_attempt()


def test_a_replayed_block_that_never_looked_is_loud(once: Once) -> None:
    with once.attempt("charge", key="A", unknown="rerun"):
        pass

    with pytest.raises(ReplayIgnored, match=r"if attempt\.replayed"), once.attempt("charge", key="A", unknown="rerun"):
        pass
    with once.attempt("charge", key="A", unknown="rerun") as attempt:
        assert attempt.replayed
    with pytest.raises(LookupError), once.attempt("charge", key="A", unknown="rerun"):
        raise LookupError("the block's own error is not hidden")


@pytest.mark.parametrize("engine", [Once, AsyncOnce])
@pytest.mark.parametrize("block", ["attempt", "joined"])
def test_a_block_is_no_decorator(engine: Any, block: str) -> None:
    """Nobody would look whether it was replayed: the function would run again, and only then be told."""
    made = engine("memory:", scope="shop")
    arguments = ("charge",) if block == "attempt" else (None, "charge")
    with pytest.raises(ConfigurationError, match=r"for `with`; declare plain by operation\(\)"):
        getattr(made, block)(*arguments, key="A", unknown="hold")(plain)


def test_a_replayed_block_of_tasks_that_never_looked_is_loud() -> None:
    async def main() -> None:
        async with AsyncOnce("memory:", scope="shop") as once:
            async with once.attempt("charge", key="A", unknown="rerun"):
                pass
            with pytest.raises(ReplayIgnored):
                async with once.attempt("charge", key="A", unknown="rerun"):
                    pass

    asyncio.run(main())


def test_a_joined_block_that_never_looked_takes_its_effect_back(tmp_path: Any) -> None:
    once = Once(f"sqlite:///{tmp_path}/once.db?journal=delete", scope="shop")
    once.migrate()
    with closing(sqlite3.connect(tmp_path / "once.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE effects (key TEXT)")

        def submit() -> None:
            connection.execute("BEGIN IMMEDIATE")
            try:
                with once.joined(connection, "submit", key="A"):
                    connection.execute("INSERT INTO effects VALUES ('A')")
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise

        submit()
        with pytest.raises(ReplayIgnored):
            submit()

        assert connection.execute("SELECT COUNT(*) FROM effects").fetchone() == (1,)


def test_pydantic_models_go_in_and_come_back(once: Once) -> None:
    @once.operation("place", key=lambda order: order.id, unknown="rerun")
    def place(order: Order) -> Order:
        return order

    first = place(Order(id=1, quantia=3, loja="centro"))
    again = place(Order(id=1, quantia=3, loja="centro"))

    assert again == first == Order(id=1, quantia=3, loja="centro")
    assert again.model_fields_set == first.model_fields_set
    with pytest.raises(KeyReused):
        place(Order(id=1, quantia=4, loja="centro"))
