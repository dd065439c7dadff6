"""Killed at steps of their work, relays and consumers lose nothing and repeat no effect. The long form is in chaos/."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_relay_and_consumer_killed_at_steps_of_their_work_lose_and_repeat_nothing(tmp_path: Path) -> None:
    first = random.randint(1, 16)
    code = (
        "from chaos.messaging_steps import killed_at_every_step as killed;"
        f"print(killed('sqlite:///{tmp_path}/steps.db?journal=delete', {first}, 16))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"first fatal step {first}: {done.stderr}"
    assert "0 lost, 0 twice" in done.stdout
