"""The short forms of chaos/fiscal.py and chaos/fiscal_search.py."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from chaos import Setting
from chaos.fiscal import ALL, run
from chaos.fiscal_search import run as search
from umavez_systems.fiscal.domain import Tipo


@pytest.mark.slow
def test_s4_06_documents_survive_killed_workers_lost_answers_and_a_restarted_authority(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    report = run(Setting("sqlite", f"sqlite:///{tmp_path}/chaos.db", 8, seed, tmp_path))

    assert not report.violations, f"seed {seed}: {report.violations}"
    assert report.sometimes["killed"] > 0, f"seed {seed}"
    assert report.sometimes["authority restarted"] > 0, f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [(Tipo.NFSE_ADN,), (Tipo.NFSE_SP,), ALL], ids=["adn", "sp", "all"])
def test_s4_06_service_invoices_survive_the_same_and_none_is_destroyed(tmp_path: Path, kinds: tuple[Tipo, ...]) -> None:
    seed = random.randrange(2**32)
    report = run(Setting("sqlite", f"sqlite:///{tmp_path}/chaos.db", 8, seed, tmp_path), kinds)

    assert not report.violations, f"seed {seed}: {report.violations}"
    assert report.sometimes["destroyed notes"] == 0


@pytest.mark.slow
def test_s4_06_every_act_survives_a_sample_of_faults_and_crashes(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    report = search(Setting("sqlite", "", 40, seed, tmp_path))

    assert not report.violations, f"seed {seed}: {report.violations}"
    assert report.sometimes["died"] > 0
