"""Once and AsyncOnce: what an engineer who uses the engine sees. Every test runs on both shells."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import dataclasses
import functools
import gc
import json
import os
import sqlite3
import threading
import time
import weakref
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from umavez import (
    AlreadySettled,
    AsyncOnce,
    CannotTell,
    ClaimLost,
    ConfigurationError,
    Happened,
    InvalidKey,
    KeyReused,
    MaxRetriesExceeded,
    NoSuchRecord,
    NotDeclared,
    NotHappened,
    NotStorable,
    Once,
    OperationInProgress,
    OutcomeNotKept,
    OutcomeUnknown,
    Question,
    Reentered,
    Status,
    StoreUnavailable,
    current_attempt,
)
from umavez.core.encoding.codec import JsonCodec
from umavez.core.key import Key
from umavez.core.record import Draft
from umavez.engine.insistence import not_at_all
from umavez.engine.outcome import Event
from umavez.observe.minutes import Minutes
from umavez.stores.memory import AsyncMemoryStore, MemoryStore
from umavez.testing.clock import ManualClock


class Declined(Exception):
    """A final refusal of the far side."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Shell:
    """Drives an engine synchronously, whichever it is: an AsyncOnce runs on a loop of its own."""

    def __init__(self, kind: str) -> None:
        self.clock = ManualClock()
        self.events: list[Event] = []
        self.loop = asyncio.new_event_loop() if kind == "tasks" else None
        if self.loop:
            self.engine: Any = AsyncOnce(AsyncMemoryStore(self.clock), scope="shop", observers=[self.events.append])
        else:
            self.engine = Once(MemoryStore(self.clock), scope="shop", observers=[self.events.append])

    def do(self, result: Any) -> Any:
        return self.loop.run_until_complete(result) if self.loop else result

    def function(self, body: Any) -> Any:
        """`body`, as the kind of function this shell takes."""
        if not self.loop:
            return body

        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            return body(*args, **kwargs)

        return coroutine

    def run(self, key: object, body: Any, operation: str = "charge", **options: Any) -> Any:
        options.setdefault("unknown", "rerun")
        if callable(options["unknown"]):
            options["unknown"] = self.function(options["unknown"])
        if options.get("replay"):
            options["replay"] = self.function(options["replay"])
        return self.do(self.engine.run(operation, key=key, call=self.function(body), **options))

    def close(self) -> None:
        self.do(self.engine.close())
        if self.loop:
            self.loop.close()

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


@pytest.fixture(params=["threads", "tasks"])
def shell(request: pytest.FixtureRequest) -> Any:
    made = Shell(request.param)
    yield made
    made.close()


@pytest.fixture
def threads() -> Any:
    """The sync shell alone, for tests of an interleaving; the twin test carries them over to tasks."""
    made = Shell("threads")
    yield made
    made.close()


def elsewhere(call: Any) -> Any:
    """The result, or the exception, of `call` in another thread."""
    result: list[Any] = []

    def target() -> None:
        try:
            result.append(call())
        except Exception as error:  # noqa: BLE001  # handed to the test as it is
            result.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join(10)
    return result[0]


class Shown:
    """A codec that takes anything."""

    def encode(self, value: Any, key: Key) -> str:
        return json.dumps(value, default=str)

    def decode(self, text: str, key: Key) -> Any:
        return json.loads(text)


async def as_coroutine(body: Any) -> Any:
    return body()


class Awaited:
    """A codec and an observer whose coroutines nobody awaits."""

    async def encode(self, _value: object, _key: object) -> str:
        return "1"

    async def decode(self, _text: str, _key: object) -> object:
        return 1

    async def __call__(self, _event: Event) -> None: ...


class Counter:
    """An effect that counts itself, without any uniqueness to hide behind."""

    def __init__(self, value: Any = "done", error: BaseException | None = None) -> None:
        self.calls = 0
        self.value = value
        self.error = error

    def __call__(self, *_: Any) -> Any:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.value


@pytest.mark.parametrize("value", [None, 0, "", [], {}, (1, 2), Decimal("1.10"), {"a": [1.5, None]}, b"\x00\xff"])
def test_a_repeat_returns_the_same_value_of_the_same_type(shell: Shell, value: Any) -> None:
    effect = Counter(value)

    first, second = shell.run("1", effect), shell.run("1", effect)

    assert (first.value, first.replayed) == (value, False)
    assert (second.value, second.replayed) == (value, True)
    assert type(second.value) is type(value)
    assert effect.calls == 1
    assert shell.kinds() == ["succeeded", "replayed"]


def test_scope_and_operation_keep_equal_keys_apart(shell: Shell) -> None:
    effect = Counter()

    shell.run("1", effect)
    shell.run("1", effect, operation="refund")
    shell.run("1", effect, scope="another shop")

    assert effect.calls == 3


@pytest.mark.parametrize("key", ["", "x" * 256, None, 1.5, b"1", True])
def test_a_bad_key_is_refused_before_anything_runs(shell: Shell, key: object) -> None:
    effect = Counter()

    with pytest.raises(InvalidKey):
        shell.run(key, effect)

    assert effect.calls == 0


def test_an_empty_scope_is_refused() -> None:
    with pytest.raises(InvalidKey):
        Once("memory:", scope="")


def test_an_operation_must_say_what_unknown_means(shell: Shell) -> None:
    with pytest.raises(NotDeclared, match="unknown"):
        shell.engine.operation("charge", key=lambda order: order)
    with pytest.raises(NotDeclared):
        shell.run("1", Counter(), unknown="perhaps")
    with pytest.raises(ConfigurationError, match="leese"):
        shell.run("1", Counter(), leese=3)


def test_a_key_used_for_something_else_is_refused_unless_told_to_replay(shell: Shell) -> None:
    shell.run("1", Counter("ten"), fingerprint={"amount": 10})

    with pytest.raises(KeyReused):
        shell.run("1", Counter("eleven"), fingerprint={"amount": 11})

    assert shell.run("1", Counter(), fingerprint={"amount": 11}, mismatch="replay").value == "ten"


def test_a_final_exception_is_stored_and_raised_again(shell: Shell) -> None:
    effect = Counter(error=Declined(51, "no funds"))

    for _ in range(2):
        with pytest.raises(Declined, match="51: no funds") as caught:
            shell.run("1", effect, final=(Declined,))
        assert caught.value.code == 51

    assert effect.calls == 1


def test_s3_03_a_failure_frees_the_key_until_retries_are_used_up(shell: Shell) -> None:
    effect = Counter(error=ConnectionError("portal"))

    for _ in range(4):
        with pytest.raises(ConnectionError):
            shell.run("1", effect)
    with pytest.raises(MaxRetriesExceeded) as caught:
        shell.run("1", effect)

    assert effect.calls == 4
    assert caught.value.retry_count == 3
    assert "portal" in str(caught.value.last_error)


def test_a_retry_after_a_failure_can_succeed(shell: Shell) -> None:
    with pytest.raises(ConnectionError):
        shell.run("1", Counter(error=ConnectionError()))

    outcome = shell.run("1", Counter("at last"))

    assert (outcome.value, outcome.attempt, outcome.replayed) == ("at last", 2, False)


def test_an_error_of_an_operation_on_hold_leaves_the_outcome_unknown(shell: Shell) -> None:
    effect = Counter(error=TimeoutError("no answer"))

    with pytest.raises(TimeoutError):
        shell.run("1", effect, unknown="hold")
    with pytest.raises(OutcomeUnknown):
        shell.run("1", effect, unknown="hold")

    assert effect.calls == 1
    assert shell.do(shell.engine.get("charge", "1")).status is Status.UNKNOWN


def test_an_exception_that_proves_nothing_happened_frees_the_key(shell: Shell) -> None:
    with pytest.raises(ConnectionRefusedError):
        shell.run("1", Counter(error=ConnectionRefusedError()), unknown="hold", free=(ConnectionRefusedError,))

    assert shell.run("1", Counter("ok"), unknown="hold").value == "ok"


@pytest.mark.parametrize(
    ("answer", "calls", "result"),
    [(Happened("theirs"), 1, "theirs"), (NotHappened(), 2, "ours"), (CannotTell("down"), 1, OutcomeUnknown)],
)
def test_the_far_side_is_asked_before_anything_is_repeated(shell: Shell, answer: Any, calls: int, result: Any) -> None:
    asked: list[Question] = []

    def ask(question: Question) -> Any:
        asked.append(question)
        return answer

    effect = Counter("ours", TimeoutError())
    with pytest.raises(TimeoutError):
        shell.run("1", effect, unknown=ask)
    effect.error = None

    if isinstance(result, type):
        with pytest.raises(result):
            shell.run("1", effect, unknown=ask)
    else:
        assert shell.run("1", effect, unknown=ask).value == result

    assert effect.calls == calls
    assert [question.key.value for question in asked] == ["1"]
    assert asked[0].fence > asked[0].record.fence, "a far side that compares can refuse the attempt it was asked about"
    record = shell.do(shell.engine.get("charge", "1"))
    assert "far side" in (record.evidence or "")


def test_an_overtaken_attempt_tells_the_caller_of_its_refusal_that_it_was_not_recorded(threads: Shell) -> None:
    """Its heartbeat has noticed already; a refusal without a note would pass for the outcome."""
    with pytest.raises(Declined) as told:  # noqa: SIM117  # the block is what is looked at
        with threads.engine.attempt("pay", key="1", unknown="rerun", final=(Declined,), lease=1) as attempt:
            attempt.lost = True
            raise Declined(51, "no funds")

    assert "could not record" in told.value.__notes__[0]


@pytest.mark.parametrize("nonsense", [None, True, "yes", ValueError("bug")])
def test_a_nonsense_answer_or_a_bug_in_asking_never_counts_as_not_happened(shell: Shell, nonsense: Any) -> None:
    def ask(_: Question) -> Any:
        if isinstance(nonsense, Exception):
            raise nonsense
        return nonsense

    effect = Counter(error=TimeoutError())
    with pytest.raises(TimeoutError):
        shell.run("1", effect, unknown=ask)
    with pytest.raises(OutcomeUnknown):
        shell.run("1", effect, unknown=ask)

    assert effect.calls == 1


def test_not_happened_counts_attempts_so_that_a_crashing_operation_ends(shell: Shell) -> None:
    effect = Counter(error=TimeoutError())

    for _ in range(3):
        with pytest.raises(TimeoutError):
            shell.run("1", effect, unknown=lambda _: NotHappened(), max_retries=2)
    with pytest.raises(MaxRetriesExceeded):
        shell.run("1", effect, unknown=lambda _: NotHappened(), max_retries=2)

    assert effect.calls == 3


class Hiccup(MemoryStore):
    """Refuses every write that keeps an outcome, until it is well again."""

    ill = True

    def swap(self, expected: str | None, draft: Draft) -> Any:
        if self.ill and draft.settled is not None:
            raise StoreUnavailable("away for a moment")
        return super().swap(expected, draft)


@pytest.mark.parametrize(
    "options", [{"free": (Exception,)}, {"final": (Exception,)}, {}], ids=["free", "final", "none"]
)
@pytest.mark.parametrize("block", [True, False], ids=["block", "function"])
def test_a_store_that_fails_after_the_effect_is_no_judgement_on_it(options: Any, block: bool) -> None:
    hiccup = Hiccup()
    once = Once(hiccup, scope="shop")
    once._admission._insistence = not_at_all
    effect = Counter("paid")
    with pytest.raises(StoreUnavailable):
        if block:
            with once.attempt("pay", key="1", unknown="hold", **options) as attempt:
                attempt.succeed(effect())
        else:
            once.run("pay", key="1", call=effect, unknown="hold", **options)
    hiccup.ill = False

    with pytest.raises(OutcomeUnknown):
        once.run("pay", key="1", call=effect, unknown="hold", **options)

    assert effect.calls == 1


def test_an_error_of_umavez_s_own_counts_where_it_is_named_as_such(shell: Shell) -> None:
    inner = OperationInProgress(Key("shop", "inner", "1"), 1.0)
    with pytest.raises(OperationInProgress):
        shell.run("1", Counter(error=inner), unknown="hold", free=(OperationInProgress,))

    assert shell.run("1", Counter("ran"), unknown="hold", free=(OperationInProgress,)).value == "ran"


@pytest.mark.parametrize("options", [{"free": (Exception,)}, {"final": (Exception,)}], ids=["free", "final"])
def test_a_reference_that_raises_after_the_effect_is_no_judgement_on_it(shell: Shell, options: Any) -> None:
    effect = Counter("paid")

    def reference(_: Any) -> Any:
        raise KeyError("id")

    options = {"unknown": "hold", "reference": reference, "replay": lambda value: value, **options}
    with pytest.raises(NotStorable) as told:
        shell.run("1", effect, **options)
    assert told.value.value == "paid"
    with pytest.raises(OutcomeNotKept):
        shell.run("1", effect, **options)

    assert effect.calls == 1


class Locked(MemoryStore):
    """Its records are held by another transaction once `locked`: whoever changes one is told so."""

    locked = False

    def swap(self, expected: str | None, draft: Draft) -> Any:
        if self.locked and expected is not None:
            raise OperationInProgress(draft.key, 1.0)
        return super().swap(expected, draft)


def test_a_record_that_another_transaction_holds_does_not_hide_the_caller_s_own_error() -> None:
    store = Locked()
    once = Once(store, scope="shop")
    once._admission._insistence = not_at_all
    with pytest.raises(ValueError, match="mine") as told:  # noqa: SIM117  # the lock comes in the middle
        with once.attempt("pay", key="1", unknown="hold"):
            store.locked = True
            raise ValueError("mine")
    assert "could not record" in told.value.__notes__[0]


def test_after_a_success_nobody_is_told_that_his_own_attempt_is_in_progress() -> None:
    store = Locked()
    once = Once(store, scope="shop")
    once._admission._insistence = not_at_all
    with pytest.raises(StoreUnavailable, match="held by another transaction"):  # noqa: SIM117  # the lock comes in the middle
        with once.attempt("pay", key="1", unknown="hold") as attempt:
            store.locked = True
            attempt.succeed(1)


def test_an_unstorable_answer_of_the_far_side_is_adopted_without_its_value(shell: Shell) -> None:
    asked: list[Any] = []

    def ask(question: Question) -> Any:
        asked.append(question)
        return Happened(object())

    effect = Counter(error=TimeoutError())
    with pytest.raises(TimeoutError):
        shell.run("1", effect, unknown=ask)
    with pytest.raises(NotStorable):
        shell.run("1", effect, unknown=ask)
    with pytest.raises(OutcomeNotKept):
        shell.run("1", effect, unknown=ask)

    assert (len(asked), effect.calls) == (1, 1)


def test_a_reason_of_the_far_side_is_kept_in_a_form_that_every_store_takes(shell: Shell) -> None:
    with pytest.raises(TimeoutError):
        shell.run("1", Counter(error=TimeoutError()), unknown=lambda _: CannotTell())
    with pytest.raises(OutcomeUnknown):
        shell.run("1", Counter(), unknown=lambda _: CannotTell("\ud800\0" + "x" * 1_000_000))

    record = shell.do(shell.engine.get("charge", "1"))
    assert record.error.startswith("?\u2400xx")
    assert len(record.error) + len(record.evidence) < 10_000


def test_an_operation_that_hangs_can_be_closed_over_its_head(threads: Shell) -> None:
    engine: Once = threads.engine
    with pytest.raises(ClaimLost), engine.attempt("pay", key="1", unknown="hold") as attempt:
        with pytest.raises(OperationInProgress):
            engine.resolve("pay", "1", Happened("by hand"), by="ana", reason="it hangs")
        engine.resolve("pay", "1", Happened("by hand"), by="ana", reason="it hangs", override=True)
        attempt.succeed("late")

    assert engine.run("pay", key="1", call=Counter(), unknown="hold").value == "by hand"


@pytest.mark.parametrize("bad", [b"p1", 1.5, True, "", "x" * 256, "a\0b", "\ud800"], ids=repr)
@pytest.mark.parametrize("place", ["process_instance", "activity"])
def test_a_process_instance_or_activity_that_is_no_name_is_refused_before_anything_runs(
    shell: Shell, place: str, bad: Any
) -> None:
    effect = Counter()
    with pytest.raises(InvalidKey, match=place):
        shell.run("1", effect, **{place: bad})

    assert effect.calls == 0


def test_a_process_instance_is_named_by_what_can_name_a_key(shell: Shell) -> None:
    shell.run("1", Counter(), process_instance=7, activity=UUID(int=1))

    record = shell.do(shell.engine.get("charge", "1"))
    assert (record.process_instance, record.activity) == ("7", str(UUID(int=1)))


def test_an_outcome_given_by_hand_that_cannot_be_kept_is_refused(shell: Shell) -> None:
    with pytest.raises(TimeoutError):
        shell.run("1", Counter(error=TimeoutError()), unknown="hold")
    with pytest.raises(NotStorable, match="bytes"):
        shell.do(shell.engine.resolve("charge", "1", Happened("x" * 2_000_000), by="ana", reason="seen"))
    assert shell.do(shell.engine.get("charge", "1")).status is Status.UNKNOWN


def test_replay_shows_the_entity_as_it_is_now(shell: Shell) -> None:
    state = {7: "rascunho"}
    options = {"reference": lambda row: row[0], "replay": lambda number: (number, state[number])}
    first = shell.run("1", lambda: (7, state[7]), **options)
    state[7] = "aceita"

    again = shell.run("1", Counter(), **options)

    assert (first.value, again.value) == ((7, "rascunho"), (7, "aceita"))


def test_an_oversized_value_is_returned_once_and_never_run_again(shell: Shell) -> None:
    effect = Counter("x" * 100)

    assert shell.run("1", effect, max_body=50).value == "x" * 100
    with pytest.raises(OutcomeNotKept, match="102 bytes"):
        shell.run("1", effect, max_body=50)

    assert effect.calls == 1


def test_an_unstorable_value_is_told_at_once_and_never_run_again(shell: Shell) -> None:
    effect = Counter(object())

    with pytest.raises(NotStorable) as caught:
        shell.run("1", effect)
    with pytest.raises(OutcomeNotKept):
        shell.run("1", effect)

    assert caught.value.value is effect.value
    assert effect.calls == 1


def test_the_attempt_block_checkpoints_and_settles(shell: Shell) -> None:
    async def tasks() -> list[Any]:
        async with shell.engine.attempt("pay", key="1", unknown="rerun") as attempt:
            await attempt.checkpoint({"step": 2})
            seen = [attempt.progress, attempt.number, attempt.replayed, attempt.fence > 0]
            await attempt.succeed("paid")
        async with shell.engine.attempt("pay", key="1", unknown="rerun") as attempt:
            return [*seen, attempt.replayed, attempt.outcome]

    def threads() -> list[Any]:
        with shell.engine.attempt("pay", key="1", unknown="rerun") as attempt:
            attempt.checkpoint({"step": 2})
            seen = [attempt.progress, attempt.number, attempt.replayed, attempt.fence > 0]
            attempt.succeed("paid")
        with shell.engine.attempt("pay", key="1", unknown="rerun") as attempt:
            return [*seen, attempt.replayed, attempt.outcome]

    result = shell.do(tasks()) if shell.loop else threads()

    assert result == [{"step": 2}, 1, False, True, True, "paid"]


def test_progress_and_the_downstream_key_survive_into_the_next_attempt() -> None:
    once = Once("memory:", scope="shop")
    with pytest.raises(ConnectionError), once.attempt("pay", key="1", unknown="rerun") as attempt:
        first = attempt.downstream_key("bank")
        attempt.checkpoint("half way")
        raise ConnectionError

    with once.attempt("pay", key="1", unknown="rerun") as attempt:
        assert (attempt.number, attempt.progress) == (2, "half way")
        assert attempt.downstream_key("bank") == first
        assert attempt.downstream_key("mail") != first
    once.close()


def test_an_overtaken_attempt_is_told_and_changes_nothing(threads: Shell) -> None:
    engine: Once = threads.engine
    with pytest.raises(ClaimLost), engine.attempt("pay", key="1", unknown="rerun", heartbeat=False) as late:
        threads.clock.advance(31)
        rival = elsewhere(lambda: engine.run("pay", key="1", call=lambda: "second", unknown="rerun").value)
        late.succeed("late")

    assert rival == "second"
    assert engine.run("pay", key="1", call=lambda: "third", unknown="rerun").value == "second"
    assert {"taken_over", "lost"} <= set(threads.kinds())


def test_s3_04_a_running_operation_is_in_progress_for_others(threads: Shell) -> None:
    with threads.engine.attempt("pay", key="1", unknown="rerun"):
        busy = elsewhere(lambda: threads.run("1", Counter(), operation="pay"))

    assert isinstance(busy, OperationInProgress)
    assert 0 < busy.retry_after <= 30


def test_an_operation_that_calls_itself_with_its_own_key_is_told_so(shell: Shell) -> None:
    if shell.loop:

        async def again() -> Any:
            return await shell.engine.run("loop", key="1", call=again, unknown="rerun", wait=5.0)

        with pytest.raises(Reentered):
            shell.do(again())
    else:

        def again_now() -> Any:
            return shell.engine.run("loop", key="1", call=again_now, unknown="rerun", wait=5.0)

        with pytest.raises(Reentered):
            again_now()


def test_threads_that_wait_share_one_run_and_wake_at_once() -> None:
    once = Once("memory:", scope="shop")
    started, go = threading.Event(), threading.Event()
    woken: list[float] = []

    def slow() -> str:
        started.set()
        go.wait(5)
        return "done"

    def rival() -> None:
        assert once.run("slow", key="1", call=Counter("wrong"), unknown="rerun", wait=5.0).value == "done"
        woken.append(time.monotonic())

    first = threading.Thread(target=once.run, args=("slow",), kwargs={"key": "1", "call": slow, "unknown": "rerun"})
    first.start()
    started.wait(5)
    rivals = [threading.Thread(target=rival) for _ in range(8)]
    for thread in rivals:
        thread.start()
    go.set()
    for thread in [first, *rivals]:
        thread.join(5)

    assert len(woken) == 8
    once.close()


def test_tasks_that_wait_share_one_run() -> None:
    async def main() -> tuple[int, list[Any]]:
        effect = Counter("done")
        async with AsyncOnce("memory:", scope="shop") as once:

            async def slow() -> Any:
                await asyncio.sleep(0.01)
                return effect()

            outcomes = await asyncio.gather(
                *(once.run("slow", key="1", call=slow, unknown="rerun", wait=5.0) for _ in range(50))
            )
            rivals = await asyncio.gather(
                *(once.run("slow", key="2", call=slow, unknown="rerun") for _ in range(2)), return_exceptions=True
            )
            assert isinstance(rivals[1], OperationInProgress)
        return effect.calls, [outcome.value for outcome in outcomes]

    calls, values = asyncio.run(main())
    assert values == ["done"] * 50
    assert calls == 2


def eventually(true: Any, seconds: float = 5.0) -> bool:
    """Whether `true()` becomes so; the heart beats in its own time, so there is no clock to turn."""
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.002)
    return bool(true())


def test_the_heart_renews_a_long_run_and_notices_a_loss(threads: Shell) -> None:
    engine: Once = threads.engine
    with engine.attempt("long", key="1", unknown="rerun", lease=0.15):
        before = engine.get("long", "1")
        assert eventually(lambda: engine.get("long", "1").stamp != before.stamp)
    with pytest.raises(ClaimLost), engine.attempt("long", key="2", unknown="rerun", lease=0.6) as attempt:
        threads.clock.advance(60)
        assert elsewhere(lambda: engine.run("long", key="2", call=lambda: "theirs", unknown="rerun").value) == "theirs"
        assert eventually(lambda: attempt.lost)
        attempt.check()


@pytest.mark.parametrize("error", [ConnectionResetError, LookupError, ArithmeticError])
def test_what_a_failed_attempt_left_behind_is_told_to_stop(shell: Shell, error: type[Exception]) -> None:
    """Its key is free, refused for good, or in doubt; either way it is not this attempt's any more."""
    kept: list[Any] = []

    def fail() -> None:
        kept.append(current_attempt())
        raise error

    with pytest.raises(error):
        shell.run("k", fail, unknown="hold", free=(LookupError,), final=(ArithmeticError,))
    with pytest.raises(ClaimLost):
        shell.do(kept[0].check())

    shell.run("other", lambda: kept.append(current_attempt()), unknown="hold")
    shell.do(kept[1].check())


@pytest.mark.parametrize("first", ["child", "parent"])
def test_a_process_forked_inside_an_attempt_is_another_owner(tmp_path: Path, first: str) -> None:
    """Each learns whether the other settled; under one name both would be told that they did."""
    url = f"sqlite:///{tmp_path / 'forked.db'}"
    once = Once(url, scope="shop")
    go, went = os.pipe(), os.pipe()
    told = ""
    with contextlib.suppress(ClaimLost), once.attempt("pay", key="1", unknown="rerun", lease=30) as attempt:
        child = os.fork()
        if child == 0:
            os._exit(_settled_by_child(attempt, go[0] if first == "parent" else None, went[1]))
        if first == "child":
            assert os.read(went[0], 1) in {b"s", b"l"}
        attempt.succeed("parent")
        told = "succeeded"
    os.write(go[1], b"!")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for end in (*go, *went):
        os.close(end)

    assert (told == "succeeded") is (code == LOST_CODE), "exactly one of them settled it"
    value = once.run("pay", key="1", call=lambda: "again", unknown="rerun").value
    assert value == ("parent" if told else "child")
    once.close()


LOST_CODE = 7


def _settled_by_child(attempt: Any, go: int | None, went: int) -> int:
    try:
        if go is not None:
            os.read(go, 1)
        attempt.succeed("child")
    except ClaimLost:
        os.write(went, b"l")
        return LOST_CODE
    except BaseException:  # noqa: BLE001  # a child of the test must not go on with the suite
        return 1
    os.write(went, b"s")
    return 0


def test_cancelling_a_task_leaves_what_its_policy_says() -> None:
    async def main() -> tuple[Status, Status]:
        async with AsyncOnce("memory:", scope="shop") as once:

            async def endless() -> None:
                await asyncio.sleep(60)

            for key, unknown in (("1", "rerun"), ("2", "hold")):
                task = asyncio.create_task(once.run("endless", key=key, call=endless, unknown=unknown))
                await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            first, second = await once.get("endless", "1"), await once.get("endless", "2")
            assert first is not None
            assert second is not None
            return first.status, second.status

    assert asyncio.run(main()) == (Status.FAILED, Status.UNKNOWN)


@dataclasses.dataclass
class Order:
    id: int
    total: Decimal


def test_a_decorated_function_binds_its_arguments() -> None:
    once = Once("memory:", scope="shop")
    calls: list[Any] = []

    @once.operation("charge", key=lambda order, **_: order.id, unknown="rerun")
    def charge(order: Order, amount: int = 10, *, note: str = "") -> tuple[int, int]:
        """Charge an order."""
        calls.append((order, amount, note))
        return order.id, amount

    assert charge(Order(1, Decimal("9.90"))) == (1, 10)
    assert charge.once(order=Order(1, Decimal("9.9")), amount=10).replayed
    with pytest.raises(KeyReused):
        charge(Order(1, Decimal("9.91")))
    with pytest.raises(TypeError):
        charge()
    assert len(calls) == 1
    assert charge.__doc__ == "Charge an order."
    assert charge.key_of(Order(7, Decimal(1))) == "7"


def test_two_functions_under_one_name_are_refused() -> None:
    once = Once("memory:", scope="shop")

    @once.operation("pay", key=lambda order: order, unknown="rerun")
    def charge(order: str) -> str:
        return f"charged {order}"

    def refund(order: str) -> str:
        return f"refunded {order}"

    with pytest.raises(ConfigurationError, match=r"'pay' is .*charge already"):
        once.operation("pay", key=lambda order: order, unknown="rerun")(refund)


def test_a_function_may_be_declared_anew_as_a_reloaded_module_does() -> None:
    once = Once("memory:", scope="shop")

    def declare() -> Any:
        @once.operation("pay", key=lambda order: order, unknown="rerun")
        def charge(order: str) -> str:
            return f"charged {order}"

        return charge

    declare()
    assert declare()("A") == "charged A"


@pytest.mark.parametrize("name", ["self", "cls"])
def test_a_parameter_called_self_or_cls_of_a_plain_function_counts(name: str) -> None:
    once = Once("memory:", scope="shop")
    space: dict[str, Any] = {}
    exec(f"def book(order, {name}): return {name}\ndef fly({name}, order): return {name}", space)  # noqa: S102  # the name is what is tested
    book = once.operation("book", key=lambda order: order, unknown="rerun")(space["book"])
    fly = once.operation("fly", key=lambda order: order, unknown="rerun")(space["fly"])
    assert (book(1, "first"), fly("first", 1)) == ("first", "first")
    with pytest.raises(KeyReused):
        book(1, "business")
    with pytest.raises(KeyReused):
        fly("business", 1)


@pytest.mark.parametrize("given", [[Declined], {Declined}, Declined, (Declined,)], ids=["list", "set", "type", "tuple"])
def test_final_and_free_take_any_collection_of_exception_types(shell: Shell, given: Any) -> None:
    for option in ("final", "free"):
        with pytest.raises(Declined):
            shell.run(option, Counter(error=Declined(1, "no")), unknown="hold", **{option: given})
    record = shell.do(shell.engine.get("charge", "final"))
    assert record.settled is not None
    assert shell.do(shell.engine.get("charge", "free")).status is Status.FAILED


@pytest.mark.parametrize("bad", ["ValueError", [1], 7, [ValueError, None], ValueError("an instance")])
def test_what_is_no_exception_type_is_refused_when_declared(shell: Shell, bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="takes exception types"):
        shell.run("1", Counter(), final=bad)


@pytest.mark.parametrize("policy", ["hold", "rerun"])
def test_a_coroutine_that_nobody_awaited_is_not_kept_as_done(policy: Any) -> None:
    async def pay() -> str:
        raise AssertionError("never begun")

    once = Once("memory:", scope="shop")
    with pytest.raises(ConfigurationError, match="the call gave a coroutine that nobody awaits"):
        once.run("pay", key="1", call=pay, unknown=policy)
    record = once.get("pay", "1")
    assert record is not None
    assert (record.status, record.settled) == (Status.UNKNOWN, None)


@pytest.mark.parametrize("wrong", [None, 5, "pay", "coroutine"])
def test_a_call_that_is_none_is_refused_before_there_is_a_claim(shell: Shell, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="call= takes a function without arguments"):
        shell.do(
            shell.engine.run("pay", key="1", call=never_begun() if wrong == "coroutine" else wrong, unknown="hold")
        )
    assert shell.do(shell.engine.get("pay", "1")) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"codec": 5}, "int is no codec"),
        ({"codec": JsonCodec}, "class JsonCodec is no codec"),
        ({"codec": Awaited()}, "Awaited is no codec"),
        ({"replay": 5}, "replay= takes a function"),
        ({"replay": lambda: 1}, "replay= must be callable with one"),
        ({"replay": str, "reference": 5}, "reference= takes a function"),
        ({"replay": str, "reference": hasattr}, "reference= must be callable with one"),
        ({"unknown": lambda: "hold"}, "unknown= must be callable with one"),
    ],
)
def test_what_would_fail_after_the_effect_is_refused_before_it(shell: Shell, options: Any, said: str) -> None:
    pay = shell.function(Counter())
    with pytest.raises(ConfigurationError, match=said):
        shell.do(shell.engine.run("pay", key="1", call=pay, **{"unknown": "hold", **options}))
    assert shell.do(shell.engine.get("pay", "1")) is None


@pytest.mark.parametrize("engine", [Once, AsyncOnce])
@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"codec": 5}, "int is no codec"),
        ({"codec": JsonCodec}, "class JsonCodec is no codec"),
        ({"observers": [5]}, "list"),
        ({"observers": print}, "list"),
        ({"observers": [Awaited()]}, "plain callables"),
        ({"observers": [Minutes]}, "plain callables"),
    ],
)
def test_an_engine_is_made_of_what_it_can_use(engine: Any, option: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        engine("memory:", scope="shop", **option)


@pytest.mark.parametrize(("function", "said"), [(int, "does not say what arguments it takes"), (str.upper, "")])
def test_a_function_of_c_is_one_as_far_as_it_says_what_it_takes(function: Any, said: str) -> None:
    declare = Once("memory:", scope="shop").operation("o", key=lambda **_: "1", unknown="rerun")
    if not said:
        assert declare(function)("a") == "A"
        return
    with pytest.raises(ConfigurationError, match=said):
        declare(function)


async def never_begun() -> str:
    raise AssertionError("never begun")


def generated() -> Any:
    yield 1


async def generated_by_tasks() -> Any:
    yield 1


@pytest.mark.parametrize("policy", ["hold", "rerun"])
@pytest.mark.parametrize(
    ("undone", "said"),
    [
        (generated, "a generator, whose code runs as it is gone through"),
        (generated_by_tasks, "a async_generator, whose code runs"),
        (lambda: (str(number) for number in (1, 2)), "a generator, whose code runs"),
        (lambda: map(str, (1, 2)), "a map, whose code runs"),
        (concurrent.futures.Future, "a Future, whose work may not be over"),
    ],
    ids=["generator", "async generator", "expression", "map", "future"],
)
def test_what_stands_for_work_to_be_done_is_not_kept_as_done(shell: Shell, undone: Any, said: str, policy: Any) -> None:
    with pytest.raises(ConfigurationError, match=said):
        shell.do(shell.engine.run("pay", key="1", call=undone, unknown=policy))
    record = shell.do(shell.engine.get("pay", "1"))
    assert (record.status, record.settled) == (Status.UNKNOWN, None)


@pytest.mark.parametrize("codec", [None, Shown()], ids=["own", "given"])
def test_a_coroutine_is_not_kept_as_done_by_a_codec_that_takes_anything(codec: Any) -> None:
    once = Once("memory:", scope="shop", codec=codec)
    with pytest.raises(ConfigurationError, match="nobody awaits"):
        once.run("pay", key="1", call=never_begun, unknown="hold")
    assert once.find(status=Status.UNKNOWN)


def test_what_a_plain_function_did_under_tasks_has_happened() -> None:
    """`await` refuses its value, but only after the effect: taken for a failure, it would happen again."""

    async def main() -> None:
        once = AsyncOnce("memory:", scope="shop")
        pay, ask = Counter("paid"), Counter(Happened("asked"))
        calls: list[Any] = [pay, functools.partial(pay), lambda: as_coroutine(pay)]
        for number, call in enumerate(calls):
            for replayed in (False, True):
                outcome = await once.run("pay", key=number, call=call, unknown="rerun")
                assert outcome[:2] == ("paid", replayed)
        assert pay.calls == len(calls)

        with pytest.raises(ValueError, match="lost"):
            await once.run("pay", key="asked", call=Counter(error=ValueError("lost")), unknown=ask)
        adopted = await once.run("pay", key="asked", call=pay, unknown=ask)
        assert (adopted.value, ask.calls, pay.calls) == ("asked", 1, len(calls))

        shown = await once.run("pay", key=0, call=pay, unknown="rerun", replay=lambda value: f"{value} today")
        assert shown.value == "paid today"

    asyncio.run(main())


@pytest.mark.parametrize("batch", [0, -1])
def test_a_sweep_by_batches_of_nothing_is_refused_since_it_would_never_end(shell: Shell, batch: int) -> None:
    with pytest.raises(ConfigurationError, match="a batch of at least 1"):
        shell.do(shell.engine.sweep(batch=batch)) if shell.loop else shell.engine.sweep(batch=batch)


def test_an_integer_too_long_to_be_written_is_no_key(shell: Shell) -> None:
    with pytest.raises(InvalidKey, match="of more digits than a key can have"):
        shell.run(10**5000, Counter())


@pytest.mark.parametrize("overlap", [False, True], ids=["after its end", "while it runs"])
def test_a_job_that_starts_its_own_successor_keeps_none_of_the_earlier_rounds(overlap: bool) -> None:
    async def main() -> int:
        once = AsyncOnce("memory:", scope="shop")
        rounds: list[weakref.ref[Any]] = []
        tasks: list[asyncio.Task[Any]] = []

        async def call(number: int, before: asyncio.Event) -> None:
            rounds.append(weakref.ref(current_attempt()))
            before.set()
            begun = asyncio.Event()
            if number < 20:
                tasks.append(asyncio.create_task(work(number + 1, begun)))
                await (begun.wait() if overlap else asyncio.sleep(0))
                return
            gc.collect()
            alive.append(sum(one() is not None for one in rounds))

        async def work(number: int, before: asyncio.Event) -> None:
            if not overlap:
                await asyncio.sleep(0.001)
            await once.run("job", key=number, call=lambda: call(number, before), unknown="hold")

        alive: list[int] = []
        await work(0, asyncio.Event())
        while not alive:
            del tasks[:-1]
            await tasks[-1]
        return alive[0]

    assert asyncio.run(main()) <= 3


def test_what_an_attempt_started_may_come_back_to_its_key_once_it_has_ended() -> None:
    once = Once("memory:", scope="shop")
    contexts: list[contextvars.Context] = []

    def start() -> str:
        contexts.append(contextvars.copy_context())
        with pytest.raises(Reentered):
            once.run("pay", key="1", call=start, unknown="rerun")
        return "paid"

    assert once.run("pay", key="1", call=start, unknown="rerun").value == "paid"

    assert contexts[0].run(once.run, "pay", key="1", call=start, unknown="rerun").replayed


def test_the_same_key_in_another_store_is_another_effect() -> None:
    here, there = Once("memory:", scope="shop"), Once("memory:", scope="shop")

    def outer() -> str:
        return there.run("pay", key="1", call=lambda: "there", unknown="rerun").value

    assert here.run("pay", key="1", call=outer, unknown="rerun").value == "there"


def test_who_waited_for_another_process_leaves_nothing_behind(shell: Shell) -> None:
    for number in range(5):
        key = Key("shop", "charge", str(number))
        swap = shell.engine.store.swap(None, Draft(key, "elsewhere", Status.PENDING, True, 1, 60_000))
        shell.do(swap)
        with pytest.raises(OperationInProgress):
            shell.run(str(number), Counter(), wait=0.02)

    assert not shell.engine._admission._waiters


class Narrow(MemoryStore):
    """Takes outcomes of at most ten characters."""

    def swap(self, expected: str | None, draft: Draft) -> Any:
        if draft.settled is not None and draft.settled.body is not None and len(draft.settled.body) > 10:
            raise NotStorable("too long for this store")
        return super().swap(expected, draft)


def test_a_value_that_the_store_itself_cannot_take_is_returned_once_and_never_run_again() -> None:
    once = Once(Narrow(), scope="shop")
    effect = Counter("x" * 100)

    assert once.run("pay", key="1", call=effect, unknown="rerun").value == "x" * 100
    with pytest.raises(OutcomeNotKept, match="too long for this store"):
        once.run("pay", key="1", call=effect, unknown="rerun")

    assert effect.calls == 1


def test_methods_can_be_operations_and_self_is_no_part_of_the_meaning() -> None:
    once = Once("memory:", scope="shop")

    class Till:
        @once.operation("pay", key=lambda order: order, unknown="rerun")
        def pay(self, order: int) -> int:
            return order * 2

    assert Till().pay(4) == 8
    assert Till().pay(4) == 8


def test_a_key_maker_that_asks_for_a_missing_argument_is_refused_when_declared() -> None:
    once = Once("memory:", scope="shop")

    with pytest.raises(ConfigurationError, match="'pedido'"):

        @once.operation("pay", key=lambda pedido: pedido, unknown="rerun")
        def pay(order: int) -> None: ...


def test_a_decision_that_could_not_be_replayed_is_refused(shell: Shell) -> None:
    """Kept without its value it would vanish in silence, and every repeat would be told that nothing was kept."""
    with pytest.raises(TimeoutError):
        shell.run("1", Counter(error=TimeoutError()), unknown="hold")
    for value, sentence in (("x" * 1_000_001, "give a shorter one"), (object(), "cannot be kept")):
        with pytest.raises(NotStorable, match=sentence):
            shell.do(shell.engine.resolve("charge", "1", Happened(value), by="ana", reason="seen at the bank"))
    record = shell.do(shell.engine.get("charge", "1"))
    assert (record.status, record.evidence) == (Status.UNKNOWN, None)


def test_resolve_and_release_leave_evidence(shell: Shell) -> None:
    with pytest.raises(TimeoutError):
        shell.run("1", Counter(error=TimeoutError()), unknown="hold")
    with pytest.raises(TimeoutError):
        shell.run("2", Counter(error=TimeoutError()), unknown="hold")
    resolve, release = shell.engine.resolve, shell.engine.release

    shell.do(resolve("charge", "1", Happened({"protocol": 9}), by="ana", reason="seen at the bank"))
    shell.do(release("charge", "2", by="rui", reason="bank has nothing"))

    assert shell.run("1", Counter(), unknown="hold").value == {"protocol": 9}
    assert shell.run("2", Counter("again"), unknown="hold").value == "again"
    record = shell.do(shell.engine.get("charge", "2"))
    assert '"rui"' in (record.evidence or "")
    with pytest.raises(NoSuchRecord):
        shell.do(release("charge", "3", by="rui", reason="?"))
    with pytest.raises(AlreadySettled):
        shell.do(release("charge", "1", by="rui", reason="?"))
    with pytest.raises(ConfigurationError):
        shell.do(release("charge", "1", by="", reason="?"))
    shell.do(release("charge", "1", by="rui", reason="refunded", override=True))
    assert shell.run("1", Counter("new"), unknown="hold").value == "new"


def test_s3_08_records_are_found_by_process_status_and_age(shell: Shell) -> None:
    shell.run("1", Counter(), process_instance="p1", activity="Task_SubmitClaim")
    with pytest.raises(TimeoutError):
        shell.run("2", Counter(error=TimeoutError()), unknown="hold", process_instance="p2")
    find = shell.engine.find

    assert [r.key.value for r in shell.do(find(process_instance="p1"))] == ["1"]
    assert [r.key.value for r in shell.do(find(status="UNKNOWN"))] == ["2"]
    assert shell.do(find(status="UNKNOWN", older_than=3600)) == []
    shell.clock.advance(3601)
    assert [r.key.value for r in shell.do(find(status="UNKNOWN", older_than=3600))] == ["2"]


def test_s3_07_a_day_after_completion_records_are_swept_and_what_is_unknown_stays(shell: Shell) -> None:
    shell.run("1", Counter())
    with pytest.raises(TimeoutError):
        shell.run("2", Counter(error=TimeoutError()), unknown="hold")
    shell.clock.advance(24 * 3600 + 1)

    assert shell.do(shell.engine.sweep()) == 1
    assert shell.do(shell.engine.get("charge", "1")) is None
    assert shell.do(shell.engine.get("charge", "2")).status is Status.UNKNOWN
    assert shell.run("1", Counter("anew")).value == "anew"


def test_a_renewed_claim_on_an_expired_key_keeps_the_beginning_of_its_own_life(threads: Shell) -> None:
    engine: Once = threads.engine
    threads.run("1", Counter(), operation="pay")
    threads.clock.advance(24 * 3600 + 1)
    with engine.attempt("pay", key="1", unknown="rerun") as attempt:
        began = engine.get("pay", "1").created_at
        threads.clock.advance(5)
        attempt.checkpoint("on")
        assert engine.get("pay", "1").created_at == began


def test_joined_commits_or_rolls_back_with_the_callers_work(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/shop.db?journal=delete", scope="shop")
    once.migrate()
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.execute("CREATE TABLE sales (id INTEGER)")
    connection.commit()

    def sell(fails: bool) -> Any:
        with once.joined(connection, "sell", key="42") as attempt:
            if attempt.replayed:
                return attempt.outcome
            connection.execute("INSERT INTO sales VALUES (1)")
            if fails:
                raise ConnectionError
            attempt.succeed("sold")
        connection.commit()
        return "first"

    with pytest.raises(ConnectionError):
        sell(fails=True)
    connection.rollback()
    assert once.get("sell", "42") is None

    assert sell(fails=False) == "first"
    assert sell(fails=False) == "sold"
    assert connection.execute("SELECT count(*) FROM sales").fetchone() == (1,)
    connection.close()
    once.close()


@pytest.mark.parametrize("url", ["", "oracle://x", "sqlite://", "sqlite:///x.db?mode=fast", "nonsense"])
def test_a_wrong_url_says_what_is_right(url: str) -> None:
    with pytest.raises(ConfigurationError, match="sqlite"):
        Once(url, scope="shop")
