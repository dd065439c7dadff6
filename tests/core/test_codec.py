from __future__ import annotations

import dataclasses
import enum
import math
import threading
from datetime import UTC, datetime, time, timedelta, timezone
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umavez.core.encoding.codec import JsonCodec
from umavez.core.key import Key
from umavez.errors import NotStorable

KEY = Key("shop", "charge", "42")
CODEC = JsonCodec()


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Size(enum.IntEnum):
    SMALL = 1


class Right(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int
    label: str = ""


@dataclasses.dataclass
class Doubled:
    """Its constructor changes what it is given."""

    amount: int
    scale: dataclasses.InitVar[int] = 2
    total: int = dataclasses.field(init=False, default=0)

    def __post_init__(self, scale: int) -> None:
        self.amount *= scale
        self.total += self.amount


@dataclasses.dataclass
class Demanding:
    amount: int
    rate: dataclasses.InitVar[int]

    def __post_init__(self, rate: int) -> None:
        self.amount *= rate


@dataclasses.dataclass
class Invoice:
    """Its constructor changes a list in its place."""

    lines: list[str]

    def __post_init__(self) -> None:
        self.lines.append("fee")


class Basket(pydantic.RootModel[list[int]]):
    """Its whole content is one value without a name."""


class Bill(pydantic.BaseModel):
    """What it was made of is changed after validation."""

    total: int
    lines: list[str]

    def model_post_init(self, context: Any) -> None:
        self.total *= 2
        self.lines.append("fee")


class Crossed(pydantic.BaseModel):
    """Each field is called as the other is in the wire format."""

    buyer: int = pydantic.Field(alias="seller")
    seller: int = pydantic.Field(alias="buyer")


class Open(pydantic.BaseModel, extra="allow"):
    known: int = 1


class Bare(pydantic.BaseModel, extra="allow"):
    """Has nothing but what it is given."""


class Renamed(pydantic.BaseModel, extra="allow"):
    """The name of its field is free in the wire format."""

    amount: int = pydantic.Field(alias="value")


class Secretive(pydantic.BaseModel):
    """Holds more than its fields."""

    amount: int
    _taken: int = pydantic.PrivateAttr(0)
    _notes: list[Any] = pydantic.PrivateAttr(default_factory=list)
    _never: int


class Locked(pydantic.BaseModel):
    """Guards what it holds."""

    amount: int
    _taken: int = 0
    _lock: Any = pydantic.PrivateAttr(default_factory=threading.Lock)
    _client: Any = None


def secretive(taken: int, *notes: Any) -> Secretive:
    value = Secretive(amount=3)
    value._taken = taken
    value._notes.extend(notes)
    return value


class Pair(NamedTuple):
    one: int


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ZONES = st.none() | st.integers(-720, 720).map(lambda minutes: timezone(timedelta(minutes=minutes)))
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | TEXTS
    | st.binary(max_size=8)
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.datetimes(timezones=ZONES)
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.sampled_from([*Colour, *Size, Right.READ, Right.READ | Right.WRITE, Right(0)])
    | st.builds(Point, st.integers(), TEXTS)
)
HASHABLE = st.integers() | TEXTS | st.uuids() | st.tuples(st.integers(), TEXTS)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(TEXTS | HASHABLE, inner, max_size=4)
        | st.dictionaries(st.sampled_from(["$map", "$datetime", "$data", "a"]), inner, max_size=3)
        | st.sets(HASHABLE, max_size=3)
        | st.frozensets(HASHABLE, max_size=3)
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    """Equal and of the same types, all the way down; 1, 1.0 and True are three things here."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(
            same(*names) and same(one[names[0]], other[names[1]]) for names in zip(one, other, strict=True)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, float):
        return math.copysign(1, one) == math.copysign(1, other) and one == other
    return bool(one == other)


@given(VALUES)
def test_a_value_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    assert same(CODEC.decode(CODEC.encode(value, KEY), KEY), value)


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), -0.0, 1e308, 5e-324])
def test_every_float_comes_back(number: float) -> None:
    assert same(CODEC.decode(CODEC.encode(number, KEY), KEY), number)


def test_not_a_number_comes_back_too() -> None:
    assert math.isnan(CODEC.decode(CODEC.encode(float("nan"), KEY), KEY))


def test_plain_values_are_plain_json() -> None:
    assert CODEC.encode({"name": "João", "tags": [1, None, True]}, KEY) == '{"name":"João","tags":[1,null,true]}'


def test_a_constructor_that_changes_its_input_does_not_change_it_twice() -> None:
    value = Doubled(5)

    again = CODEC.decode(CODEC.encode(value, KEY), KEY)

    assert (again.amount, again.total) == (10, 10)


@pytest.mark.parametrize(
    "value",
    [
        Invoice(["shoes"]),
        Bill(total=3, lines=["shoes"]),
        Basket([1, 2]),
        Crossed(seller=1, buyer=2),
        Open.model_validate({"known": 2, "unknown": [3]}),
        Open(),
        Bare.model_validate({"$uuid": "no such thing"}),
        Bare.model_validate({"$float": "1", "b": 2}),
        Renamed.model_validate({"value": 1, "amount": 2, "more": 3}),
        secretive(7, "a", (1, 2)),
        secretive(0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_whose_class_runs_code_of_its_own_comes_back_as_it_was(value: Any) -> None:
    back = CODEC.decode(CODEC.encode(value, KEY), KEY)
    assert back == value
    assert getattr(back, "model_fields_set", None) == getattr(value, "model_fields_set", None)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Bill(total=3, lines=["a"]), '{"total":6,"lines":["a","fee"]},["lines","total"]'),
        (Open.model_validate({"more": 2}), '{"known":1,"more":2},["more"]'),
    ],
    ids=["fields", "extra"],
)
def test_a_model_without_private_attributes_is_written_as_before(value: Any, written: str) -> None:
    assert CODEC.encode(value, KEY) == f'{{"$model":["{__name__}:{type(value).__name__}",{written}]}}'


def test_a_model_kept_without_its_private_attributes_gets_those_of_its_class() -> None:
    back = CODEC.decode(f'{{"$model":["{__name__}:Secretive",{{"amount":3}},["amount"]]}}', KEY)
    assert back == Secretive(amount=3)


def test_private_attributes_that_the_class_has_no_more_are_left_out_and_new_ones_are_its_own() -> None:
    more = '{"private":{"_taken":7,"_gone":1}}'
    back = CODEC.decode(f'{{"$model":["{__name__}:Secretive",{{"amount":3}},["amount"],{more}]}}', KEY)
    assert back == secretive(7)


def test_a_model_with_a_private_attribute_that_cannot_be_kept_is_refused_and_says_so() -> None:
    with pytest.raises(NotStorable, match=r"private attribute _notes of .*:Secretive cannot be kept .*object"):
        CODEC.encode(secretive(1, object()), KEY)


def test_a_tool_that_every_model_of_a_class_makes_for_itself_is_no_obstacle() -> None:
    value = Locked(amount=3)
    value._taken = 7
    value._client = object()

    back = CODEC.decode(CODEC.encode(value, KEY), KEY)

    assert (back.amount, back._taken, back._client) == (3, 7, None)
    assert back._lock.acquire(blocking=False)


def test_a_constructor_that_asks_for_more_than_fields_is_no_obstacle() -> None:
    assert CODEC.decode(CODEC.encode(Demanding(2, 3), KEY), KEY).amount == 6


@pytest.mark.parametrize(
    "bad",
    [object(), Pair(1), "\ud800", {"a": {1, object}}, print, 10**5000, [10**5000], type("Sub", (str,), {})("x")],
    ids=["object", "namedtuple", "surrogate", "class in set", "function", "huge", "huge inside", "str subclass"],
)
def test_what_cannot_be_kept_is_refused(bad: Any) -> None:
    with pytest.raises(NotStorable):
        CODEC.encode(bad, KEY)


def test_a_circle_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)

    with pytest.raises(NotStorable):
        CODEC.encode(circle, KEY)


def test_a_class_that_could_not_be_found_again_is_refused_before_it_is_kept() -> None:
    """Kept now, it could never be replayed: the caller must hear of it at the first call."""

    @dataclasses.dataclass
    class Local:
        x: int

    with pytest.raises(NotStorable, match="top of a module"):
        CODEC.encode(Local(1), KEY)


def test_only_listed_types_come_back_where_a_list_is_given() -> None:
    text = CODEC.encode(Point(1), KEY)

    assert JsonCodec([Point]).decode(text, KEY) == Point(1)
    with pytest.raises(NotStorable, match="not loaded"):
        JsonCodec([Colour]).decode(text, KEY)
    with pytest.raises(NotStorable):
        JsonCodec([Colour]).encode(Point(1), KEY)


@pytest.mark.parametrize(
    "text",
    ['{"$data":["os:system",{}]}', '{"$enum":["os:system","x"]}', '{"$data":["antigravity:x",{}]}'],
)
def test_stored_text_names_neither_functions_nor_modules_to_import(text: str) -> None:
    import sys

    with pytest.raises(NotStorable):
        CODEC.decode(text, KEY)
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("text", ["", "{", "nonsense"])
def test_text_that_is_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting|property name"):
        CODEC.decode(text, KEY)


LISBON = ZoneInfo("Europe/Lisbon")


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 10, 25, 1, 30, tzinfo=LISBON),
        datetime(2026, 10, 25, 1, 30, tzinfo=LISBON, fold=1),
        datetime(2026, 10, 25, 1, 30, fold=1),  # noqa: DTZ001  # one without a zone is what is kept
        datetime(2026, 10, 25, 1, 30, 0, 7, tzinfo=timezone(timedelta(hours=-3))),
        time(1, 30, fold=1),
        time(1, 30, tzinfo=LISBON),
    ],
    ids=repr,
)
def test_a_moment_comes_back_with_its_zone_and_its_fold(moment: Any) -> None:
    again = CODEC.decode(CODEC.encode([moment], KEY), KEY)[0]

    assert (again, again.fold, again.utcoffset()) == (moment, moment.fold, moment.utcoffset())
    assert (type(again.tzinfo), str(again.tzinfo)) == (type(moment.tzinfo), str(moment.tzinfo))


def test_moments_are_written_as_before_where_there_is_nothing_more_to_say() -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    text = '[{"$datetime":"2026-01-02T00:00:00+00:00"}]'

    assert CODEC.encode([moment], KEY) == text
    assert CODEC.decode(text, KEY) == [moment]


@dataclasses.dataclass(slots=True)
class Slim:
    kept: int


class Shade(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    "text",
    [
        f'{{"$data":["{__name__}:Slim",{{"kept":1,"dropped":2}}]}}',
        f'{{"$enum":["{__name__}:Shade","GREEN"]}}',
        f'{{"$enum":["{__name__}:Shade"]}}',
        '{"$decimal":"many"}',
        '{"$datetime":["2026-01-02T00:00:00",0,"Europe/Nowhere"]}',
        '{"$timedelta":3}',
    ],
)
def test_what_does_not_fit_its_type_any_more_is_told_in_one_sentence(text: str) -> None:
    with pytest.raises(NotStorable, match="cannot be read back"):
        CODEC.decode(text, KEY)
