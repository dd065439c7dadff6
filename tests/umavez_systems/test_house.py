"""The systems' house rules: they use the engine's public parts, and never each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import umavez_systems

SOURCE = Path(umavez_systems.__file__).parent
SYSTEMS = ("propostas", "corridas", "processos")
PRIVATE = ("umavez.core", "umavez.stores", "umavez.plan", "umavez.attempt", "umavez.admission", "umavez.heart")
MODULES = sorted(SOURCE.rglob("*.py"))


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_system_uses_public_names_and_no_other_system(path: Path) -> None:
    assert not [name for name in imported(path) if name.startswith(PRIVATE)]
    own = path.relative_to(SOURCE).parts[0]
    if own in SYSTEMS:
        others = tuple(f"umavez_systems.{name}" for name in SYSTEMS if name != own)
        assert not [name for name in imported(path) if name.startswith(others)]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_is_too_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_has_the_same_files(system: str) -> None:
    names = {path.name for path in (SOURCE / system).iterdir()}
    assert {"README.md", "domain.py", "operations.py", "database.py", "web.py"} <= names
