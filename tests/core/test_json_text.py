"""Bounded JSON: what is within the bounds reads as JSON reads; the rest is refused before it costs anything."""

from __future__ import annotations

import json
import time
import tracemalloc
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umavez import BoundedJson, InvalidJson

EXACT = BoundedJson(number=Decimal, nul=False)
MEGABYTE = 1_000_000
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
FLOATS = st.floats(-1e90, 1e90).filter(lambda number: not 0 < abs(number) < 1e-90)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**60), 10**60) | FLOATS | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
)


def refusal(text: str | bytes, parser: BoundedJson = EXACT) -> InvalidJson:
    with pytest.raises(InvalidJson) as raised:
        parser.parse(text)
    return raised.value


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_what_is_within_the_bounds_reads_as_json_reads(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)

    assert BoundedJson().parse(text) == BoundedJson().parse(f" {text}\n".encode()) == json.loads(text)


@given(st.text(st.sampled_from('[]{}",:\\u0d8e1.-+ntrue \n\x00'), max_size=60))
def test_whatever_comes_is_read_as_json_reads_it_or_refused(text: str) -> None:
    try:
        value = BoundedJson(depth=4, digits=5, exponent=3).parse(text)
    except InvalidJson:
        return
    assert repr(value) == repr(json.loads(text))


@pytest.mark.parametrize(
    ("text", "fault", "position"),
    [
        ("", "syntax", 0),
        ('{"a":}', "syntax", 5),
        ("1 2", "syntax", 2),
        ("\ufeff1", "syntax", 0),
        (b'{"a":"\xff"}', "encoding", 6),
        ('["\ud800"]', "surrogate", 2),
        ('["a\\ud800"]', "surrogate", 3),
        ('["\\uDC00\\ud800"]', "surrogate", 2),
        ('["\\ud83d\\ude00\\ud83d"]', "surrogate", 14),
        ('["\\\\\\ud83d"]', "surrogate", 4),
        ('{"\\u0000":1}', "nul", 2),
        ('["\\\\\\u0000"]', "nul", 4),
        ("[NaN]", "number", 1),
        ("-Infinity", "number", 0),
        ('{"a":1e100}', "number", 5),
        ("1E-100", "number", 0),
        ("1e+99999999999999999999", "number", 0),
        ("1e00000000000000000001", "number", 0),
        ("1" * 65, "number", 0),
        ("-0." + "1" * 64, "number", 0),
        ("1" * 33 + "." + "1" * 33, "number", 0),
        ('{"a":1,"b":2,"a":1}', "repeated", None),
        ("[" * 65 + "]" * 65, "depth", None),
        ('[{"a":' * 33 + "1" + "}]" * 33, "depth", None),
        ("[" * 100_000, "depth", None),
        ('{"a":' * 100_000, "depth", None),
        ('"' + "a" * MEGABYTE + '"', "size", None),
        ('"' + "é" * (MEGABYTE // 2) + '"', "size", None),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_is_refused_is_refused_with_its_fault_and_place(text: str | bytes, fault: str, position: Any) -> None:
    error = refusal(text)

    assert (error.fault, error.position) == (fault, position)
    assert str(error).startswith("This JSON cannot be read: ")
    assert str(error).count("\n") == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1" * 64, int("1" * 64)),
        ("-" + "1" * 64, -int("1" * 64)),
        ("1e99", Decimal("1e99")),
        ("-1.5E-99", Decimal("-1.5e-99")),
        ("0." + "1" * 63, Decimal("0." + "1" * 63)),
        ('"' + "1" * 100 + 'e999"', "1" * 100 + "e999"),
        ('"\\ud83d\\uDE00"', "😀"),
        ('"\\\\ud800"', "\\ud800"),
        ('"\\\\u0000"', "\\u0000"),
        ("[" * 64 + "]" * 64, None),
        ('["' + "[" * 100 + '\\"{[", "\\\\"]', ["[" * 100 + '"{[', "\\"]),
        ("[" + ",".join(["[]"] * 1000) + "]", [[]] * 1000),
        ('[{"a":1},{"a":1}]', [{"a": 1}, {"a": 1}]),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_is_just_within_the_bounds_is_read(text: str, value: Any) -> None:
    assert EXACT.parse(text) == (json.loads(text) if value is None else value)


def test_the_bounds_can_be_chosen() -> None:
    parser = BoundedJson(size=40, depth=2, digits=3, exponent=5)

    assert parser.parse("[[123, 12.3, 1e5, -999]]") == [[123, 12.3, 1e5, -999]]
    for text, fault in [("1234", "number"), ("1e6", "number"), ("[[[]]]", "depth"), (" " * 41, "size")]:
        assert refusal(text, parser).fault == fault


def test_no_number_becomes_infinite() -> None:
    parser = BoundedJson(digits=400, exponent=400)

    assert parser.parse("1e308") == 1e308
    assert refusal("1e309", parser).fault == "number"
    assert refusal("1" * 310 + ".0", parser).fault == "number"


def test_the_name_of_a_repeated_member_is_told_but_no_value() -> None:
    assert "'valor'" in str(refusal('{"valor": 1, "valor": "segredo"}'))
    assert "segredo" not in str(refusal('{"valor": 1, "valor": "segredo"}'))
    assert len(str(refusal('{"' + "x" * 9999 + '":1,"' + "x" * 9999 + '":1}'))) < 100


@pytest.mark.parametrize(
    "text",
    [
        "1e9999999999",
        "[" + "1e999999999," * 80_000 + "1]",
        "[" + "9" * (MEGABYTE - 2) + "]",
        "1e" + "9" * (MEGABYTE - 2),
        "[" * MEGABYTE,
        "[" * (MEGABYTE // 2) + "]" * (MEGABYTE // 2),
        "[[]," * (MEGABYTE // 4),
        '{"a":' * (MEGABYTE // 5),
        '"' + "\\ud83d" * (MEGABYTE // 6 - 1) + '"',
        '"' + "\\" * (MEGABYTE - 2) + "x",
        '["' * (MEGABYTE // 2),
        "{" + ",".join(f'"{number}":1' for number in range(80_000)) + ',"0":1}',
    ],
    ids=lambda text: text[:16],
)
def test_a_megabyte_of_malice_costs_little_time_and_memory(text: str) -> None:
    body = text.encode()
    tracemalloc.start()
    began = time.process_time()
    try:
        refusal(body)
        assert time.process_time() - began < 2.0
        assert tracemalloc.get_traced_memory()[1] < 80 * MEGABYTE
    finally:
        tracemalloc.stop()
