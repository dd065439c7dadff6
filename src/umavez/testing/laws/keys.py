"""Laws of keys: those that differ, differ."""

from __future__ import annotations

from umavez.core.key import MAX_LENGTH, Key
from umavez.core.protocol import Busy, Replay
from umavez.core.record import Settled
from umavez.testing.harness import AnyBench
from umavez.testing.laws.law import Law

LONGEST = "🚕" * MAX_LENGTH
VALUES = (
    "abc",
    "ABC",
    "abc ",
    " abc",
    "abc\t",
    "ábc",
    "a\u0301bc",
    "abc\u2400",
    "ßtraße",
    "sstrasse",
    "ﬁ",
    "fi",
    "1",
    "01",
    "1.0",
    "'; --",
    "%",
    "_",
    "a" * MAX_LENGTH,
    "a" * (MAX_LENGTH - 1),
    LONGEST,
    LONGEST[:-1] + "🚖",
)


def keys_that_differ_differ(bench: AnyBench) -> None:
    """Law 10: case, blanks, accents, normal forms, any length; each keeps its own outcome."""
    for value in VALUES:
        claim = bench.claim(bench.key(value))
        bench.drive(claim.settle(Settled(True, repr(value))))
    for value in VALUES:
        replay = bench.admit(bench.key(value))
        assert isinstance(replay, Replay)
        assert replay.record.settled == Settled(True, repr(value)), f"{value!r} got another key's outcome"
        assert replay.record.key == bench.key(value)


def the_boundary_between_scope_operation_and_value_counts(bench: AnyBench) -> None:
    """("ab", "c", "d") is not ("a", "bc", "d") nor ("a", "b", "cd")."""
    scope = bench.scope
    keys = (
        Key(f"{scope}ab", "c", "d"),
        Key(f"{scope}a", "bc", "d"),
        Key(f"{scope}a", "b", "cd"),
        Key(f"{scope}a", "b", "c:d"),
        Key(f"{scope}a", "b:c", "d"),
        Key(f"{scope}", "ab", "cd"),
        Key(f"{scope}a", "B", "cd"),
    )
    for key in keys:
        bench.claim(key)
    for key in keys:
        assert isinstance(bench.admit(key), Busy)
        assert bench.record(key).key == key


def the_longest_names_are_kept_whole(bench: AnyBench) -> None:
    """255 characters of four bytes in scope, operation and value at once."""
    scope = (bench.scope + LONGEST)[:MAX_LENGTH]
    key = Key(scope, LONGEST, LONGEST)
    bench.claim(key)
    assert isinstance(bench.admit(key), Busy)
    assert bench.record(key).key == key


LAWS: tuple[Law, ...] = (
    keys_that_differ_differ,
    the_boundary_between_scope_operation_and_value_counts,
    the_longest_names_are_kept_whole,
)
