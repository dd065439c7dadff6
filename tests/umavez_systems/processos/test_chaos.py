"""The short form of chaos/processos.py: workers killed at random, and a payer that loses 30 % of its answers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from chaos import Setting
from chaos.processos import run


@pytest.mark.slow
def test_s3_10_instances_survive_killed_workers_and_lost_answers(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    report = run(Setting("sqlite", f"sqlite:///{tmp_path}/chaos.db", 30, seed, tmp_path))

    assert not report.violations, f"seed {seed}: {report.violations}"
    assert report.sometimes["killed"] > 0, f"seed {seed}"
    assert report.sometimes["adopted"] > 0, f"seed {seed}"
    assert (report.sometimes["accepted"], report.sometimes["paid"]) == (30, 30)
