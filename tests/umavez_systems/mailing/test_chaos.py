"""The short forms of chaos/mailing.py and mailing_frozen.py: workers killed at steps and at random, and frozen."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from chaos import Setting
from chaos.mailing import matrix, storm
from chaos.mailing_frozen import frozen, frozen_inside


@pytest.mark.slow
@pytest.mark.parametrize(("trial", "count"), [(matrix, 2), (storm, 2), (frozen, 1), (frozen_inside, 1)])
def test_s2_10_nothing_is_lost_and_nothing_is_guessed(trial: object, count: int, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    report = trial(Setting("sqlite", f"sqlite:///{tmp_path}/chaos.db", count, seed, tmp_path))  # type: ignore[operator]
    assert not report.violations, f"seed {seed}: {report.violations}"
    assert any(report.sometimes[harm] for harm in ("killed", "frozen", "frozen inside")), f"seed {seed}"
