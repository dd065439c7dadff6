"""The short form of chaos/schemathesis.py: generated requests over all systems, every check on, no failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos import Setting
from chaos.schemathesis import short

pytestmark = pytest.mark.slow
SEED = 20_261


def test_no_generated_request_is_answered_against_the_document(tmp_path: Path) -> None:
    report = short(Setting("sqlite", f"sqlite:///{tmp_path}/systems.db", 4, SEED, tmp_path))

    assert not report.violations, "\n".join(report.violations)
    assert report.sometimes["operations"] > 80
    assert report.done > 4 * 80
