"""The laws of retrying: kept by both kinds of retry, and broken by those that are broken on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from umavez.core.policy import Happened
from umavez.failures import Phase, trouble_of
from umavez.retry import AsyncRetry, Retry
from umavez.testing.laws.instruments import retry as laws


def threads(far: Any, **options: Any) -> Any:
    return Retry(sleep=lambda _: None).run(far, **options)


def tasks(far: Any, **options: Any) -> Any:
    async def pause(_: float) -> None:
        return None

    async def call() -> Any:
        return far()

    return asyncio.run(AsyncRetry(sleep=pause).run(call, **options))


def sends_whatever_failed(far: Any, **_: Any) -> Any:
    for _attempt in range(2):
        try:
            return far()
        except Exception:  # noqa: BLE001, S112  # broken on purpose
            continue
    return far()


def tries_once(far: Any, **_: Any) -> Any:
    return far()


def lets_the_asking_fail(far: Any, *, ask: Callable[[], Any] | None = None, **options: Any) -> Any:
    try:
        return threads(far, **options)
    except TimeoutError as error:
        if ask is None or trouble_of(error).phase is not Phase.MAYBE_SENT:
            raise
        answer = ask()
        return answer.value if isinstance(answer, Happened) else far()


@pytest.mark.parametrize("trying", [threads, tasks])
@pytest.mark.parametrize("law", laws.LAWS, ids=lambda law: law.__name__)
def test_both_kinds_of_retry_obey(law: laws.Law, trying: laws.Trying) -> None:
    law(trying)


BROKEN = [
    (tries_once, laws.what_was_never_sent_is_sent_again),
    (sends_whatever_failed, laws.what_may_have_been_sent_is_not_sent_again_unasked),
    (sends_whatever_failed, laws.a_refusal_is_final),
    (lets_the_asking_fail, laws.the_answer_to_asking_decides),
    (lets_the_asking_fail, laws.an_error_in_asking_leaves_the_doubt),
]


@pytest.mark.parametrize(("trying", "law"), BROKEN)
def test_the_law_that_names_the_fault_catches_it(trying: laws.Trying, law: laws.Law) -> None:
    with pytest.raises(AssertionError):
        law(trying)
