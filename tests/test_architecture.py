"""The house rules that a machine can hold: import direction, one text for sync and async, sizes, names, the map."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import umavez
import umavez_systems
from tools import pictures, sync

SOURCE = Path(umavez.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

# Each layer may import itself and what stands before it. Longest prefix wins.
LAYERS = [
    ("umavez.errors", "umavez.clock", "umavez.backoff", "umavez.core"),
    ("umavez.concurrency",),
    ("umavez.sql.joining",),
    ("umavez.stores",),
    ("umavez.sql", "umavez.engine", "umavez.sequences"),
    ("umavez._async", "umavez._sync"),
    ("umavez",),
    ("umavez.cli", "umavez.console"),
]
FREE = ("umavez.testing",)
"""Shipped for tests: may import anything but the systems."""

DOORS = ("umavez", "umavez.sequences")
"""Packages whose `__init__` gathers public names from above its own layer."""


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> int:
    """The layer of a module: that of its longest listed prefix; what is not listed is an instrument."""
    ranked = [
        (len(prefix), rank)
        for rank, layer in enumerate(LAYERS)
        for prefix in layer
        if module == prefix or (module.startswith(prefix + ".") and prefix != "umavez")
    ]
    return max(ranked)[1] if ranked else layer_of("umavez")


def imports_of(path: Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append(node.module)
        elif isinstance(node, ast.Import):
            found.extend(alias.name for alias in node.names)
    return [name for name in found if name.partition(".")[0] in ("umavez", "umavez_systems")]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_one_way(path: Path) -> None:
    module = name_of(path)
    if module in DOORS or module.startswith(FREE):
        assert not [name for name in imports_of(path) if name.startswith("umavez_systems")]
        return
    upward = [name for name in imports_of(path) if layer_of(name) > layer_of(module)]
    assert not upward, f"{module} imports {upward} from a layer above its own"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_module_is_too_long_or_badly_named(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400
    banned = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
    assert not banned & set(path.relative_to(SOURCE).with_suffix("").parts)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_functions_fit_in_the_eye(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = [
                part for part in node.body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
            ]
            lines = 0 if not body else (body[-1].end_lineno or 0) - body[0].lineno + 1
            assert lines <= 40, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("source", sync.PAIRS, ids=name_of)
def test_the_synchronous_text_is_the_asynchronous_one(source: Path) -> None:
    wanted = sync.synchronous(source.read_text(), str(source.relative_to(sync.ROOT)))

    assert sync.PAIRS[source].read_text() == wanted, "run `make format`"


def test_every_synchronous_module_is_written_by_the_tool() -> None:
    found = {*SOURCE.rglob("_sync.py"), *SOURCE.rglob("_sync/*.py")}

    assert {path for path in found if path.name != "__init__.py"} == set(sync.PAIRS.values())


def test_the_check_of_the_two_texts_notices_one_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = next(iter(sync.PAIRS.items()))
    changed = tmp_path / target.name
    changed.write_text(target.read_text().replace("return", "raise", 1))
    monkeypatch.setattr(sync, "PAIRS", {source: changed})

    assert sync.main(["--check"]) == 1
    assert str(changed) in capsys.readouterr().out
    assert sync.main([]) == 0
    assert changed.read_text() == target.read_text()


def test_public_names_are_listed_sorted_and_there() -> None:
    assert umavez.__all__ == sorted(umavez.__all__)
    assert all(hasattr(umavez, name) for name in umavez.__all__)


def test_the_engine_and_its_embedded_stores_need_the_standard_library_only() -> None:
    program = (
        "import sys, umavez;"
        "once = umavez.Once('sqlite:///' + sys.argv[1], scope='s');"
        "print(once.run('o', key='1', call=lambda: 7, unknown='rerun').value)"
    )
    with tempfile.TemporaryDirectory() as folder:
        # -S: no site-packages, so nothing but the standard library and this source can be imported.
        done = subprocess.run(
            [sys.executable, "-S", "-c", program, f"{folder}/once.db"],
            env={"PYTHONPATH": str(SOURCE.parent)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.stdout, done.stderr) == ("7\n", "")


ROOT = SOURCE.parents[1]
MAP = (ROOT / "ARCHITECTURE.md").read_text()
PACKAGES = sorted(
    {path.parent for tree in (umavez, umavez_systems) for path in Path(tree.__file__ or "").parent.rglob("*.py")}
)
CROWDED = {
    "umavez_systems": 15,
}
"""Rooms with more modules than a room should have, and how many: they may get fewer, never more."""


def room(package: Path) -> str:
    return package.relative_to(SOURCE.parent).as_posix()


def test_the_map_names_every_room_and_none_that_is_not_there() -> None:
    named = set(re.findall(r"^\| `((?:umavez|umavez_systems)(?:/\w+)*)/` \|", MAP, re.MULTILINE))

    assert named == {room(package) for package in PACKAGES}


def test_the_files_that_the_map_names_are_there() -> None:
    named = re.findall(r"`((?:src|tests|tools|docs)/[\w/.-]+|(?:core|cli|testing)/[\w/.]+)`", MAP)

    assert len(named) > 8
    missing = [name for name in named if not any((base / name).exists() for base in (ROOT, SOURCE))]
    assert not missing


@pytest.mark.parametrize("package", PACKAGES, ids=room)
def test_no_room_is_crowded(package: Path) -> None:
    modules = [path for path in package.glob("*.py") if not path.stem.startswith("__")]

    assert len(modules) <= CROWDED.get(room(package), 14), "make rooms of it"


def test_the_pictures_are_what_their_texts_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(pictures.FOLDER.glob("*.txt"))
    assert pictures.main(["--check"]) == 0, "run `make format`"
    with pytest.raises(ValueError, match="is no line of a picture"):
        pictures.svg("Title\na b\nnonsense")


def test_nobody_waits_by_what_swallows_a_cancellation() -> None:
    """asyncio.wait_for does in Python 3.11; `async with asyncio.timeout(…)` does not."""
    trees = (Path(umavez.__file__ or "").parent, Path(umavez_systems.__file__ or "").parent)
    calls = [
        path.name
        for tree in trees
        for path in sorted(tree.rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "asyncio.wait_for"
    ]
    assert calls == []


def test_no_pattern_ends_where_a_line_feed_may_follow() -> None:
    r"""`$` matches before a line feed at the end: "A-17\n" would pass for "A-17". `\Z` or fullmatch do not."""
    trees = (Path(umavez.__file__ or "").parent, Path(umavez_systems.__file__ or "").parent)
    patterns = [
        (path.name, call.args[0].value, ast.unparse(call))
        for tree in trees
        for path in sorted(tree.rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) in ("re.compile", "re.match", "re.search")
        and call.args
        and isinstance(call.args[0], ast.Constant)
    ]
    assert len(patterns) > 50

    ends = [(name, text) for name, text, call in patterns if text[-1:] in ("$", b"$") and "MULTILINE" not in call]
    assert ends == []
