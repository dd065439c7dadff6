"""Places: two functions under one name are refused, whatever both are called; one that is declared anew is not."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from umavez import AsyncOnce, ConfigurationError, Once

REFUSED = r"'pay' is .* of line \d+ already; give .* of line \d+ an operation of its own"


@pytest.fixture
def once() -> Once:
    return Once("memory:", scope="shop")


def pay(once: Any) -> Callable[[Any], Any]:
    declared: Callable[[Any], Any] = once.operation("pay", key=lambda order: order, unknown="rerun")
    return declared


def test_two_lambdas_under_one_name_are_refused(once: Once) -> None:
    charge = pay(once)(lambda order: f"charged {order}")
    with pytest.raises(ConfigurationError, match=REFUSED):
        pay(once)(lambda order: f"refunded {order}")
    assert charge("A") == "charged A"


def test_two_lambdas_of_one_line_are_two(once: Once) -> None:
    functions = [lambda order: f"charged {order}", lambda order: f"refunded {order}"]
    pay(once)(functools.partial(functions[0]))
    with pytest.raises(ConfigurationError, match=REFUSED):
        pay(once)(functools.partial(functions[1]))


def test_two_functions_of_one_name_are_two() -> None:
    once = AsyncOnce("memory:", scope="shop")

    @pay(once)
    async def _(order: str) -> str:
        return f"charged {order}"

    with pytest.raises(ConfigurationError, match=REFUSED):

        @pay(once)
        async def _(order: str) -> str:
            return f"refunded {order}"


def tried(function: Callable[[str], str]) -> Callable[[str], str]:
    @functools.wraps(function)
    def trying(order: str) -> str:
        return function(order)

    return trying


def test_two_functions_of_one_name_behind_one_wrapper_are_two(once: Once) -> None:
    @pay(once)
    @tried
    def _(order: str) -> str:
        return f"charged {order}"

    with pytest.raises(ConfigurationError, match=REFUSED):

        @pay(once)
        @tried
        def _(order: str) -> str:
            return f"refunded {order}"


def test_a_refused_declaration_leaves_the_first_one_as_it_was(once: Once) -> None:
    def another(order: str) -> str:
        return order

    pay(once)(lambda order: order)
    with pytest.raises(ConfigurationError, match="another"):
        once.operation("pay", key=lambda order: order, unknown="hold")(another)
    with pytest.raises(ConfigurationError, match="asks for 'invoice'"):
        once.operation("pay", key=lambda invoice: invoice, unknown="hold")(lambda order: order)
    assert once.plans.declarations["pay"].policy.unknown == "rerun"


def test_what_is_made_again_and_again_is_one(once: Once) -> None:
    for number in range(3):
        assert pay(once)(lambda order, by=number: f"{order} by {by}")(str(number)) == f"{number} by {number}"


def test_run_takes_any_call(once: Once) -> None:
    assert once.run("pay", key="A", call=lambda: "charged", unknown="rerun").value == "charged"
    assert once.run("pay", key="B", call=lambda: "refunded", unknown="rerun").value == "refunded"


MODULE = """
from places_engine import once
{space}
charge = once.operation("pay", key=lambda order: order, unknown="rerun")(lambda order: f"{word} {{order}}")
"""


def test_a_module_that_is_loaded_again_may_have_moved_its_functions(
    once: Once, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    engine: Any = type(sys)("places_engine")
    engine.once = once
    monkeypatch.setitem(sys.modules, "places_engine", engine)
    file = tmp_path / "places_declared.py"
    file.write_text(MODULE.format(space="", word="charged"))
    module = importlib.import_module("places_declared")
    try:
        assert module.charge("A") == "charged A"
        file.write_text(MODULE.format(space="\n\n", word="booked"))
        importlib.reload(module)
        assert (module.charge("A"), module.charge("B")) == ("charged A", "booked B")
        importlib.reload(module)
    finally:
        del sys.modules["places_declared"]


def test_a_cell_that_is_run_again_may_have_been_edited(once: Once) -> None:
    space: dict[str, Any] = {"once": once, "__name__": "__main__"}
    cell = 'charge = once.operation("pay", key=lambda order: order, unknown="rerun")(lambda order: order)'
    for text in (cell, cell, f"# edited\n  \n{cell}"):
        exec(compile(text, f"/cells/{hash(text)}.py", "exec"), space)  # noqa: S102  # as a notebook does
    with pytest.raises(ConfigurationError, match=REFUSED):
        exec(compile(f"{cell}\n{cell}", "/cells/2.py", "exec"), space)  # noqa: S102  # as above


def test_what_is_typed_again_by_hand_is_no_other_function(once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    space: dict[str, Any] = {"once": once, "__name__": "__main__"}
    for text in ("charge = pay(lambda order: order)", "charge =  pay(lambda order: order)"):
        space["pay"] = pay(once)
        exec(compile(text, "<stdin>", "exec"), space)  # noqa: S102  # as the prompt does


def test_what_has_no_code_of_python_s_has_its_name(once: Once) -> None:
    assert once.operation("text", key=lambda obj: obj, unknown="rerun")(ascii)(5) == "5"
    assert once.operation("text", key=lambda obj: obj, unknown="rerun")(ascii)(5) == "5"
    with pytest.raises(ConfigurationError, match=r"builtins\.id an operation of its own"):
        once.operation("text", key=lambda obj: obj, unknown="rerun")(id)
