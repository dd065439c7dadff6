from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umavez.core.key import MAX_LENGTH, Key, derived_key
from umavez.errors import InvalidKey

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)


@given(st.tuples(TEXT, TEXT, TEXT), st.tuples(TEXT, TEXT, TEXT))
def test_keys_are_equal_exactly_when_their_three_texts_are(one: Any, other: Any) -> None:
    assert (Key(*one) == Key(*other)) is (one == other)
    assert Key(*one) == Key(*one)
    assert hash(Key(*one)) == hash(Key(*one))


@given(TEXT, st.integers(0, 40), st.integers(0, 40))
def test_moving_the_boundaries_of_one_text_makes_another_key(text: str, first: int, second: int) -> None:
    whole = "ab" + text + "cd"
    cuts = sorted({1 + first % (len(whole) - 2), 2 + second % (len(whole) - 2)})
    if len(cuts) < 2:
        return

    cut = (whole[: cuts[0]], whole[cuts[0] : cuts[1]], whole[cuts[1] :])

    if cut != ("a", "b", whole[2:]):
        assert Key(*cut).digest != Key("a", "b", whole[2:]).digest


def test_a_digest_never_changes_between_versions() -> None:
    """Stored records are found by it: changing it would run everything again."""
    assert Key("shop", "charge", "42").digest.hex() == (
        "65bc629f65b53bb214df9e4eb6f2ba1ad1363e0325b83b326721b96f88e98d60"
    )


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ("", "is empty"),
        ("x" * 256, "256 characters"),
        ("🚕" * 256, "256 characters"),
        ("\ud800", "lone surrogate"),
        ("é\udfff", "lone surrogate"),
        ("a\0b", "holds NUL"),
        (42, "must be text, not int"),
        (None, "must be text, not NoneType"),
        (b"bytes", "must be text, not bytes"),
    ],
)
def test_a_part_that_cannot_name_anything_is_refused_in_one_sentence(part: int, bad: Any, sentence: str) -> None:
    parts: list[Any] = ["shop", "charge", "42"]
    parts[part] = bad

    with pytest.raises(InvalidKey, match=sentence) as caught:
        Key(*parts)

    assert ("scope", "operation", "value")[part] in str(caught.value)


@pytest.mark.parametrize("longest", ["a" * MAX_LENGTH, "é" * MAX_LENGTH, "🚕" * MAX_LENGTH])
def test_255_characters_of_any_width_are_a_key(longest: str) -> None:
    assert len(Key(longest, longest, longest).digest) == 32


def test_a_key_shows_what_it_names() -> None:
    key = Key("shop", "charge", "42")

    assert repr(key) == "Key('shop', 'charge', '42')"
    assert str(key) == "charge '42' of 'shop'"
    assert key != "charge"


def test_s3_02_a_derived_key_holds_instance_activity_operation_and_the_digest_of_the_input() -> None:
    derived = derived_key("proc-1", "Task_Submit", "submit_claim", {"claim": 7})

    head, _, digest = derived.rpartition("_")
    assert head == "proc-1_Task_Submit_submit_claim"
    assert len(digest) == 64


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=6), st.randoms())
def test_s3_02_the_order_of_the_input_does_not_matter(inputs: dict[str, Any], chance: Any) -> None:
    names = list(inputs)
    chance.shuffle(names)

    shuffled = {name: inputs[name] for name in names}

    assert derived_key("p", "a", "o", inputs) == derived_key("p", "a", "o", shuffled)


def test_s3_02_another_input_is_another_key_and_time_is_no_part_of_it() -> None:
    assert derived_key("p", "a", "o", {"n": 1}) != derived_key("p", "a", "o", {"n": 2})
    assert derived_key("p", "a", "o", {"n": 1}) == derived_key("p", "a", "o", {"n": 1})


def test_s3_02_a_long_derived_key_is_hashed_to_at_most_255_characters() -> None:
    one = derived_key("p" * 64, "a" * 255, "o" * 100, {})
    other = derived_key("p" * 63 + "q", "a" * 255, "o" * 100, {})

    assert max(len(one), len(other)) <= MAX_LENGTH
    assert one != other
    assert one.startswith("o" * 100)
    assert derived_key("p_a" * 90, "x", "o", {}) != derived_key("p", "a" + "p_a" * 89 + "_x", "o", {})


def test_s3_02_joined_parts_that_read_alike_are_different_keys() -> None:
    inputs = {"lote": 1}
    one, other = derived_key("a_b", "c", "submit", inputs), derived_key("a", "b_c", "submit", inputs)

    assert one != other
    assert one.startswith("a_b_c_submit_")
    assert other.startswith("a_b_c_submit_")
    assert derived_key("a__b", "c", "submit", inputs) != derived_key("a_", "b_c", "submit", inputs)
