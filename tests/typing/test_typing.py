"""The types that users' editors see, as two checkers read them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

API = Path(__file__).with_name("api.py")
ROOT = API.parents[2]


def test_mypy_reads_the_public_surface_as_meant() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(API)], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout


def test_pyright_reads_the_public_surface_as_meant(tmp_path: Path) -> None:
    pyright = Path(sys.executable).with_name("basedpyright")
    if not pyright.exists():
        pytest.skip("basedpyright is not installed; make test brings it")
    settings = tmp_path / "pyrightconfig.json"
    settings.write_text(
        json.dumps(
            {
                "include": [str(API)],
                "extraPaths": [str(ROOT / "src")],
                "typeCheckingMode": "standard",
                # Each checker has marks of its own, and one that marks nothing any more must fail.
                "enableTypeIgnoreComments": False,
                "reportUnnecessaryTypeIgnoreComment": "error",
            }
        )
    )

    done = subprocess.run(
        [str(pyright), "-p", str(settings), "--pythonpath", sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
