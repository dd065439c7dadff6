"""The laws themselves are put to the test: each broken store must be caught by the law that names its fault."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module

import pytest

from umavez.errors import ClaimLost
from umavez.stores.memory import MemoryStore
from umavez.testing import Bench, ManualClock, broken, laws

CAUGHT = (AssertionError, ClaimLost)
"""How a law shows: its own assertion, or an owner that is told it lost what it holds."""


def _names(case: object) -> str:
    return case.store.__name__ if isinstance(case, broken.Broken) else ""


@pytest.mark.parametrize("case", broken.ALL, ids=_names)
def test_the_law_that_names_the_fault_catches_it(case: broken.Broken) -> None:
    clock = ManualClock()

    with pytest.raises(CAUGHT):
        case.law(Bench(case.store(clock), clock))


@pytest.mark.parametrize("case", broken.ALL, ids=_names)
def test_that_law_lets_a_sound_store_pass(case: broken.Broken) -> None:
    clock = ManualClock()

    case.law(Bench(MemoryStore(clock), clock))


def test_every_broken_store_of_the_package_is_listed() -> None:
    modules = [import_module(f"{broken.__name__}.{found.name}") for found in pkgutil.iter_modules(broken.__path__)]
    defined = {
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, MemoryStore) and kind is not MemoryStore
    }

    assert defined - {case.store for case in broken.ALL} == {broken.Renaming}
    assert len(modules) >= 4
    assert len(broken.ALL) >= 35


def test_laws_have_names_that_no_two_share() -> None:
    names = [laws.name(law) for law in laws.ALL]

    assert len(set(names)) == len(names) >= 40
    assert all(law.__doc__ for law in laws.ALL)


def test_every_law_of_a_module_is_listed() -> None:
    """A law that is written but not listed would never run."""
    listed = set(laws.ALL)
    modules = {law.__module__ for law in laws.ALL}
    for module in modules:
        for name, thing in vars(sys.modules[module]).items():
            if callable(thing) and getattr(thing, "__module__", "") == module and not name.startswith("_"):
                assert thing in listed, f"{module}.{name} is not in LAWS"
