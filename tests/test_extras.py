"""Modules that need more than umavez itself say what to install, and `import umavez` needs none of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import umavez

SOURCE = Path(umavez.__file__).parent
PROJECT = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["project"]
DOORS = {
    "umavez.encryption": ("cryptography", "umavez[seal]"),
    "umavez.http.client": ("httpx", "umavez[http]"),
    "umavez.http.django": ("django", "django"),
    "umavez.http.fastapi": ("fastapi", "fastapi"),
    "umavez.messaging.rabbitmq": ("aio_pika", "umavez[rabbitmq]"),
    "umavez.observe.metrics": ("prometheus_client", "umavez[metrics]"),
    "umavez.observe.tracing": ("opentelemetry", "umavez[tracing]"),
    "umavez.postgres": ("psycopg", "umavez[postgres]"),
    "umavez_systems": ("fastapi", "umavez[systems]"),
}
BARE = """
import importlib, json, sys

for name in json.loads(sys.argv[1]):
    sys.modules[name] = None

said = {}
for module in json.loads(sys.argv[2]):
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as missing:
        said[module] = [missing.name, str(missing)]
print(json.dumps(said))
"""


def imported(blocked: list[str], modules: list[str]) -> dict[str, Any]:
    """What is said in a process without `blocked` by those of these modules that cannot be imported."""
    words = [sys.executable, "-c", BARE, json.dumps(blocked), json.dumps(modules)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize(("module", "needed"), DOORS.items(), ids=DOORS)
def test_a_module_without_its_extra_says_what_to_install(module: str, needed: tuple[str, str]) -> None:
    package, install = needed
    name, said = imported([package], [module])[module]
    assert name.partition(".")[0] == package
    assert said == f"{module} needs {name}, which is not installed; run: pip install '{install}'."


def test_every_module_of_an_extra_says_so_in_a_bare_install() -> None:
    """Those that others import; the command line has its own sentence, and the stores say theirs when one is opened."""
    rooms = [path for name in ("http", "messaging", "observe") for path in sorted((SOURCE / name).rglob("*.py"))]
    modules = [name_of(path) for path in (*sorted(SOURCE.glob("*.py")), *rooms)]
    bare = imported(sorted(every_package()), modules)
    assert {"umavez.observe.standing", "umavez.messaging.rabbitmq.broker", "umavez.postgres"} <= bare.keys()
    assert [said for _, said in bare.values() if "; run: pip install '" not in said] == []
    extras = {found[1] for _, said in bare.values() if (found := re.search(r"umavez\[([a-z-]+)\]", said))}
    assert extras <= PROJECT["optional-dependencies"].keys()


def every_package() -> set[str]:
    """What may be imported from all that this environment holds beside umavez and the standard library."""
    places = [Path(place) for place in sys.path if place.endswith("site-packages")]
    names = {path.name.partition(".")[0] for place in places for path in place.iterdir()}
    return {name for name in names if name.isidentifier()} - {"umavez", "umavez_systems", *sys.stdlib_module_names}


def test_a_command_that_is_not_offered_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['alembic'] = None; sys.argv = ['umavez', 'serve'];"
        " from importlib import util; find = util.find_spec;"
        " util.find_spec = lambda name: None if name == 'alembic' else find(name);"
        " from umavez.cli import main; main()"
    )
    environment = {**os.environ, "COLUMNS": "300"}
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, env=environment)

    assert done.returncode == 2
    assert "No such command 'serve'" in done.stderr
    assert "umavez_systems needs alembic, which is not installed; run: pip install 'umavez[systems]'." in done.stderr
