"""The laws of retrying. Each is a function of a `Trying` that raises AssertionError when broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from umavez.core.policy import CannotTell, Happened, NotHappened

NEVER_SENT = ConnectionRefusedError
MAYBE_SENT = TimeoutError


class Refused(Exception):
    """A far side's definite no."""


class FarSide:
    """Fails with each of `errors` in turn, then answers how often it was called."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.calls = 0

    def __call__(self) -> int:
        """One request."""
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)
        return self.calls


Trying = Callable[..., Any]
"""Calls a far side as `Retry().run(far, repeatable=, ask=)` does: three attempts, without real pauses."""

Law = Callable[[Trying], None]


def what_was_never_sent_is_sent_again(trying: Trying) -> None:
    """Up to the last attempt, and then its error is raised."""
    try:
        assert trying(FarSide(NEVER_SENT(), NEVER_SENT())) == 3
    except NEVER_SENT as error:
        raise AssertionError("a request that was never sent was not sent again") from error
    far = FarSide(*(NEVER_SENT() for _ in range(9)))
    _raises(NEVER_SENT, trying, far)
    assert far.calls == 3, f"{far.calls} attempts instead of 3"


def what_may_have_been_sent_is_not_sent_again_unasked(trying: Trying) -> None:
    """It may have happened, and would happen twice."""
    far = FarSide(MAYBE_SENT())
    _raises(MAYBE_SENT, trying, far)
    assert far.calls == 1, "a request that may have been sent was sent again"
    assert trying(FarSide(MAYBE_SENT()), repeatable=True) == 2


def a_refusal_is_final(trying: Trying) -> None:
    """The same request gets the same answer."""
    far = FarSide(Refused())
    _raises(Refused, trying, far, repeatable=True)
    assert far.calls == 1, "a refused request was sent again"


def the_answer_to_asking_decides(trying: Trying) -> None:
    """Happened is the result, NotHappened sends again, CannotTell leaves the doubt."""
    far = FarSide(MAYBE_SENT())
    assert trying(far, ask=lambda: Happened(7)) == 7
    assert far.calls == 1, "it had happened, and was sent again"
    assert trying(FarSide(MAYBE_SENT()), ask=NotHappened) == 2
    far = FarSide(MAYBE_SENT())
    _raises(MAYBE_SENT, trying, far, ask=lambda: CannotTell("no idea"))
    assert far.calls == 1, "nobody could tell, and it was sent again"


def an_error_in_asking_leaves_the_doubt(trying: Trying) -> None:
    """Raised in its place, it would say that nothing was sent."""

    def ask() -> None:
        raise NEVER_SENT

    far = FarSide(MAYBE_SENT())
    _raises(MAYBE_SENT, trying, far, ask=ask)
    assert far.calls == 1


def _raises(kind: type[Exception], trying: Trying, far: FarSide, **options: Any) -> None:
    try:
        value = trying(far, **options)
    except kind:
        return
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} was raised instead of {kind.__name__}") from error
    raise AssertionError(f"{value!r} came instead of {kind.__name__}")


LAWS: tuple[Law, ...] = (
    what_was_never_sent_is_sent_again,
    what_may_have_been_sent_is_not_sent_again_unasked,
    a_refusal_is_final,
    the_answer_to_asking_decides,
    an_error_in_asking_leaves_the_doubt,
)
