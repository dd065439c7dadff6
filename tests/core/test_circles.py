"""Models whose private attributes lead back to what they are a part of."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pydantic import BaseModel, PrivateAttr

from umavez.core.encoding.codec import JsonCodec
from umavez.core.key import Key
from umavez.errors import NotStorable

CODEC = JsonCodec()
KEY = Key("scope", "operation", "key")


class Branch(BaseModel):
    """Knows its parent, and beyond it whatever it was told of."""

    number: int
    parts: list[Branch] = []
    _parent: Branch | None = PrivateAttr(None)
    _near: Any = PrivateAttr(None)
    _seen: list[Any] = PrivateAttr(default_factory=list)


class Fickle(BaseModel):
    """Cannot be made again as it is now."""

    number: int
    _client: Any = PrivateAttr(None)

    def model_post_init(self, _: Any) -> None:
        """Refuse what came later."""
        if self.number == 2:
            raise RuntimeError("two")


def tree() -> Branch:
    root = Branch(number=0, parts=[Branch(number=1), Branch(number=2)])
    for part in root.parts:
        part._parent = root
        part._near = "kept"
    return root


def back(value: Any) -> Any:
    return CODEC.decode(CODEC.encode(value, KEY), KEY)


def test_a_way_back_to_the_whole_is_left_to_the_class() -> None:
    found = back(tree())

    assert found.model_dump() == tree().model_dump()
    assert [(part._parent, part._near) for part in found.parts] == [(None, "kept")] * 2


def test_a_part_alone_comes_without_its_whole() -> None:
    found = back(tree().parts[0])

    assert (found.number, found._parent, found._near) == (1, None, "kept")


def test_what_two_models_share_is_no_circle() -> None:
    shared = Branch(number=3)
    pair = [Branch(number=1), Branch(number=2)]
    for one in pair:
        one._near = shared

    assert back(pair) == pair


def test_a_circle_where_the_class_begins_with_something_else_is_refused() -> None:
    root = tree()
    root.parts[0]._seen.append(root)

    with pytest.raises(NotStorable, match=r"private attribute _seen of .*:Branch cannot be kept"):
        CODEC.encode(root, KEY)


def test_many_ways_around_are_not_all_gone() -> None:
    """The effect has happened when the result is written: whoever waits for it waits with the key."""
    many = [Branch(number=number) for number in range(40)]
    for one in many:
        one._near = many
    began = time.process_time()

    assert [one._near for one in back(many)] == [None] * 40
    assert time.process_time() - began < 5


def test_a_model_that_cannot_be_made_again_says_what_cannot_be_kept() -> None:
    value = Fickle(number=1)
    value.number = 2
    value._client = object()

    with pytest.raises(NotStorable, match=r"private attribute _client of .*:Fickle cannot be kept"):
        CODEC.encode(value, KEY)
