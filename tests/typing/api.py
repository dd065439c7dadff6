"""What type checkers make of the public surface. Read by mypy and pyright, never run.

A line that must be refused carries both checkers' marks; one that is no longer refused fails, since the mark is then
of no use.
"""

from datetime import timedelta
from typing import assert_type

from umavez import AsyncAttempt, AsyncOnce, Attempt, Once, Outcome, current_attempt

once = Once("memory:", scope="shop")
tasks = AsyncOnce("memory:", scope="shop")


@once.operation("charge", key=lambda order: order, unknown="rerun", lease=timedelta(seconds=5), wait=1.5)
def charge(order: str, amount: int = 1) -> list[int]:
    return [amount]


assert_type(charge("A", 10), list[int])
assert_type(charge.once("A", amount=10), Outcome[list[int]])
assert_type(charge.key_of("A"), str)
charge("A", "ten")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
charge("A", 1, 2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
charge("A", nonsense=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
charge.once()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


class Till:
    @once.operation("pay", key=lambda order: order, unknown="hold")
    def pay(self, order: int) -> float:
        return order / 2


assert_type(Till().pay(4), float)
assert_type(Till().pay.once(4), Outcome[float])
assert_type(Till().pay.key_of(4), str)
Till().pay("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@tasks.operation("charge", key=lambda order: order, unknown="rerun")
async def charge_later(order: str) -> int:
    return 1


async def awaited() -> None:
    assert_type(await charge_later("A"), int)
    assert_type(await charge_later.once("A"), Outcome[int])
    async with tasks.attempt("charge", key="A") as attempt:
        assert_type(attempt, AsyncAttempt)
    await charge_later(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


with once.attempt("charge", key="A", unknown="hold") as block:
    assert_type(block, Attempt)
assert_type(once.run("charge", key="A", call=lambda: 7).value, int)
assert_type(current_attempt(), Attempt | AsyncAttempt)
current_attempt().downstream_key("bank").upper()

once.operation("charge", key=str)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
once.operation("charge", key=str, unknown="never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
once.operation("charge", key=str, unknown="rerun", lease="soon")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
once.operation("charge", key=str, unknwon="rerun")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
once.run("charge", key="A", call=lambda: 7, retries=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
