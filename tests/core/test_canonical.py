from __future__ import annotations

import dataclasses
import decimal
import enum
import tracemalloc
from collections import OrderedDict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umavez.core.encoding.canonical import canonical
from umavez.core.encoding.codec import JsonCodec
from umavez.core.encoding.fingerprint import fingerprint, same_meaning
from umavez.core.key import Key
from umavez.errors import NotStorable

KEY = Key("s", "o", "k")


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Order:
    number: int
    colour: Colour


class Text(str):
    """A kind of text."""

    __slots__ = ()


class Open(pydantic.BaseModel, extra="allow"):
    """Takes more than its fields, under names that are also those of something else."""

    KIND: ClassVar[str] = "open"
    amount: int = pydantic.Field(1, alias="value")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=10,
)
SAO_PAULO = timezone(timedelta(hours=-3))

SAME = [
    (1, 1.0),
    (1, Decimal("1.00")),
    (0, -0.0),
    (1.5, Decimal("1.50")),
    (1e21, 10**21),
    (0.1, Decimal("0.1")),
    ((1, 2), [1, 2]),
    ({1, 2, 3}, {3, 2, 1}),
    ({"b": 1, "a": 2}, OrderedDict([("a", 2), ("b", 1)])),
    (Colour.RED, "red"),
    (Order(1, Colour.RED), {"number": 1, "colour": "red"}),
    (datetime(2025, 1, 1, 12, tzinfo=UTC), datetime(2025, 1, 1, 9, tzinfo=SAO_PAULO)),
    (UUID(int=1), str(UUID(int=1))),
    (b"a", bytearray(b"a")),
    (timedelta(seconds=90), timedelta(minutes=1.5)),
    ("\0a", Text("\0a")),
    (Open.model_validate({"copy": "x"}), {"amount": 1, "copy": "x"}),
]

DIFFERENT = [
    (1, "1"),
    (1, True),
    (0, False),
    (None, "null"),
    ([1, 2], [2, 1]),
    ({1: "a"}, {"1": "a"}),
    ([], {}),
    ("", None),
    ("é", "e\u0301"),
    (1.5, "1.5"),
    (0.1, Decimal("0.1000000000000000055511151231257827")),
    (datetime(2025, 1, 1, 12), datetime(2025, 1, 1, 12, tzinfo=UTC)),  # noqa: DTZ001 (naive on purpose)
    (date(2025, 1, 1), date(2025, 1, 2)),
    (time(1), time(2)),
    (b"a", "a"),
    ({"a": None}, {}),
    ({1: "a"}, {"\0int:1": "a"}),
    ({None: "a"}, {"\0NoneType:null": "a"}),
    ({"\0a": 1}, {"\0s:\0a": 1}),
    (b"a", {"\0bytes": "61"}),
    (Decimal("1e500"), "\0n:1e500"),
    (Decimal("1e500"), Text("\0n:1e500")),
    (Open.model_validate({"\0int:1": 1}), {"amount": 1, 1: 1}),
    (Open.model_validate({"KIND": "a"}), Open.model_validate({"KIND": "b"})),
    (Open.model_validate({"value": 1, "amount": 2}), Open.model_validate({"value": 1, "amount": 3})),
    (Open.model_validate({"value": 1, "amount": 2}), Open.model_validate({"value": 1})),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_means_the_same_has_the_same_form(one: Any, other: Any) -> None:
    assert canonical(one) == canonical(other)
    assert fingerprint([one]) == fingerprint([other])


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_differs_has_another_form(one: Any, other: Any) -> None:
    assert canonical(one) != canonical(other)


@given(PLAIN, PLAIN)
def test_plain_values_have_the_same_form_only_when_they_are_equal(one: Any, other: Any) -> None:
    if canonical(one) == canonical(other):
        assert repr(one) == repr(other) or one == other


@given(st.decimals(allow_nan=False, allow_infinity=False), st.decimals(allow_nan=False, allow_infinity=False))
def test_decimals_are_told_apart_to_the_last_digit(one: Decimal, other: Decimal) -> None:
    if max(abs(one.adjusted()), abs(other.adjusted())) < 1000:
        assert (canonical(one) == canonical(other)) is (one == other)


def test_the_decimal_context_of_a_thread_changes_nothing() -> None:
    """A service that sets its precision must not see its own keys as reused."""
    number = Decimal("1.23456789012345678901234567890123456789")
    form = canonical(number)

    with decimal.localcontext() as context:
        context.prec = 4
        assert canonical(number) == form
    assert canonical(Decimal("1.2345678901234567890123456789012345678")) != form


@pytest.mark.parametrize(
    "bad", [float("nan"), float("inf"), Decimal("NaN"), object(), "\ud800", {"a": object()}, print]
)
def test_what_has_no_form_is_refused_in_one_sentence(bad: Any) -> None:
    with pytest.raises(NotStorable, match="canonical form"):
        canonical(bad)


@pytest.mark.parametrize("text", ["1e999999999", "-1.5e999999999", "1e-999999999", "0e999999999", "9" * 5000 + "e9999"])
def test_a_number_beyond_measure_is_never_written_out(text: str) -> None:
    tracemalloc.start()
    try:
        assert len(canonical(Decimal(text))) < 6000
        assert JsonCodec().decode(JsonCodec().encode(Decimal(text), KEY), KEY) == Decimal(text)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_a_circle_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)

    with pytest.raises(NotStorable):
        canonical(circle)


def test_the_form_is_sorted_compact_utf8() -> None:
    assert canonical({"b": [1, None], "a": "é"}) == '{"a":"é","b":[1,null]}'.encode()


def test_a_fingerprint_bears_its_version_and_never_changes() -> None:
    """A stored fingerprint that another release computes otherwise would accuse honest callers."""
    assert fingerprint({"amount": 10}) == "1:a8b88b82fe90a16048eb8851fe382405395cd395dafaa7ca9be90ec00f82a72b"


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (
            {1: "a", "b\0": {(1, "x"): b"a"}},
            b'{"\\u0000int:1":"a","b\\u0000":{"\\u0000tuple:[1,\\"x\\"]":{"\\u0000bytes":"61"}}}',
        ),
        (["\0a", Decimal("1.5"), Text("x")], b'["\\u0000s:\\u0000a","\\u0000n:15e-1","x"]'),
        (Open.model_validate({"value": 2, "more": [1]}), b'{"amount":2,"more":[1]}'),
    ],
    ids=["names", "values", "model"],
)
def test_the_form_of_what_poses_as_nothing_never_changes(value: Any, form: bytes) -> None:
    assert canonical(value) == form


@pytest.mark.parametrize(
    ("stored", "offered", "same"),
    [
        ("1:a", "1:a", True),
        ("1:a", "1:b", False),
        ("1:a", "2:b", True),
        (None, "1:a", True),
        ("1:a", None, True),
        (None, None, True),
    ],
)
def test_only_fingerprints_of_the_same_rules_can_accuse(stored: Any, offered: Any, same: bool) -> None:
    assert same_meaning(stored, offered) is same


class Shown(float):
    """A number whose repr is not its digits, as that of numpy is."""

    def __repr__(self) -> str:
        return f"shown.Float({float(self)})"


def test_a_kind_of_float_means_the_number_it_is() -> None:
    assert canonical(Shown(1.5)) == canonical(1.5)
