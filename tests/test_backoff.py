"""One arithmetic of pauses, and the four that use it."""

from __future__ import annotations

from umavez.backoff import drawn, grown
from umavez.core.reconciliation import Pace
from umavez.http.client.retrying import Retrying
from umavez.messaging.broker import Backoff as MessageBackoff
from umavez.retry import Backoff


def test_pauses_grow_up_to_the_cap() -> None:
    assert [grown(n, 1.0, 2.0, 30.0) for n in range(8)] == [1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_million_failures_are_no_overflow() -> None:
    assert grown(1_000_000, 1.0, 2.0, 30.0) == 30.0
    assert grown(1_000_000, 0.0, 2.0, 30.0) == 0.0
    assert grown(1_000_000, 1.0, 1.0, 30.0) == 1.0


def test_a_pause_is_drawn_between_its_least_share_and_all_of_it() -> None:
    assert drawn(8.0, lambda: 0.0) == 0.0
    assert drawn(8.0, lambda: 0.0, least=0.5) == 4.0
    assert drawn(8.0, lambda: 1.0, least=0.5) == 8.0


def test_whoever_waits_waits_by_it() -> None:
    assert Backoff().pause(3, lambda: 1.0) == 4.0
    assert 2.0 <= MessageBackoff().pause(3) <= 4.0
    assert MessageBackoff().pause(100_000) <= 300.0
    assert Retrying(draw=lambda: 1.0).after_error(3, 0.0, safe=True) == 0.8
    assert Pace().wait(3) == 120_000
    assert Pace().wait(100_000) == 3_600_000
