"""Plans: whoever says something else about an operation gets another plan, however often one was asked for."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from umavez import ConfigurationError, Once
from umavez.core.encoding.codec import JsonCodec
from umavez.engine.declaration import Plans


def of(plans: Plans, operation: str = "pay", **options: Any) -> Any:
    return plans.of(operation, {"unknown": "hold", **options})


def test_the_same_words_give_the_same_plan() -> None:
    plans = Plans("shop", JsonCodec())
    assert of(plans) is of(plans)
    assert of(plans, lease=5.0) is of(plans, lease=5.0)


def test_other_words_give_another_plan_right_after_it() -> None:
    plans = Plans("shop", JsonCodec())
    for _ in range(2):
        assert of(plans).operation == "pay"
        assert of(plans, "refund").operation == "refund"
        assert of(plans, lease=5.0).policy.lease == 5.0
        assert of(plans, lease=7.0).policy.lease == 7.0
        assert of(plans).policy.lease == 30.0


def test_what_cannot_be_told_apart_by_its_words_is_planned_anew() -> None:
    """A list may have changed since: nobody is given what was planned from it before."""
    plans = Plans("shop", JsonCodec())
    free: list[type[BaseException]] = [ValueError]
    assert of(plans, free=free).policy.free == (ValueError,)
    free.append(KeyError)
    assert of(plans, free=free).policy.free == (ValueError, KeyError)


def test_declared_words_come_before_what_was_asked_last() -> None:
    plans = Plans("shop", JsonCodec())
    before = plans.of("pay", {"unknown": "hold"})
    declared = plans.declared("pay", {"unknown": "rerun"})
    assert plans.of("pay", {}) is declared is not before


def test_two_functions_under_one_name_are_refused_behind_a_partial_too() -> None:
    def charge(order: str) -> str:
        return f"charged {order}"

    def refund(order: str) -> str:
        return f"refunded {order}"

    once = Once("memory:", scope="shop")
    declare = once.operation("pay", key=lambda order: order, unknown="hold")
    assert declare(partial(charge))("A") == "charged A"
    assert declare(partial(charge, order="B"))() == "charged B"
    with pytest.raises(ConfigurationError, match="refund an operation of its own"):
        declare(partial(partial(refund)))
