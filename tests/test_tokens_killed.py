"""Processes that die while they redeem make no ride twice and lose none. The long form: python -m chaos.tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.tokens import run


@pytest.mark.slow
def test_killed_redemptions_leave_one_ride_for_each_token_on_sqlite(tmp_path: Path) -> None:
    result = run(f"sqlite:///{tmp_path / 'killed.db'}?journal=delete", 8)
    assert result.rides == 8, f"seed {result.seed}"


@pytest.mark.slow
def test_killed_redemptions_leave_one_ride_for_each_token_on_postgresql(postgres_url: str) -> None:
    result = run(postgres_url, 8)
    assert result.rides == 8, f"seed {result.seed}"
