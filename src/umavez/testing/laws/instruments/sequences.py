"""The laws of numbers. Each takes a bench and raises AssertionError; `ALL` holds them in reading order.

A bench is made of a way to connect: `SequenceBench(connect)`, or `AsyncSequenceBench(connect, runner)` for drivers
that are awaited. Every law works on a series of its own, so they can share a database.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

from umavez.sequences import (
    AsyncSequences,
    NumberNotGiven,
    NumbersExhausted,
    NumberVoided,
    Range,
    RangeExists,
    RangeTaken,
    Sequences,
    SeriesUnknown,
)
from umavez.sql.connection import async_close

ORGANISATION = "loja"
RIVALS = 8


class SequenceBench:
    """Sequences on connections that `connect` opens; one bench per law."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._sequences = Sequences()
        self.series = f"law-{secrets.token_hex(6)}"

    def call(self, connection: Any, verb: str, *args: Any, **options: Any) -> Any:
        """One verb of Sequences, on this bench's series."""
        return getattr(self._sequences, verb)(connection, ORGANISATION, self.series, *args, **options)

    def session(self, work: Callable[[Any], Any], *, keep: bool = True) -> Any:
        """What `work` returns, in a transaction that is committed, or rolled back unless `keep`."""
        connection = self._connect()
        try:
            result = work(connection)
            (connection.commit if keep else connection.rollback)()
            return result
        finally:
            connection.close()

    def once(self, verb: str, *args: Any, keep: bool = True, **options: Any) -> Any:
        """One verb in a transaction of its own."""
        return self.session(lambda connection: self.call(connection, verb, *args, **options), keep=keep)

    def numbers(self, count: int) -> list[int]:
        """So many numbers, each in a transaction of its own."""
        return [self.once("next_number") for _ in range(count)]


class AsyncSequenceBench(SequenceBench):
    """The same for drivers that are awaited: `connect` gives an awaitable."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], runner: asyncio.Runner) -> None:
        super().__init__(connect)
        self._awaited = AsyncSequences()
        self._runner = runner

    def call(self, connection: Any, verb: str, *args: Any, **options: Any) -> Any:
        """See SequenceBench.call."""
        return self._runner.run(getattr(self._awaited, verb)(connection, ORGANISATION, self.series, *args, **options))

    def session(self, work: Callable[[Any], Any], *, keep: bool = True) -> Any:
        """See SequenceBench.session."""
        connection = self._runner.run(_awaited(self._connect()))
        try:
            result = work(connection)
            self._runner.run((connection.commit if keep else connection.rollback)())
            return result
        finally:
            self._runner.run(async_close(connection))


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer


def numbers_rise_by_one(bench: SequenceBench) -> None:
    """From the first of the range on."""
    assert bench.once("define", ranges=[Range(7)]), "the series was there already"
    assert not bench.once("define", ranges=[Range(1)]), "defining again must change nothing"
    assert bench.numbers(4) == [7, 8, 9, 10]


def a_rolled_back_number_is_given_again(bench: SequenceBench) -> None:
    """No hole is left."""
    bench.once("define")
    assert bench.once("next_number") == 1
    assert bench.once("next_number", keep=False) == 2
    assert bench.once("next_number", key="k", keep=False) == 2
    assert bench.once("next_number") == 2


def one_transaction_may_take_several_numbers(bench: SequenceBench) -> None:
    """They follow each other, and go back together."""
    bench.once("define")

    def three(connection: Any) -> list[int]:
        return [bench.call(connection, "next_number") for _ in range(3)]

    assert bench.session(three, keep=False) == [1, 2, 3]
    assert bench.session(three) == [1, 2, 3]


def a_key_gets_the_same_number_again(bench: SequenceBench) -> None:
    """Within a transaction and after it; another key gets another number."""
    bench.once("define")

    def twice(connection: Any) -> list[int]:
        return [bench.call(connection, "next_number", key="order-1") for _ in range(2)]

    assert bench.session(twice) == [1, 1]
    assert bench.once("next_number", key="order-2") == 2
    assert bench.once("next_number", key="order-1") == 1
    assert bench.once("next_number") == 3


def organisations_and_series_do_not_meet(bench: SequenceBench) -> None:
    """The same number in two series is two numbers, and a key belongs to its series."""
    bench.once("define")
    other = bench.series
    assert bench.once("next_number", key="k") == 1
    bench.series = f"{other}-2"
    bench.once("define")
    assert bench.once("next_number", key="k") == 1


def an_undefined_series_gives_nothing(bench: SequenceBench) -> None:
    """A misspelt name must not begin at 1."""
    for options in ({}, {"key": "k"}):
        _raises(SeriesUnknown, bench, "next_number", **options)


def a_range_ends_and_another_goes_on(bench: SequenceBench) -> None:
    """Without a number between."""
    bench.once("define", ranges=[Range(1, 2), Range(5, 5)])
    assert bench.numbers(3) == [1, 2, 5]
    _raises(NumbersExhausted, bench, "next_number")
    _raises(NumbersExhausted, bench, "next_number", key="k")
    bench.once("open_range", 10, 11)
    assert bench.numbers(2) == [10, 11]


def blocked_ranges_are_passed_over(bench: SequenceBench) -> None:
    """Wherever they begin, and when they touch or overlap; given numbers cannot be blocked."""
    bench.once("define")
    assert bench.once("next_number") == 1
    for first, last in ((3, 4), (5, 6), (6, 8), (10, 10)):
        bench.once("block_range", first, last, reason="printed elsewhere")
    assert bench.numbers(4) == [2, 9, 11, 12]
    _raises(RangeTaken, bench, "block_range", 12, 20, reason="too late")
    bench.once("block_range", 20, 21, reason="printed elsewhere")
    _raises(RangeExists, bench, "block_range", 20, 29, reason="printed elsewhere")


def a_voided_number_is_recorded_and_never_given_again(bench: SequenceBench) -> None:
    """Its key is told so."""
    bench.once("define")
    assert bench.once("next_number", key="k") == 1
    assert bench.once("next_number") == 2
    for number in (1, 2):
        assert bench.once("void", number, by="ana", reason="not sent")
        assert not bench.once("void", number, by="rui", reason="again"), "the first decision stands"
    assert [tuple(v) for v in bench.once("voided")] == [(1, "ana", "not sent", "k"), (2, "ana", "not sent", None)]
    _raises(NumberVoided, bench, "next_number", key="k")
    _raises(NumberNotGiven, bench, "void", 3, by="ana", reason="never given")
    assert bench.once("next_number") == 3


def only_a_number_that_was_given_can_be_voided(bench: SequenceBench) -> None:
    """Not a blocked one, nor one outside every range, wherever the counter stands."""
    bench.once("define", ranges=[Range(1, 2), Range(7, 9)])
    bench.once("block_range", 2, 2, reason="printed elsewhere")
    assert bench.numbers(2) == [1, 7]
    for number in (-1, 0, 2, 3, 6, 8, 10):
        _raises(NumberNotGiven, bench, "void", number, by="ana", reason="never given")
    assert bench.once("voided") == []
    assert bench.once("void", 7, by="ana", reason="not sent")


def reserved_blocks_never_overlap_and_stop_at_walls(bench: SequenceBench) -> None:
    """A block is as long as asked, or as the stretch allows."""
    bench.once("define")
    bench.once("block_range", 8, 9, reason="elsewhere")
    blocks = [bench.once("reserve", 5) for _ in range(3)]
    assert blocks == [range(1, 6), range(6, 8), range(10, 15)]
    assert bench.once("next_number") == 15


def a_look_from_before_hides_no_blocked_range(bench: SequenceBench) -> None:
    """A transaction that has looked at something goes by what stands when it takes its number."""
    bench.once("define")
    assert bench.once("next_number") == 1

    def late(connection: Any) -> Any:
        bench.call(connection, "voided")
        bench.once("block_range", 2, 5, reason="printed elsewhere")
        return bench.call(connection, "next_number")

    assert bench.session(late) == 6, "a blocked number was given"
    assert bench.numbers(2) == [7, 8], "blocked numbers are given from now on"


def a_look_from_before_hides_no_decision(bench: SequenceBench) -> None:
    """Whoever voids a number that was given, or voided, since its transaction's first look."""
    bench.once("define")
    assert bench.once("next_number", key="k") == 1

    def late(connection: Any) -> Any:
        bench.call(connection, "voided")
        assert bench.once("next_number", key="new") == 2
        assert bench.once("void", 1, by="ana", reason="not sent")
        return [bench.call(connection, "void", number, by="rui", reason="late") for number in (1, 2)]

    assert bench.session(late) == [False, True]
    assert [(v.number, v.decided_by, v.key) for v in bench.once("voided")] == [(1, "ana", "k"), (2, "rui", "new")]


def _raises(kind: type[Exception], bench: SequenceBench, verb: str, *args: Any, **options: Any) -> None:
    try:
        bench.once(verb, *args, **options)
    except kind:
        return
    raise AssertionError(f"{verb} did not raise {kind.__name__}")


def rivals_with_rollbacks_leave_no_hole_and_no_twin(bench: SequenceBench) -> None:
    """Threads take numbers at once; some change their minds."""
    bench.once("define")
    seed = random.randrange(2**32)
    kept: list[int] = []

    def rival(index: int) -> None:
        chance = random.Random(seed + index)
        for turn in range(10):
            key = f"{index}-{turn}" if chance.random() < 0.5 else None
            keep = chance.random() < 0.7
            number = bench.once("next_number", key=key, keep=keep)
            if keep:
                kept.append(number)

    _all_at_once(rival)
    assert sorted(kept) == list(range(1, len(kept) + 1)), f"a hole or a twin, seed {seed}: {sorted(kept)}"


def rivals_with_one_key_get_one_number(bench: SequenceBench) -> None:
    """And the series goes on without a hole."""
    bench.once("define")
    got: list[int] = []

    def rival(_: int) -> None:
        # A database may choose a victim among rivals; it runs its whole transaction again, as callers do.
        for _ in range(50):
            with suppress(Exception):
                got.append(bench.once("next_number", key="same"))
                return

    _all_at_once(rival)
    assert got == [1] * RIVALS, f"one key got {got}"
    assert bench.once("next_number") == 2, "a rival's number was lost"


def a_rival_that_waits_for_the_same_key_gets_its_number(bench: SequenceBench) -> None:
    """It looked before the first had committed, and must not believe what it saw."""
    bench.once("define")
    assert bench.once("next_number") == 1
    with ThreadPoolExecutor(1) as threads:

        def first(connection: Any) -> Any:
            assert bench.call(connection, "next_number", key="same") == 2
            rival = threads.submit(bench.once, "next_number", key="same")
            # Long enough for the rival to reach the lock; a slower one only makes this law easier to obey.
            wait([rival], timeout=0.5)
            assert not rival.done(), "the rival did not wait"
            return rival

        assert bench.session(first).result() == 2, "one key got two numbers"
    assert bench.once("next_number") == 3, "the number that the rival gave back was lost"


def _all_at_once(rival: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(RIVALS) as threads:
        for done in [threads.submit(rival, index) for index in range(RIVALS)]:
            done.result()


RACES = (
    rivals_with_rollbacks_leave_no_hole_and_no_twin,
    rivals_with_one_key_get_one_number,
    a_rival_that_waits_for_the_same_key_gets_its_number,
)
"""Laws that need threads, so only a sync bench can prove them."""

ALL: tuple[Callable[[SequenceBench], None], ...] = (
    numbers_rise_by_one,
    a_rolled_back_number_is_given_again,
    one_transaction_may_take_several_numbers,
    a_key_gets_the_same_number_again,
    organisations_and_series_do_not_meet,
    an_undefined_series_gives_nothing,
    a_range_ends_and_another_goes_on,
    blocked_ranges_are_passed_over,
    a_voided_number_is_recorded_and_never_given_again,
    only_a_number_that_was_given_can_be_voided,
    reserved_blocks_never_overlap_and_stop_at_walls,
    a_look_from_before_hides_no_blocked_range,
    a_look_from_before_hides_no_decision,
)
