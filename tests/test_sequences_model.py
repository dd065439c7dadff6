"""Numbers against a model that counts one by one: whatever is opened, blocked, voided, kept, rolled back."""

from __future__ import annotations

import sqlite3
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from umavez.sequences import (
    NumberNotGiven,
    NumbersExhausted,
    NumberVoided,
    Range,
    RangeExists,
    RangeTaken,
    Sequences,
)
from umavez.sequences.flows import Series
from umavez.sequences.standing import standings
from umavez.sql.connection import Sql
from umavez.sql.flow import carry

LAST = 60
"""Beyond every number of a test."""
SERIES = ("loja", "notas")
RANGES = st.tuples(st.integers(1, 40), st.integers(0, 12)).map(lambda pair: Range(pair[0], pair[0] + pair[1]))
KEYS = st.sampled_from([None, None, "a", "b", "c", "d"])


class State:
    """What the model knows; copied at each commit."""

    def __init__(self) -> None:
        self.open: set[Range] = set()
        self.blocked: set[Range] = set()
        self.at = 0
        self.given: list[int] = []
        self.reserved: list[int] = []
        self.keys: dict[str, int] = {}
        self.void: dict[int, str] = {}

    def copy(self) -> State:
        made = State()
        for name, value in vars(self).items():
            setattr(made, name, value if isinstance(value, int) else value.copy())
        return made

    def allowed(self, number: int) -> bool:
        return _within(number, self.open) and not _within(number, self.blocked)

    def following(self) -> int | None:
        return next((number for number in range(self.at, LAST) if self.allowed(number)), None)


def _within(number: int, ranges: set[Range]) -> bool:
    return any(piece.first <= number <= piece.last for piece in ranges)


class Numbers(RuleBasedStateMachine):
    """One series in one file in memory; each rule is a step of a transaction that is kept or not."""

    def __init__(self) -> None:
        super().__init__()
        self.connection = sqlite3.connect(":memory:")
        self.sequences = Sequences()
        self.sequences.migrate(self.connection)
        self.connection.commit()
        self.now = self.kept = State()

    def teardown(self) -> None:
        self.connection.close()

    def call(self, verb: str, *args: Any, **options: Any) -> Any:
        return getattr(self.sequences, verb)(self.connection, *SERIES, *args, **options)

    @initialize(ranges=st.lists(RANGES, min_size=1, max_size=3, unique_by=lambda piece: piece.first))
    def defined(self, ranges: list[Range]) -> None:
        assert self.call("define", ranges=ranges)
        assert not self.call("define", ranges=[Range(LAST + 1)])
        self.now.open = set(ranges)
        self.now.at = min(piece.first for piece in ranges)
        self.ended(keep=True)

    @rule(keep=st.booleans())
    def ended(self, keep: bool) -> None:
        if keep:
            self.connection.commit()
            self.kept = self.now.copy()
        else:
            self.connection.rollback()
            self.now = self.kept.copy()

    @rule(key=KEYS)
    def taken(self, key: str | None) -> None:
        wanted = self.now.keys.get(key or "")
        try:
            number = self.call("next_number", key=key)
        except NumberVoided:
            assert wanted in self.now.void
        except NumbersExhausted:
            assert wanted is None
            assert self.now.following() is None
        else:
            assert number == (self.now.following() if wanted is None else wanted)
            assert number not in self.now.void
            if wanted is None:
                self._given(number)
            if key is not None:
                self.now.keys[key] = number

    @rule(count=st.integers(-1, 15))
    def reserved(self, count: int) -> None:
        try:
            numbers = self.call("reserve", count)
        except NumbersExhausted:
            assert self.now.following() is None
            return
        assert 1 <= len(numbers) <= max(count, 1)
        for number in numbers:
            assert number == self.now.following()
            self._given(number)

    def _given(self, number: int) -> None:
        self.now.given.append(number)
        self.now.at = number + 1

    @rule(piece=RANGES)
    def opened(self, piece: Range) -> None:
        self._added("open_range", piece, self.now.open)

    @rule(piece=RANGES)
    def blocked(self, piece: Range) -> None:
        self._added("block_range", piece, self.now.blocked, reason="impressos")

    def _added(self, verb: str, piece: Range, ranges: set[Range], **options: Any) -> None:
        at = self._at()
        try:
            self.call(verb, piece.first, piece.last, **options)
        except RangeTaken:
            assert piece.first < at
        except RangeExists:
            assert piece.first >= at
            assert piece.first in {other.first for other in ranges}
        else:
            assert piece.first >= at
            assert not [number for number in self.now.given if piece.first <= number <= piece.last]
            ranges.add(piece)

    def _at(self) -> int:
        (row,) = self.connection.execute("SELECT next_number FROM umavez_sequences").fetchall()
        return int(row[0])

    @precondition(lambda self: self.now.given)
    @rule(number=st.integers(0, LAST), by=st.sampled_from(["ana", "rui"]))
    def voided(self, number: int, by: str) -> None:
        try:
            done = self.call("void", number, by=by, reason="não enviada")
        except NumberNotGiven:
            assert number not in self.now.given
        else:
            assert number in self.now.given
            assert done is (number not in self.now.void)
            self.now.void.setdefault(number, by)

    @invariant()
    def told_as_it_is(self) -> None:
        assert self.now.given == sorted(set(self.now.given)), "twins, or out of their order"
        assert all(map(self.now.allowed, self.now.given))
        numbers = {number: (by, key) for number, by, _, key in self.call("voided")}
        names = {number: key for key, number in self.now.keys.items()}
        assert numbers == {number: (by, names.get(number)) for number, by in self.now.void.items()}
        if not self.now.open:
            return
        (standing,) = carry(standings(*SERIES, 10), Sql(self.connection))
        assert standing.series == Series(*SERIES)
        assert standing.next_number == self.now.following()
        assert standing.left == sum(map(self.now.allowed, range(self.now.at, LAST)))
        assert standing.last_number == max(self.now.given, default=None)


Numbers.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestNumbers = Numbers.TestCase
