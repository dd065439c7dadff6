"""Retry: safe, bounded, and without sleeping."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from umavez import CannotTell, Happened, NotHappened
from umavez.errors import ConfigurationError
from umavez.failures import Phase, of_status, retry_after, trouble_of
from umavez.retry import AsyncRetry, Backoff, Budget, Retry, time_left

REQUEST = httpx.Request("POST", "https://far.example/")
NEVER, MAYBE, REFUSED = Phase.NEVER_SENT, Phase.MAYBE_SENT, Phase.REFUSED


def answered(status: int, **headers: str) -> httpx.HTTPStatusError:
    response = httpx.Response(status, headers={name.replace("_", "-"): value for name, value in headers.items()})
    return httpx.HTTPStatusError("no", request=REQUEST, response=response)


class FarSide:
    """Fails with each of `errors` in turn, then returns its count of calls."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0
        self.pauses: list[float] = []

    def __call__(self) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.calls


def run(style: str, far: FarSide, retry_options: dict[str, Any], run_options: dict[str, Any]) -> int:
    """The same call through Retry or AsyncRetry; pauses are noted, never slept."""
    retry_options.setdefault("draw", lambda: 1.0)
    if style == "sync":
        return Retry(sleep=far.pauses.append, **retry_options).run(far, **run_options)

    async def pause(seconds: float) -> None:
        far.pauses.append(seconds)

    async def call() -> int:
        return far()

    return asyncio.run(AsyncRetry(sleep=pause, **retry_options).run(call, **run_options))


@pytest.fixture(params=["sync", "async"])
def trying(request: pytest.FixtureRequest) -> Callable[..., int]:
    def call(far: FarSide, retry: dict[str, Any] | None = None, **options: Any) -> int:
        return run(request.param, far, dict(retry or {}), options)

    return call


def test_the_default_is_three_attempts_one_second_doubled_up_to_thirty() -> None:
    backoff = Backoff()
    assert backoff.attempts == 3
    assert [backoff.pause(n, lambda: 1.0) for n in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]


def test_full_jitter_draws_between_nothing_and_the_whole_pause() -> None:
    backoff = Backoff()
    assert backoff.pause(3, lambda: 0.0) == 0.0
    assert backoff.pause(3, lambda: 0.5) == 2.0
    assert Backoff(jitter=False).pause(3, lambda: 0.0) == 4.0


def test_a_pause_after_thousands_of_failures_is_the_cap() -> None:
    assert Backoff().pause(100_000, lambda: 1.0) == 30.0


def test_what_was_never_sent_is_sent_again(trying: Callable[..., int]) -> None:
    far = FarSide(httpx.ConnectError("refused"), httpx.ConnectTimeout("slow"))
    assert trying(far) == 3
    assert far.pauses == [1.0, 2.0]


def test_after_the_last_attempt_the_last_error_is_raised(trying: Callable[..., int]) -> None:
    far = FarSide(*(httpx.ConnectError(str(n)) for n in range(5)))
    with pytest.raises(httpx.ConnectError, match="2"):
        trying(far)
    assert far.calls == 3


def test_what_may_have_been_sent_is_not_sent_again_unasked(trying: Callable[..., int]) -> None:
    far = FarSide(httpx.ReadTimeout("silence"))
    with pytest.raises(httpx.ReadTimeout):
        trying(far)
    assert (far.calls, far.pauses) == (1, [])


def test_what_may_have_been_sent_is_repeated_where_that_is_declared_harmless(trying: Callable[..., int]) -> None:
    assert trying(FarSide(httpx.ReadTimeout("silence"), answered(502)), repeatable=True) == 3


def test_asking_that_finds_the_effect_gives_its_value_and_sends_nothing(trying: Callable[..., int]) -> None:
    far = FarSide(httpx.ReadError("cut"))
    assert trying(far, ask=lambda: Happened(77)) == 77
    assert far.calls == 1


def test_asking_that_finds_nothing_sends_again(trying: Callable[..., int]) -> None:
    far = FarSide(httpx.ReadError("cut"))
    assert trying(far, ask=NotHappened) == 2


def test_asking_that_cannot_tell_leaves_the_error_and_the_doubt(trying: Callable[..., int]) -> None:
    far = FarSide(httpx.ReadError("cut"))
    with pytest.raises(httpx.ReadError) as caught:
        trying(far, ask=lambda: CannotTell("the authority is closed"))
    assert "the authority is closed" in caught.value.__notes__[0]
    assert far.calls == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_a_definite_answer_is_not_tried_again(trying: Callable[..., int], status: int) -> None:
    far = FarSide(answered(status))
    with pytest.raises(httpx.HTTPStatusError):
        trying(far, repeatable=True)
    assert far.calls == 1


def test_retry_after_is_respected_when_it_is_longer_than_the_pause(trying: Callable[..., int]) -> None:
    far = FarSide(answered(429, retry_after="7"))
    assert trying(far) == 2
    assert far.pauses == [7.0]


def test_an_absurd_retry_after_ends_the_trying(trying: Callable[..., int]) -> None:
    far = FarSide(answered(429, retry_after="86400"))
    with pytest.raises(httpx.HTTPStatusError):
        trying(far)
    assert far.pauses == []


def test_a_deadline_forbids_a_pause_that_would_pass_it(trying: Callable[..., int]) -> None:
    far = FarSide(httpx.ConnectError("1"), httpx.ConnectError("2"))
    with pytest.raises(httpx.ConnectError, match="2"):
        trying(far, {"deadline": 2.0, "clock": lambda: 100.0})
    assert far.pauses == [1.0]


def test_a_shared_budget_bounds_the_retries_of_all_callers(trying: Callable[..., int]) -> None:
    budget = Budget(size=5, ratio=0.1)
    calls = 0
    for _ in range(50):
        far = FarSide(*(httpx.ConnectError("down") for _ in range(9)))
        with pytest.raises(httpx.ConnectError):
            trying(far, {"budget": budget})
        calls += far.calls
    assert calls - 50 <= 5 + 50 * 0.1, "a far side that is down got more retries than the budget allows"


def test_a_budget_is_exact_under_threads() -> None:
    budget = Budget(size=100, ratio=0)
    spent: list[bool] = []
    threads = [threading.Thread(target=lambda: spent.extend(budget.spend() for _ in range(50))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(spent) == 100


def test_the_callers_own_mistake_is_not_tried_again(trying: Callable[..., int]) -> None:
    far = FarSide(KeyError("typo"))
    with pytest.raises(KeyError):
        trying(far, repeatable=True)
    assert far.calls == 1


@pytest.mark.parametrize(
    ("error", "phase"),
    [
        (ConnectionRefusedError(), NEVER),
        (socket.gaierror(), NEVER),
        (httpx.PoolTimeout("full"), NEVER),
        (httpx.ReadTimeout("slow"), MAYBE),
        (httpx.WriteError("cut"), MAYBE),
        (httpx.RemoteProtocolError("hung up"), MAYBE),
        (ConnectionResetError(), MAYBE),
        (BrokenPipeError(), MAYBE),
        (TimeoutError(), MAYBE),
        (httpx.UnsupportedProtocol("ftp"), REFUSED),
        (answered(500), MAYBE),
        (answered(503), MAYBE),
        (answered(504), MAYBE),
        (answered(408), MAYBE),
        (answered(429), NEVER),
        (answered(425), NEVER),
        (answered(409), REFUSED),
        (ValueError(), REFUSED),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_an_error_says_how_far_the_request_came(error: Exception, phase: Phase) -> None:
    assert trouble_of(error).phase is phase


def test_retry_after_is_read_as_seconds_or_as_a_date() -> None:
    now = datetime(2026, 1, 2, 3, 4, 0, tzinfo=UTC)
    assert retry_after("120", now) == 120.0
    assert retry_after(" Fri, 02 Jan 2026 03:05:30 GMT ", now) == 90.0
    assert retry_after("Fri, 02 Jan 2026 03:00:00 GMT", now) == 0.0, "a date in the past asks for no pause"
    assert [retry_after(text, now) for text in (None, "", "soon", "-3", "1.5")] == [None] * 5
    assert of_status(503, {"Retry-After": "3"}).retry_after == 3.0


def test_a_real_refused_connection_counts_as_never_sent() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(httpx.ConnectError) as caught:
        httpx.get(f"http://127.0.0.1:{port}/", trust_env=False)
    assert trouble_of(caught.value).phase is NEVER


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"factor": 0.5}, {"cap": -1}])
def test_an_impossible_backoff_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Backoff(**wrong)


def test_an_error_in_asking_never_hides_that_it_may_have_been_sent(trying: Callable[..., int]) -> None:
    def ask() -> None:
        raise httpx.ConnectError("the asking failed")

    far = FarSide(httpx.ReadTimeout("maybe sent"), httpx.ReadTimeout("sent twice"))

    with pytest.raises(httpx.ReadTimeout, match="maybe sent") as caught:
        trying(far, ask=ask)

    assert far.calls == 1
    assert any("the asking failed" in note for note in caught.value.__notes__)


def test_an_outer_retry_sends_nothing_again_after_an_error_in_asking() -> None:
    def ask() -> None:
        raise httpx.ConnectError("the asking failed")

    far = FarSide(*(httpx.ReadTimeout("maybe sent") for _ in range(9)))
    inner = Retry(sleep=far.pauses.append)

    with pytest.raises(httpx.ReadTimeout):
        Retry(sleep=far.pauses.append).run(lambda: inner.run(far, ask=ask))

    assert far.calls == 1


def test_a_call_can_see_how_much_time_is_left() -> None:
    now = [100.0]
    seen: list[float | None] = []

    def call() -> None:
        seen.append(time_left())
        now[0] += 3
        raise httpx.ConnectError("down")

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with pytest.raises(httpx.ConnectError):
        Retry(deadline=10.0, clock=lambda: now[0], draw=lambda: 1.0, sleep=sleep).run(call)

    assert seen == [10.0, 6.0, 1.0]
    assert time_left() is None


def test_no_call_begins_after_the_deadline(trying: Callable[..., int]) -> None:
    """A pause or a question that took longer than it should."""
    now = [100.0]

    def ask() -> NotHappened:
        now[0] += 60
        return NotHappened()

    far = FarSide(httpx.ReadTimeout("maybe sent"))
    with pytest.raises(httpx.ReadTimeout):
        trying(far, {"deadline": 30.0, "clock": lambda: now[0]}, ask=ask)
    assert far.calls == 1


def test_a_call_of_a_task_is_cut_off_at_the_deadline() -> None:
    calls = 0

    async def hangs() -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(60)

    began = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(AsyncRetry(deadline=0.05).run(hangs, repeatable=True))

    assert calls == 1
    assert time.monotonic() - began < 5


def test_a_question_of_a_task_is_cut_off_at_the_deadline() -> None:
    async def hangs() -> None:
        await asyncio.sleep(60)

    async def call() -> None:
        raise httpx.ReadTimeout("maybe sent")

    began = time.monotonic()
    with pytest.raises(httpx.ReadTimeout):
        asyncio.run(AsyncRetry(Backoff(first=0), deadline=0.05).run(call, ask=hangs))

    assert time.monotonic() - began < 5


def test_what_a_plain_function_did_under_tasks_is_not_tried_again() -> None:
    far = FarSide()
    assert asyncio.run(AsyncRetry().run(far, repeatable=True)) == 1
    assert far.calls == 1
