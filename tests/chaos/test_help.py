"""Whoever asks a programme of bench or chaos for help gets it, and nothing is measured or killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def programmes() -> list[str]:
    """Every module that does something when it is run."""
    found = sorted([*ROOT.glob("bench/**/*.py"), *ROOT.glob("chaos/**/*.py")])
    run = (path for path in found if '__name__ == "__main__"' in path.read_text())
    return [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__") for path in run]


def test_every_programme_helps() -> None:
    """All at once: most of the time of each is spent importing. A minute is far less than any of them measures for."""
    asked = {name: _asked(name) for name in programmes()}
    assert len(asked) > 20
    for name, process in asked.items():
        try:
            told, _ = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            told = "it went to work"
        finally:
            process.kill()
        assert process.wait() == 0, (name, told[-300:])
        assert "usage" in told.lower() or name == "bench", (name, told[-300:])


def _asked(name: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", name, "--help"]
    piped = subprocess.PIPE
    return subprocess.Popen(
        words,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=piped,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_what_a_measurement_does_not_know_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.propostas", "--quik"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--quik" in done.stderr
