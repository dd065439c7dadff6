"""The laws of confirmation tokens. Each is a function of an InstrumentBench that raises AssertionError when broken."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from typing import Any

from umavez.core.token_errors import (
    TokenCancelled,
    TokenError,
    TokenExpired,
    TokenNotYours,
    TokenUnknown,
    TokenUsed,
    TooManyTokens,
)
from umavez.errors import KeyReused, OperationInProgress
from umavez.testing.instruments import InstrumentBench
from umavez.tokens import AsyncTokens, Issued, Tokens, TokenState

TTL = 300.0
Law = Callable[[InstrumentBench], None]


class Counter:
    """An effect that counts, and gives what a real one would: an identifier."""

    def __init__(self) -> None:
        self.effects = 0

    def __call__(self, payload: Any) -> dict[str, Any]:
        self.effects += 1
        return {"ride": self.effects, "for": payload}


def tokens_of(bench: InstrumentBench, purpose: str = "confirm", **options: Any) -> Any:
    """Tokens on the bench's engine."""
    return bench.pick(Tokens, AsyncTokens)(bench.once, purpose, **{"unknown": "rerun", **options})


def refusal(bench: InstrumentBench, result: Callable[[], Any]) -> TokenError:
    """The TokenError that `result` raises."""
    try:
        value = bench.do(result())
    except TokenError as error:
        return error
    raise AssertionError(f"the token should have been rejected, but gave {value!r}")


def an_unused_token_runs_once_and_a_used_one_gives_the_same(bench: InstrumentBench) -> None:
    """The first redemption runs with the payload; every repeat is the same value, of the same type."""
    tokens, effect = tokens_of(bench), Counter()
    issued = bench.do(tokens.issue("ana", {"to": "home"}))
    first = bench.do(tokens.redeem(issued.token, "ana", bench.work(effect)))
    again = bench.do(tokens.redeem(issued.token, "ana", bench.work(effect)))
    assert first.value == again.value == {"ride": 1, "for": {"to": "home"}}
    assert (first.replayed, again.replayed, effect.effects) == (False, True, 1)


def a_used_token_is_replayed_past_its_time(bench: InstrumentBench) -> None:
    """An honest retry after the network came back gets its ride, also when the token's time has passed."""
    tokens, effect = tokens_of(bench), Counter()
    issued = bench.do(tokens.issue("ana"))
    bench.do(tokens.redeem(issued.token, "ana", bench.work(effect)))
    bench.clock.advance(TTL * 10)
    assert bench.do(tokens.redeem(issued.token, "ana", bench.work(effect))).replayed
    bench.do(tokens.issue("ana"))
    assert bench.do(tokens.redeem(issued.token, "ana", bench.work(effect))).replayed, "issuing removed a used token"


def a_used_token_never_runs_again_however_late(bench: InstrumentBench) -> None:
    """Past its time to be kept it answers as before, or is unknown once it was swept; it does not begin anew."""
    tokens, effect = tokens_of(bench, keep=3600), Counter()
    issued = bench.do(tokens.issue("ana"))
    bench.do(tokens.redeem(issued.token, "ana", bench.work(effect)))
    bench.clock.advance(7200)
    with suppress(TokenUnknown):
        assert bench.do(tokens.redeem(issued.token, "ana", bench.work(effect))).replayed
    assert effect.effects == 1


def an_expired_token_runs_nothing(bench: InstrumentBench) -> None:
    """The store's clock decides, to the millisecond where it can be moved."""
    tokens, effect = tokens_of(bench), Counter()
    issued = bench.do(tokens.issue("ana"))
    bench.clock.advance(TTL + 1)
    error = refusal(bench, lambda: tokens.redeem(issued.token, "ana", bench.work(effect)))
    assert isinstance(error, TokenExpired)
    assert effect.effects == 0


def an_unknown_token_runs_nothing_and_is_not_kept(bench: InstrumentBench) -> None:
    """Neither a well-formed stranger nor a malformed text leaves a record behind."""
    tokens, effect = tokens_of(bench), Counter()
    for text in ("0" * 64, "", "x" * 64, "0" * 63, "0" * 65, "A" * 64, "٠" * 64):
        error = refusal(bench, lambda text=text: tokens.redeem(text, "ana", bench.work(effect)))  # type: ignore[misc]
        assert isinstance(error, TokenUnknown)
    assert effect.effects == 0
    assert bench.do(bench.once.find()) == []


def somebody_elses_token_says_nothing_about_itself(bench: InstrumentBench) -> None:
    """Unused, used, expired or cancelled: a stranger is told the same, in the words for a token that never was."""
    tokens, effect = tokens_of(bench), Counter()
    made = [bench.do(tokens.issue("ana")) for _ in range(4)]
    bench.do(tokens.redeem(made[1].token, "ana", bench.work(effect)))
    bench.do(tokens.cancel(made[2].token, "ana"))
    foreign = [refusal(bench, lambda i=i: tokens.redeem(i.token, "bob", bench.work(effect))) for i in made]  # type: ignore[misc]
    foreign += [refusal(bench, lambda i=i: tokens.status(i.token, "bob")) for i in made]  # type: ignore[misc]
    foreign += [refusal(bench, lambda i=i: tokens.cancel(i.token, "bob")) for i in made]  # type: ignore[misc]
    bench.clock.advance(TTL + 1)
    foreign.append(refusal(bench, lambda: tokens.redeem(made[3].token, "bob", bench.work(effect))))
    unknown = refusal(bench, lambda: tokens.redeem("0" * 64, "bob", bench.work(effect)))
    assert {type(error) for error in foreign} == {TokenNotYours}
    assert {str(error) for error in foreign} == {str(unknown)}, "the sentence tells a stranger that the token exists"
    assert all(not vars(error) for error in foreign), "the error carries something about the token"
    assert effect.effects == 1


def the_token_itself_is_stored_nowhere(bench: InstrumentBench) -> None:
    """Whoever reads the store cannot redeem."""
    tokens = tokens_of(bench)
    issued = bench.do(tokens.issue("ana", "secret of ana"))
    bench.do(tokens.redeem(issued.token, "ana", bench.work(Counter())))
    (record,) = bench.do(bench.once.find())
    assert issued.token not in repr(record)
    assert issued.token not in repr(issued), "a representation ends up in logs"


def a_cancelled_token_runs_nothing(bench: InstrumentBench) -> None:
    """Cancelling twice is one cancellation; a used token cannot be cancelled."""
    tokens, effect = tokens_of(bench), Counter()
    issued = bench.do(tokens.issue("ana"))
    assert bench.do(tokens.cancel(issued.token, "ana", reason="changed her mind"))
    assert not bench.do(tokens.cancel(issued.token, "ana"))
    error = refusal(bench, lambda: tokens.redeem(issued.token, "ana", bench.work(effect)))
    assert isinstance(error, TokenCancelled)
    used = bench.do(tokens.issue("ana"))
    bench.do(tokens.redeem(used.token, "ana", bench.work(effect)))
    assert isinstance(refusal(bench, lambda: tokens.cancel(used.token, "ana")), TokenUsed)
    assert effect.effects == 1
    assert bench.kinds().count("cancelled") == 1


def a_token_confirms_what_it_was_issued_for(bench: InstrumentBench) -> None:
    """A payload that was edited meanwhile is not confirmed by the old token."""
    tokens, effect = tokens_of(bench), Counter()
    issued = bench.do(tokens.issue("ana", {"price": 10}))
    try:
        bench.do(tokens.redeem(issued.token, "ana", bench.work(effect), payload={"price": 1}))
    except KeyReused:
        assert effect.effects == 0
    else:
        raise AssertionError("another price was confirmed with this token")
    assert not bench.do(tokens.redeem(issued.token, "ana", bench.work(effect), payload={"price": 10})).replayed


def a_redemption_that_failed_can_be_tried_again_within_the_tokens_time_only(bench: InstrumentBench) -> None:
    """A failure frees the token, and does not prolong it."""
    tokens, effect = tokens_of(bench, lease=5), Counter()

    def fails(_: Any) -> None:
        raise RuntimeError("no driver")

    late, soon = bench.do(tokens.issue("ana")), bench.do(tokens.issue("ana"))
    for issued in (late, soon):
        with suppress(RuntimeError):
            bench.do(tokens.redeem(issued.token, "ana", bench.work(fails)))
    assert bench.do(tokens.redeem(soon.token, "ana", bench.work(effect))).attempt == 2
    bench.clock.advance(TTL + 1)
    assert isinstance(refusal(bench, lambda: tokens.redeem(late.token, "ana", bench.work(effect))), TokenExpired)


def a_redemption_that_began_in_time_may_end_after_it(bench: InstrumentBench) -> None:
    """Expiry is decided once, when the redemption begins."""
    tokens = tokens_of(bench, lease=3600)
    issued = bench.do(tokens.issue("ana"))

    def slow(_: Any) -> str:
        bench.clock.advance(TTL * 2)
        return "done"

    assert bench.do(tokens.redeem(issued.token, "ana", bench.work(slow))).value == "done"
    assert bench.do(tokens.status(issued.token, "ana")).state is TokenState.USED


def status_shows_where_a_token_stands_and_changes_nothing(bench: InstrumentBench) -> None:
    """A hundred looks leave it valid: a mail scanner does not use it up."""
    tokens = tokens_of(bench)
    issued = bench.do(tokens.issue("ana", [1, 2]))
    views = [bench.do(tokens.status(issued.token, "ana")) for _ in range(100)]
    assert {view.state for view in views} == {TokenState.UNUSED}
    assert views[0].payload == [1, 2]
    assert views[0].expires_at == issued.expires_at
    bench.do(tokens.redeem(issued.token, "ana", bench.work(lambda _: "ride-1")))
    assert bench.do(tokens.status(issued.token, "ana"))[:4] == (TokenState.USED, issued.expires_at, [1, 2], "ride-1")


def issuing_removes_the_owners_expired_tokens_and_tells_so_once(bench: InstrumentBench) -> None:
    """Others' tokens and used ones stay; each expiry is one event."""
    tokens = tokens_of(bench)
    used = bench.do(tokens.issue("ana"))
    bench.do(tokens.redeem(used.token, "ana", bench.work(Counter())))
    for owner in ("ana", "ana", "bob"):
        bench.do(tokens.issue(owner))
    bench.clock.advance(TTL + 1)
    bench.do(tokens.issue("ana"))
    bench.do(tokens.issue("ana"))
    assert [view.state for view in bench.do(tokens.find("ana"))] == ["used", "unused", "unused"]
    assert [view.state for view in bench.do(tokens.find("bob"))] == ["expired"]
    assert bench.kinds().count("expired") == 2


def expiry_is_told_once_for_each_token_with_its_payload(bench: InstrumentBench) -> None:
    """Whoever must give a seat back learns which, and only one of many who ask does."""
    tokens = tokens_of(bench)
    for number in range(5):
        bench.do(tokens.issue(f"p{number}", {"seat": number}))
    assert bench.do(tokens.expire()) == []
    bench.clock.advance(TTL + 1)
    answers = bench.together(4, tokens.expire)
    told = [view.payload["seat"] for answer in answers for view in answer]
    assert sorted(told) == [0, 1, 2, 3, 4], f"told {told}"
    assert bench.kinds().count("expired") == 5


def no_token_keeps_an_expired_one_from_being_told(bench: InstrumentBench) -> None:
    """A limit counts what is told: neither tokens that live longer nor those told before stand in the way."""
    tokens = tokens_of(bench)
    for number in range(130):
        bench.do(tokens.issue(f"long{number}", ttl=10 * TTL))
    bench.clock.advance(1)
    for number in range(5):
        bench.do(tokens.issue(f"p{number}", number))
    bench.clock.advance(TTL + 1)
    told = [[view.payload for view in bench.do(tokens.expire(limit=2))] for _ in range(4)]
    assert [len(some) for some in told] == [2, 2, 1, 0], f"told {told}"
    assert sorted(number for some in told for number in some) == [0, 1, 2, 3, 4]


def a_limit_of_live_tokens_is_kept(bench: InstrumentBench) -> None:
    """An owner at the limit gets no further token until one is used, cancelled or expires."""
    tokens = tokens_of(bench, max_live=2)
    issued = [bench.do(tokens.issue("ana")) for _ in range(2)]
    assert isinstance(refusal(bench, lambda: tokens.issue("ana")), TooManyTokens)
    bench.do(tokens.issue("bob"))
    bench.do(tokens.cancel(issued[0].token, "ana"))
    bench.do(tokens.issue("ana"))
    bench.clock.advance(TTL + 1)
    bench.do(tokens.issue("ana"))


def a_limit_of_live_tokens_is_kept_among_rivals(bench: InstrumentBench) -> None:
    """However many ask at once, as many are issued as the limit allows, and the others are told so."""
    tokens = tokens_of(bench, max_live=3)
    told = bench.together(8, lambda: tokens.issue("ana"))
    assert sum(isinstance(one, Issued) for one in told) == 3, told
    assert sum(isinstance(one, TooManyTokens) for one in told) == 5, told


def redemptions_at_once_create_one_result(bench: InstrumentBench) -> None:
    """All callers get the winner's result."""
    tokens, effect = tokens_of(bench, wait=60.0), Counter()
    issued = bench.do(tokens.issue("ana"))
    outcomes = bench.together(32, lambda: tokens.redeem(issued.token, "ana", bench.work(effect)))
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert not failures, f"{len(failures)} callers failed, such as {failures[0]!r}"
    assert effect.effects == 1
    assert len({outcome.value["ride"] for outcome in outcomes}) == 1
    assert sum(not outcome.replayed for outcome in outcomes) == 1


def a_key_of_the_engine_is_no_token(bench: InstrumentBench) -> None:
    """A record that some operation made under a token's purpose cannot be redeemed."""
    tokens, effect = tokens_of(bench), Counter()
    issued = bench.do(tokens.issue("ana"))
    digest = sha256(b"0" * 64).hexdigest()
    bench.do(bench.once.run("confirm", key=digest, call=bench.work(lambda: 1), process_instance="ana"))
    assert bench.do(tokens.status(issued.token, "ana")).state is TokenState.UNUSED
    assert isinstance(refusal(bench, lambda: tokens.redeem("0" * 64, "ana", bench.work(effect))), TokenUnknown)
    assert effect.effects == 0


def a_running_redemption_cannot_be_cancelled(bench: InstrumentBench) -> None:
    """Its owner is told to come back, and the redemption ends as it would have."""
    tokens, seen = tokens_of(bench), []
    issued = bench.do(tokens.issue("ana"))

    def check(result: BaseException | None) -> str:
        seen.append(result)
        return "ride"

    if bench.pick(True, False):

        def call(_: Any) -> str:
            try:
                tokens.cancel(issued.token, "ana")
            except OperationInProgress as error:
                return check(error)
            return check(None)
    else:

        async def call(_: Any) -> str:  # type: ignore[misc]  # the same, awaited
            try:
                await tokens.cancel(issued.token, "ana")
            except OperationInProgress as error:
                return check(error)
            return check(None)

    assert bench.do(tokens.redeem(issued.token, "ana", call)).value == "ride"
    assert isinstance(seen[0], OperationInProgress)


LAWS: tuple[Law, ...] = (
    an_unused_token_runs_once_and_a_used_one_gives_the_same,
    a_used_token_is_replayed_past_its_time,
    a_used_token_never_runs_again_however_late,
    an_expired_token_runs_nothing,
    an_unknown_token_runs_nothing_and_is_not_kept,
    somebody_elses_token_says_nothing_about_itself,
    the_token_itself_is_stored_nowhere,
    a_cancelled_token_runs_nothing,
    a_token_confirms_what_it_was_issued_for,
    a_redemption_that_failed_can_be_tried_again_within_the_tokens_time_only,
    a_redemption_that_began_in_time_may_end_after_it,
    status_shows_where_a_token_stands_and_changes_nothing,
    issuing_removes_the_owners_expired_tokens_and_tells_so_once,
    expiry_is_told_once_for_each_token_with_its_payload,
    no_token_keeps_an_expired_one_from_being_told,
    a_limit_of_live_tokens_is_kept,
    a_limit_of_live_tokens_is_kept_among_rivals,
    redemptions_at_once_create_one_result,
    a_key_of_the_engine_is_no_token,
    a_running_redemption_cannot_be_cancelled,
)
