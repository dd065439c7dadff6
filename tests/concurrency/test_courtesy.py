"""Courtesy: who comes back for a lease leaves others a moment, and one who is alone pays little for it."""

from __future__ import annotations

import itertools

from umavez.concurrency import courtesy as module
from umavez.concurrency.courtesy import ALONE_AT_MOST, POLITE, POLLS, Courtesy


def looped(courtesy: Courtesy, seconds: float, *, held: float = 0.01) -> tuple[float, list[float]]:
    """What pauses cost one who takes and gives back again and again, and when each of them began."""
    now, number, paused, began = 0.0, 0, 0.0, []
    while now < seconds:
        if pause := courtesy.pause("report", now):
            began.append(now)
        now, paused, number = now + pause, paused + pause, number + 1
        courtesy.granted("report", number, now)
        now += held
        courtesy.released("report", now)
    return paused, began


def test_one_who_is_alone_pauses_ever_less_often() -> None:
    paused, began = looped(Courtesy(), 600.0)

    apart = [later - earlier for earlier, later in itertools.pairwise(began)]
    assert began[0] < 1.1
    assert max(apart) <= ALONE_AT_MOST + 2 * POLLS[-1], "who waits gets a moment in bounded time"
    assert paused / 600.0 < 0.035


def test_a_gap_is_as_long_as_those_who_wait_need_for_a_look() -> None:
    courtesy = Courtesy()
    looped(courtesy, 0.9)
    assert courtesy.pause("report", 1.0) == POLLS[-1]
    assert all(courtesy.polled(looks) <= POLLS[-1] for looks in range(1, 10))


def test_one_who_came_late_anyway_leaves_no_gap() -> None:
    courtesy = Courtesy()
    for now in range(100):
        assert courtesy.pause("report", float(now)) == 0.0
        courtesy.released("report", now + 0.5)


def test_who_met_a_rival_comes_at_any_moment_for_a_while() -> None:
    courtesy = Courtesy(draw=lambda: 0.5)
    courtesy.met("report", 10.0)
    assert courtesy.pause("report", 10.0 + POLITE / 2) == POLLS[-1] / 2
    assert courtesy.pause("report", 10.0 + POLITE) == 0.0
    assert courtesy.pause("another", 10.0) == 0.0


def test_a_holder_between_is_a_rival_though_nobody_was_seen() -> None:
    courtesy = Courtesy(draw=lambda: 0.5)
    courtesy.pause("report", 0.0)
    courtesy.granted("report", 7, 0.0)
    courtesy.released("report", 0.1)
    courtesy.pause("report", 0.1)
    courtesy.granted("report", 9, 0.1)
    assert courtesy.pause("report", 0.2) == POLLS[-1] / 2


def test_what_is_remembered_is_bounded() -> None:
    courtesy = Courtesy()
    for number in range(3 * module.MOST_NAMES):
        courtesy.pause(f"taken {number}", 0.0)
        courtesy.met(f"refused {number}", 0.0)
    assert len(courtesy._wanted) <= module.MOST_NAMES  # the bound is the contract
    assert len(courtesy._streaks) <= module.MOST_NAMES  # likewise
