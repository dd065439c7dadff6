"""Values on their way to PostgreSQL: the short way of a swap gives what the long one gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umavez.core.flow import Swap
from umavez.core.key import Key
from umavez.core.record import Draft, Settled, Status
from umavez.errors import NotStorable
from umavez.stores.postgres import statements as sql
from umavez.stores.postgres.values import parameters, plainly, swapping

KEY = Key("s", "op", "chave-á")
TEXT = st.none() | st.text(st.characters(exclude_categories=["Cs"]))
MILLIS = st.none() | st.integers(-(2**63), 2**63 - 1)
SETTLED = st.none() | st.builds(Settled, st.booleans(), TEXT)


class Shouted(str):
    """A text of somebody's own."""

    __slots__ = ()


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    return Draft(
        KEY,
        draw(st.text(st.characters(exclude_categories=["Cs"]))),
        draw(st.sampled_from(Status)),
        draw(st.booleans()),
        draw(st.integers(0, 2**31 - 1)),
        draw(MILLIS),
        draw(MILLIS),
        draw(TEXT),
        draw(TEXT),
        draw(TEXT),
        draw(SETTLED),
        draw(TEXT),
        draw(TEXT),
        draw(TEXT),
        fresh=draw(st.booleans()),
    )


@given(drafts(), TEXT, st.integers(-(2**40), 2**40))
def test_written_out_a_swap_is_what_its_values_say(draft: Draft, expected: str | None, offset: int) -> None:
    swap = Swap(expected, draft)
    text, values = swapping(swap, offset)
    assert plainly(swap, offset) == (sql.UPDATE_PLAIN if text == sql.UPDATE else text, parameters(values))


def claim(**changes: Any) -> Swap:
    return Swap(None, Draft(KEY, "a", Status.PENDING, True, 1, 30_000)._replace(**changes))


@pytest.mark.parametrize("wrong", [{"process_instance": 7.5}, {"activity": object()}, {"lease": 1.5}])
def test_what_is_neither_text_nor_a_number_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(NotStorable, match="cannot be stored"):
        plainly(claim(**wrong), 0)


@pytest.mark.parametrize("field", ["fingerprint", "process_instance", "activity", "error", "progress", "evidence"])
def test_a_text_that_cannot_be_sent_is_refused_with_its_key(field: str) -> None:
    with pytest.raises(NotStorable, match="lone surrogate"):
        plainly(claim(**{field: "\ud800"}), 0)


def test_a_text_of_somebodys_own_is_sent_as_text() -> None:
    assert plainly(claim(error=Shouted("ah")), 0) == plainly(claim(error="ah"), 0)
