"""The Idempotency-Key field: one key out of many spellings, and a clear refusal of everything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umavez.http.contract.header import KeyFormat
from umavez.http.contract.problem import KEY_INVALID, KEY_MISSING, KEY_REPEATED, Problem

KEYS = KeyFormat()


@pytest.mark.parametrize(
    "sent",
    ["8e03978e", '"8e03978e"', "  8e03978e\t", '"8e03978e" ', '"8e03978e";a=1', '"8e03978e"; v; n=2'],
)
def test_bare_quoted_and_parametered_forms_are_one_key(sent: str) -> None:
    assert KEYS.key([sent]) == "8e03978e"


@pytest.mark.parametrize(("sent", "key"), [(r'"a\"b"', 'a"b'), (r'"a\\b"', r"a\b"), ('"a,b"', "a,b"), ('"a;b"', "a;b")])
def test_a_quoted_key_may_hold_what_a_bare_one_may_not(sent: str, key: str) -> None:
    assert KEYS.key([sent]) == key


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        ([], KEY_MISSING),
        ([""], KEY_MISSING),
        (["   "], KEY_MISSING),
        (["a", "a"], KEY_REPEATED),
        (["a,b"], KEY_REPEATED),
        (['"a", "b"'], KEY_REPEATED),
        (['"a"'] * 2, KEY_REPEATED),
        (['""'], KEY_INVALID),
        (['"a'], KEY_INVALID),
        (['a"b'], KEY_INVALID),
        ([r'"a\n"'], KEY_INVALID),
        (["a b"], KEY_INVALID),
        (['"a b"'], KEY_INVALID),
        (["ключ"], KEY_INVALID),
        (["a\x00b"], KEY_INVALID),
        (["a\r\nSet-Cookie: x"], KEY_INVALID),
        (["x" * 256], KEY_INVALID),
        (["a;b"], KEY_INVALID),
    ],
)
def test_what_is_not_one_key_is_refused(sent: list[str], kind: object) -> None:
    with pytest.raises(Problem) as caught:
        KEYS.key(sent)
    assert caught.value.kind is kind


def test_the_longest_key_is_accepted() -> None:
    assert KEYS.key(["x" * 255]) == "x" * 255


def test_a_service_may_ask_for_a_form() -> None:
    uuids = KeyFormat(shortest=36, pattern=r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
    assert uuids.key(["8e03978e-40d5-43dd-bc93-6894a57f9324"])
    for sent in ("short", "z" * 36):
        with pytest.raises(Problem):
            uuids.key([sent])


@given(st.lists(st.text(max_size=300), max_size=3))
def test_no_field_value_does_worse_than_a_problem_that_does_not_repeat_it(values: list[str]) -> None:
    key = found(values)
    if isinstance(key, Problem):
        assert key.kind.status == 400
        assert key.detail.isprintable()
    else:
        assert all("!" <= mark <= "~" for mark in key)


def found(values: list[str]) -> str | Problem:
    try:
        return KEYS.key(values)
    except Problem as problem:
        return problem


@given(st.text(alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=50))
def test_every_key_survives_being_quoted(key: str) -> None:
    quoted = '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert KEYS.key([quoted]) == key
