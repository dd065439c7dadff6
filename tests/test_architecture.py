"""The house rules that a machine can hold: import direction, twins, sizes, names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import umavez

SOURCE = Path(umavez.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

# Each layer may import itself and what stands before it. Longest prefix wins.
LAYERS = [
    ("umavez.errors", "umavez.clock", "umavez.aio_threads", "umavez.core"),
    ("umavez.stores",),
    (
        "umavez.sql",
        "umavez.stamps",
        "umavez.aio_lock",
        "umavez.outcome",
        "umavez.plan",
        "umavez.attempt",
        "umavez.aio_attempt",
        "umavez.heart",
        "umavez.aio_heart",
        "umavez.admission",
        "umavez.aio_admission",
        "umavez.operation",
        "umavez.aio_operation",
        "umavez.once",
        "umavez.aio",
    ),
    ("umavez",),
    ("umavez.cli", "umavez.console"),
]
FREE = ("umavez.testing",)
"""Shipped for tests: may import anything but the systems."""

TWINS = [
    ("attempt.py", "aio_attempt.py"),
    ("admission.py", "aio_admission.py"),
    ("operation.py", "aio_operation.py"),
    ("once.py", "aio.py"),
]
RENAMED = {
    "asynccontextmanager": "contextmanager",
    "open_async_store": "open_store",
    "async_driver_connection": "driver_connection",
    "asyncio": "threading",
    "TaskLock": "threading.Lock",
    "umavez_async_attempt": "umavez_attempt",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "Awaitable": "",
}
OWN_WAYS = {"_wait"}
"""Functions where waiting itself differs, not only by `await`."""


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
    if module == "umavez" or module.startswith(FREE):
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


class _Plain(ast.NodeTransformer):
    """Strips `async` and `await`, the Async prefix, and what only differs by name between the twins."""

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:  # ast's own naming
        plain = ast.FunctionDef(**{field: getattr(node, field) for field in node._fields})
        return self.generic_visit(ast.copy_location(plain, node))

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:  # ast's own naming
        return self.generic_visit(ast.copy_location(ast.With(items=node.items, body=node.body), node))

    def visit_Await(self, node: ast.Await) -> ast.AST:  # ast's own naming
        return self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:  # ast's own naming
        # Docstrings may point to each other.
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)


def plain_functions(path: Path) -> dict[str, str]:
    tree = _Plain().visit(ast.parse(path.read_text()))
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    found[plain_name(f"{node.name}.{part.name}")] = plain_name(ast.unparse(part))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = plain_name(ast.unparse(node))
    return {name: text for name, text in found.items() if name not in OWN_WAYS}


def plain_name(text: str) -> str:
    for foreign, own in RENAMED.items():
        text = re.sub(rf"\b{foreign}\b", own, text)
    text = re.sub(r"\bAsync(?=[A-Z])", "", text).replace("umavez.aio_", "umavez.")
    text = text.replace("time.sleep", "threading.sleep")
    return re.sub(r"\[T\]\]", "T]", text) if "Callable" in text else text


@pytest.mark.parametrize(("sync", "tasks"), TWINS)
def test_twins_differ_by_await_only(sync: str, tasks: str) -> None:
    assert plain_functions(SOURCE / sync) == plain_functions(SOURCE / tasks)


def test_the_twin_check_notices_one_word(tmp_path: Path) -> None:
    changed = tmp_path / "attempt.py"
    changed.write_text((SOURCE / "attempt.py").read_text().replace("self.beaten_at = sent_at", "self.beaten_at = 0.0"))
    assert plain_functions(changed) != plain_functions(SOURCE / "aio_attempt.py")


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
