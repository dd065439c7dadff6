"""Place: where a function was written, to tell two functions of one name from one that is declared anew."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple


class _Itself:
    """Something that equals itself alone; held, so that nothing new can pass for it."""

    __slots__ = ("_held",)

    def __init__(self, held: object) -> None:
        self._held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self._held is other._held

    def __hash__(self) -> int:
        return id(self._held)


class Place(NamedTuple):
    """Of a function: its module and name; the run of its module's code; where in it the function begins."""

    name: str
    run: tuple[Any, ...]
    begins: tuple[int, int]

    def is_not(self, other: Place) -> bool:
        """Whether these are two functions.

        A module that is loaded again and a cell that is run again may have moved what they declare; but within one run
        two places are two functions, though both be called `<lambda>`. One that is made again and again is one.
        """
        return self.name != other.name or (self._same_run(other) and self.begins != other.begins)

    def _same_run(self, other: Place) -> bool:
        return self.run != () and self.run == other.run

    def told(self, other: Place) -> str:
        """The function, for people; with its line where the name is that of the other, too."""
        return self.name if self.name != other.name else f"{self.name} of line {self.begins[0]}"


def place_of(function: Callable[..., Any]) -> Place:
    """Where `function` was written, seen through partials and wrappers."""
    inner: Any = function
    while isinstance(inner, partial):
        inner = inner.func
    name = f"{getattr(inner, '__module__', None)}.{getattr(inner, '__qualname__', type(inner).__qualname__)}"
    inner = inspect.unwrap(inner)
    code, space = getattr(inner, "__code__", None), getattr(inner, "__globals__", None)
    if code is None or space is None:
        return Place(name, (), (0, 0))
    # Typed in by hand, every statement is a run of its own.
    typed = hasattr(sys, "ps1") and code.co_filename.startswith("<")
    # A reload gives the module another spec; a notebook gives the file of an edited cell another name.
    run = () if typed else (code.co_filename, _Itself(space), _Itself(space.get("__spec__")))
    starts = [(line, column) for line, _, column, _ in code.co_positions() if line is not None and column]
    return Place(name, run, min(starts, default=(code.co_firstlineno, 0)))
