from __future__ import annotations

import dataclasses
from typing import Self

import pytest

from umavez.core.encoding.codec import JsonCodec
from umavez.core.encoding.refusal import revived, written
from umavez.core.key import Key
from umavez.errors import Refused

KEY = Key("shop", "charge", "42")
CODEC = JsonCodec()


class NoFunds(Exception):
    """Its constructor asks for more than its arguments keep."""

    def __init__(self, account: str, missing: int) -> None:
        super().__init__(f"{account} lacks {missing}")
        self.account = account
        self.missing = missing


class Attached(Exception):
    def __init__(self, thing: object) -> None:
        super().__init__("attached")
        self.thing = thing


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """Lets nobody set anything."""

    amount: int


def back(error: BaseException) -> BaseException:
    return revived(written(error, CODEC, KEY), CODEC, KEY)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        KeyError("name"),
        ValueError(),
        OSError(2, "gone"),
        RuntimeError("a", 1, None),
        OSError(2, "gone", "a.txt"),
        FileNotFoundError(2, "gone", "a.txt", None, "b.txt"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        SyntaxError("invalid", ("a.py", 1, 2, "1+", 1, 2)),
        StopIteration(3),
        Frozen(3),
    ],
    ids=repr,
)
def test_a_refusal_comes_back_with_its_type_message_and_arguments(error: Exception) -> None:
    again = back(error)

    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.args == error.args
    for name in ("errno", "filename", "filename2", "object", "start", "lineno", "value", "amount"):
        assert getattr(again, name, None) == getattr(error, name, None)


def test_attributes_come_back_without_calling_the_constructor() -> None:
    again = back(NoFunds("ana", 7))

    assert isinstance(again, NoFunds)
    assert (again.account, again.missing, str(again)) == ("ana", 7, "ana lacks 7")


def test_what_cannot_be_kept_of_an_error_is_left_out_and_its_message_stays() -> None:
    again = back(Attached(object()))

    assert str(again) == "attached"
    assert isinstance(again, Attached | Refused)


def test_a_type_that_is_not_loaded_comes_back_as_refused() -> None:
    text = written(NoFunds("ana", 7), CODEC, KEY).replace("NoFunds", "Vanished")

    again = revived(text, CODEC, KEY)

    assert isinstance(again, Refused)
    assert str(again) == "ana lacks 7"
    assert again.kind.endswith("Vanished")


@pytest.mark.parametrize("name", ["builtins:print", "builtins:SystemExit", "builtins:dict", "os:system"])
def test_stored_text_cannot_name_something_else_than_an_exception(name: str) -> None:
    assert isinstance(revived(f'{{"error":"{name}","message":"m"}}', CODEC, KEY), Refused)


class Picky(Exception):
    """Its own __new__ asks for what is not kept."""

    def __new__(cls, *, code: int = 0) -> Self:
        return super().__new__(cls, code)

    def __init__(self, *, code: int = 0) -> None:
        super().__init__(f"code {code}")


class Spoken(Exception):
    """Its text is made of an attribute."""

    def __init__(self, thing: object) -> None:
        super().__init__()
        self.thing = thing

    def __str__(self) -> str:
        return f"it was {self.thing.__class__.__name__}"


class Mute(Exception):
    """Its text cannot be made at all."""

    def __str__(self) -> str:
        raise AttributeError("code")


class Told(Exception):
    """Its text needs an attribute that may not have been kept."""

    def __init__(self, thing: object) -> None:
        super().__init__()
        self.thing = thing
        self.text = "told"

    def __str__(self) -> str:
        return self.text


@pytest.mark.parametrize(
    "error",
    [
        ExceptionGroup("both", [ValueError("a"), KeyError("b")]),
        Picky(code=4),
        Spoken(object()),
        Told(object()),
        Mute(),
        ValueError("\ud800 is no text"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_refusal_that_cannot_be_rebuilt_comes_back_with_its_words(error: Exception) -> None:
    again = back(error)

    assert isinstance(again, Refused | type(error))
    if not isinstance(error, Mute):
        assert str(again) == str(error).replace("\ud800", "?")
    assert str(back(error)) == str(again)
