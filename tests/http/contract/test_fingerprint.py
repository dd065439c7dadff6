"""The fingerprint: the same for requests that mean the same, another for all others."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umavez.http.contract.fingerprint import fingerprint, fingerprint_of_stream, media_type

JSON = "application/json"


def of(body: str | bytes, media: str = JSON, *, method: str = "POST", path: str = "/p", query: bytes = b"") -> str:
    return fingerprint(method, path, query, media, body.encode() if isinstance(body, str) else body)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":2}', '{ "b": 2, "a": 1 }'),
        ('{"a":1}', '{"a":1.0}'),
        ('{"a":100}', '{"a":1e2}'),
        ('{"a":0.5}', '{"a":0.50}'),
        ('{"a":0.5}', '{"a":5e-1}'),
        ('{"a":0}', '{"a":-0.0}'),
        ('"é"', '"\\u00e9"'),
        ('{"a":[1,2]}', '{"a":[1, 2]}'),
        ("1" + "0" * 60, "1e60"),
        ("1e40", "10.0E+39"),
    ],
)
def test_json_counts_by_value(one: str, other: str) -> None:
    assert of(one) == of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1}', '{"a":2}'),
        ('{"a":1}', '{"a":"1"}'),
        ('{"a":[1,2]}', '{"a":[2,1]}'),
        ('{"a":1}', '{"a":true}'),
        ('{"a":null}', "{}"),
        ("0.1234567890123456789012345678901", "0.1234567890123456789012345678902"),
        ("9007199254740993", "9007199254740992"),
        ("1.5", '{"\\ud800":"15e-1"}'),
        ("1.5", '"15e-1"'),
        ('{"a":1,"a":2}', '{"a":2}'),
        ("", "null"),
        ('"\u00e9"', '"e\u0301"'),
    ],
)
def test_what_means_something_else_has_another_fingerprint(one: str, other: str) -> None:
    assert of(one) != of(other)


def test_method_path_query_and_media_type_belong_to_it() -> None:
    base = of("{}")
    assert base != of("{}", method="PATCH")
    assert base != of("{}", path="/q")
    assert base != of("{}", query=b"a=1")
    assert base != of("{}", media="text/plain")


def test_order_of_query_names_does_not_count_but_order_of_values_does() -> None:
    assert of("{}", query=b"a=1&b=2") == of("{}", query=b"b=2&a=1")
    assert of("{}", query=b"a=1&a=2") != of("{}", query=b"a=2&a=1")


def test_parts_cannot_be_moved_from_one_to_the_next() -> None:
    assert of("x", media="", path="/a", query=b"b") != of("x", media="", path="/ab", query=b"")


@pytest.mark.parametrize(
    "body",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "1" * 100_000,
        "1e999999999",
        "1e99999999999999999999",
        "[" + "1e999999999," * 80_000 + "1]",
        '{"a":1,"a":1}',
        '"\\ud800"',
        "NaN",
        "{",
        "\x00",
    ],
    ids=lambda body: body[:16],
)
def test_hostile_json_costs_little_and_counts_by_its_bytes(body: str) -> None:
    began = time.process_time()
    assert of(body) == of(body)
    assert of(body) != of(body + " ")
    assert time.process_time() - began < 1.0


def test_a_number_beyond_measure_counts_as_it_is_written() -> None:
    """Whether the handler takes it for a number, only the handler knows: the request is passed on to it."""
    assert len({of("1e999999999"), of("10e999999998"), of("1e999999998"), of("Infinity")}) == 4


def test_bytes_that_are_not_text_are_counted() -> None:
    assert of(b"\xff\xfe") != of(b"\xff\xfd")


def test_a_streamed_body_is_told_from_one_in_memory() -> None:
    assert fingerprint_of_stream("POST", "/p", b"", "", b"x" * 32) != of(b"x" * 32, media="")


def test_parameters_of_the_media_type_do_not_count() -> None:
    assert media_type("Application/JSON; charset=utf-8") == JSON


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES, VALUES)
def test_values_have_equal_fingerprints_exactly_when_they_are_equal(one: object, other: object) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (of(json.dumps(one)) == of(json.dumps(other, indent=1))) is same
