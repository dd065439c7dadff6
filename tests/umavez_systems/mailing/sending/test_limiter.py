"""The limiter: one for all workers."""

from __future__ import annotations

import pytest

from tests.umavez_systems.mailing.conftest import query
from umavez_systems.mailing.sending.limiter import REST_MS, Limiter
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier


def test_the_limiter_is_shared_and_slows_down(carrier: Carrier) -> None:
    database = carrier.mailing.cases.database
    # Slow enough that no machine is busy for as long as the moments are apart.
    one, two = Limiter(database, 0.05), Limiter(database, 0.05)
    waits = [one.reserve(5), two.reserve(5), one.reserve(5)]
    assert waits[0] <= 0.01
    assert 60 < waits[1] <= 100
    assert 160 < waits[2] <= 200
    assert two.reserve(5, within=1.0) == pytest.approx(one.reserve(5, within=1.0), abs=20)  # not taken, so still there
    two.slow_down()
    assert one.reserve(1) > 240
    assert Limiter(database, 0.0).reserve(1) > 240
    assert Limiter(database, 0.05, "another").reserve(1) <= 0.01
    assert (Limiter(database, 10.0).size(100), one.size(100), Limiter(database, 0.0).size(100)) == (10, 1, 100)
    assert (
        one.reserve(1) - one.reserve(1) < -30
    )  # twenty seconds for a mail, and as long again since it was slowed down


def test_a_far_side_that_asks_for_less_lets_everybody_rest(carrier: Carrier, settings: Settings) -> None:
    Limiter(carrier.mailing.cases.database, 0.0).slow_down()
    assert query(settings, "SELECT livre_em - mudou_em, fator FROM mailing_limits") == [(REST_MS, 0.5)]


def test_without_a_speed_each_complaint_that_follows_is_a_longer_rest_and_a_wish_is_granted(carrier: Carrier) -> None:
    limiter = Limiter(carrier.mailing.cases.database, 0.0)
    limiter.slow_down()
    assert 4 < limiter.reserve(1) <= 5
    limiter.slow_down()
    assert 9 < limiter.reserve(1) <= 10
    limiter.slow_down(60.0)
    assert 59 < limiter.reserve(1) <= 60
    limiter.slow_down(1e9)
    assert 3599 < limiter.reserve(1) <= 3600
