"""A process frozen past its lease and woken can write nothing. The long form: python -m chaos.leases."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.leases import run


@pytest.mark.slow
def test_frozen_holders_write_nothing_after_a_takeover_on_sqlite(tmp_path: Path) -> None:
    result = run(f"sqlite:///{tmp_path / 'frozen.db'}?journal=delete", rounds=8)
    assert (result.taken_over, result.accepted, result.refused) == (8, 0, 40), f"seed {result.seed}"


@pytest.mark.slow
def test_frozen_holders_write_nothing_after_a_takeover_on_postgresql(postgres_url: str) -> None:
    result = run(postgres_url, rounds=20)
    assert (result.taken_over, result.accepted, result.refused) == (20, 0, 100), f"seed {result.seed}"
