"""The systems' house rules: they use the engine's public parts, and never each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import umavez_systems

SOURCE = Path(umavez_systems.__file__).parent
SYSTEMS = ("propostas", "corridas", "processos", "mailing", "fiscal")
PUBLIC = {
    "umavez",
    "umavez.cli.stopping",
    "umavez.concurrency",
    "umavez.console",
    "umavez.encryption",
    "umavez.failures",
    "umavez.http",
    "umavez.http.asgi",
    "umavez.http.client",
    "umavez.http.fastapi",
    "umavez.leases",
    "umavez.messaging",
    "umavez.messaging.rabbitmq",
    "umavez.migration",
    "umavez.observe",
    "umavez.observe.audit",
    "umavez.observe.metrics",
    "umavez.observe.minutes",
    "umavez.observe.tracing",
    "umavez.postgres",
    "umavez.reconcile",
    "umavez.retry",
    "umavez.row_leases",
    "umavez.sequences",
    "umavez.sweep",
    "umavez.tokens",
}
"""The engine's doors. What a system needs from behind them is put on a door first, for every customer."""
MODULES = sorted(SOURCE.rglob("*.py"))
OWN_ROWS = (
    "corridas/database.py",
    "corridas/web.py",
    "fiscal/atos/emission.py",
    "fiscal/atos/governor.py",
    "fiscal/organizations.py",
    "fiscal/simulador/faults.py",
    "fiscal/simulador/keeper.py",
    "fiscal/views.py",
    "fiscal/wire/nfe.py",
    "mailing/ingest/dialect.py",
    "mailing/letters/composing.py",
    "mailing/views.py",
    "processos/attempts.py",
    "processos/views.py",
)
"""Modules that parse JSON which this system itself has written into a row or a file of its own."""


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
    """X.01."""
    assert not {name for name in imported(path) if name.partition(".")[0] == "umavez"} - PUBLIC
    own = path.relative_to(SOURCE).parts[0]
    if own in SYSTEMS:
        others = tuple(f"umavez_systems.{name}" for name in SYSTEMS if name != own)
        assert not [name for name in imported(path) if name.startswith(others)]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_json_of_strangers_is_parsed_within_bounds(path: Path) -> None:
    """exact_json for requests, BoundedJson for what other services answer; json.loads for rows of one's own."""
    called = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
    unbounded = {name for name in called if name in ("json.loads", "json.load") or name.endswith(".json")}
    assert not unbounded or path.relative_to(SOURCE).as_posix() in OWN_ROWS


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_is_too_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_has_the_same_files(system: str) -> None:
    names = {path.name for path in (SOURCE / system).iterdir()}
    assert {"README.md", "domain.py", "operations.py", "database.py", "web.py"} <= names


def test_every_line_of_the_requirements_is_named_by_a_test() -> None:
    lines = {"S0": 16, "S1": 12, "S2": 13, "S3": 11, "S4": 13, "X": 5}
    tests = "".join(path.read_text().lower() for path in sorted(Path(__file__).parent.parent.rglob("test_*.py")))

    wanted = [(part, number) for part, last in lines.items() for number in range(1, last + 1)]
    named = [f"{part}.{number:02}" for part, number in wanted]
    assert [name for name in named if name.lower() not in tests and name.lower().replace(".", "_") not in tests] == []
