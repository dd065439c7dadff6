"""The reference names all that is public, and the how-to pages every setting, with the default that it has."""

from __future__ import annotations

import importlib
import re
from dataclasses import fields
from pathlib import Path

import pytest

import umavez
from umavez import Once, Policy, UmavezError
from umavez_systems.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = (DOCS / "reference" / "api.md").read_text()
PAGES = "\n".join(page.read_text() for page in sorted((DOCS / "howto").glob("*.md")))
ROW = re.compile(r"^\| `UMAVEZ_([A-Z_]+)` \| ([0-9]+) \|", re.MULTILINE)
PUBLIC = [getattr(umavez, name) for name in umavez.__all__]
METHODS = ("operation", "run", "attempt", "joined", "get", "find", "history", "resolve", "release", "sweep", "migrate")
ERRORS = [each.__name__ for each in PUBLIC if isinstance(each, type) and issubclass(each, UmavezError)]


@pytest.mark.parametrize("name", [name for name in ERRORS if name not in ("UmavezError", "StoreError")])
def test_every_error_stands_in_the_reference(name: str) -> None:
    assert f"| `{name}`" in REFERENCE or f", `{name}`" in REFERENCE


@pytest.mark.parametrize("name", umavez.__all__)
def test_every_public_name_stands_in_the_reference(name: str) -> None:
    assert re.search(rf"`{name}\b", REFERENCE), name


@pytest.mark.parametrize("module", sorted(set(re.findall(r"^\| .*?`(umavez\.[a-z_.]+)`", REFERENCE, re.MULTILINE))))
def test_every_name_of_another_door_stands_in_the_reference(module: str) -> None:
    found = importlib.import_module(module)
    missing = [name for name in getattr(found, "__all__", ()) if not re.search(rf"`{name}\b", REFERENCE)]
    assert not missing


@pytest.mark.parametrize("name", [each.name for each in fields(Policy) if each.init])
def test_every_option_of_an_operation_stands_in_the_reference(name: str) -> None:
    assert f"| `{name}` |" in REFERENCE


@pytest.mark.parametrize("name", METHODS)
def test_every_method_stands_in_the_reference(name: str) -> None:
    assert hasattr(Once, name)
    assert f"`{name}(" in REFERENCE


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_stands_in_a_how_to(name: str) -> None:
    assert f"`UMAVEZ_{name.upper()}`" in PAGES or f"UMAVEZ_{name.upper()}=" in PAGES


def test_defaults_are_those_of_the_settings() -> None:
    told = [(name, float(default)) for name, default in ROW.findall(PAGES)]
    assert len(told) > 30
    assert told == [(name, float(Settings.model_fields[name.lower()].default)) for name, _ in told]
