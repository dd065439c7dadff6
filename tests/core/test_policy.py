from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from umavez.core.policy import Policy, declare
from umavez.errors import ConfigurationError, NotDeclared


def test_an_operation_must_say_what_an_unknown_outcome_means() -> None:
    with pytest.raises(NotDeclared, match=r'charge does not say .* unknown="rerun".*unknown="hold"'):
        declare("charge", {})
    with pytest.raises(NotDeclared):
        declare("charge", {"unknown": None})


@pytest.mark.parametrize("wrong", ["retry", "", 1, True])
def test_an_unknown_that_is_none_of_the_three_is_refused(wrong: Any) -> None:
    with pytest.raises(NotDeclared, match="is not one of"):
        declare("charge", {"unknown": wrong})


def test_an_option_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(ConfigurationError, match=r"charge: unknown option 'leese'; known are .*lease"):
        declare("charge", {"unknown": "hold", "leese": 3})


@pytest.mark.parametrize(
    "options",
    [
        {"lease": 0},
        {"lease": 0.01},
        {"lease": -1},
        {"keep": 0},
        {"wait": -1},
        {"max_retries": -1},
        {"max_body": -1},
        {"mismatch": "ignore"},
        {"patience": 0},
        {"patience": float("nan")},
        {"keep": 0.0004},
        {"keep": None},
        {"lease": "5"},
        {"wait": None},
        {"patience": "30"},
        {"max_retries": float("nan")},
        {"max_retries": "3"},
        {"max_body": 1.5},
        {"max_body": None},
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        declare("charge", {"unknown": "hold"} | options)


def test_durations_are_seconds_or_timedeltas_outside_and_milliseconds_inside() -> None:
    policy = declare("charge", {"unknown": "hold", "lease": timedelta(seconds=2), "keep": 1.5})

    assert (policy.lease_ms, policy.keep_ms) == (2000, 1500)


def test_a_policy_knows_how_it_treats_what_is_unknown() -> None:
    ask, rerun, hold = Policy(print), Policy("rerun"), Policy("hold")

    assert [policy.asks for policy in (ask, rerun, hold)] == [True, False, False]
    assert [policy.reruns() for policy in (ask, rerun, hold)] == [False, True, False]
