"""Reconciliation: every unknown outcome is asked about, at its pace, fairly, and by one at a time."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.instrument_benches import async_bench, async_store, bench, shop, store_url, sync_store
from umavez import AsyncOnce, CannotTell, ConfigurationError, Happened, NotHappened, Once, OutcomeUnknown, Status
from umavez._async import attempt as async_attempt
from umavez._sync import attempt
from umavez.core.protocol import Intent, admit
from umavez.core.reconciliation import Pace, fairly
from umavez.core.record import Query, Record
from umavez.reconcile import AsyncReconciler, Reconciler
from umavez.stores import open_async_store, open_store
from umavez.stores.memory import MemoryStore
from umavez.testing import ManualClock
from umavez.testing.instruments import InstrumentBench
from umavez.tokens import Tokens, TokenState

__all__ = ["async_bench", "async_store", "bench", "shop", "store_url", "sync_store"]


class FarSide:
    """Answers from a list, then with the last answer for ever."""

    def __init__(self, shop: InstrumentBench, *answers: Any) -> None:
        self.answers = list(answers)
        self.questions: list[Any] = []
        self.ask = shop.work(self._ask)

    def _ask(self, question: Any) -> Any:
        self.questions.append(question)
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def pay(shop: InstrumentBench) -> str:
    """The operation of one test: reconcilers look at all scopes, and the store is shared by many tests."""
    return f"pay {shop.scope}"


def doubt(shop: InstrumentBench, far: FarSide, key: str = "k", operation: str = "", **options: Any) -> None:
    """An operation that ends without an answer; the far side is not asked yet."""
    operation = operation or pay(shop)
    if operation not in shop.once.plans.declarations:
        shop.once.plans.declared(operation, {"unknown": far.ask, **options})
    scope = options.get("scope")

    def cut() -> None:
        raise ConnectionResetError("cut")

    with pytest.raises(ConnectionResetError):
        shop.do(shop.once.run(operation, key=key, call=shop.work(cut), scope=scope))


def reconciler(shop: InstrumentBench, **options: Any) -> Any:
    return shop.pick(Reconciler, AsyncReconciler)(shop.once, **options)


def record_of(shop: InstrumentBench, key: str = "k", operation: str = "") -> Record:
    found = shop.do(shop.once.get(operation or pay(shop), key))
    assert isinstance(found, Record)
    return found


def run(shop: InstrumentBench, **options: Any) -> Any:
    shop.clock.advance(11)
    return shop.do(reconciler(shop, **options).run())


def test_operations_may_be_declared_while_the_reconciler_looks() -> None:
    """By a module that is loaded late, by tokens for a new purpose, by the console."""

    class Watched(MemoryStore):
        def find(self, query: Query) -> list[Record]:
            Tokens(once, f"purpose {secrets.token_hex(4)}", unknown="hold")
            return super().find(query)

    once = Once(Watched(), scope="shop")
    once.plans.declared("pay", {"unknown": "hold"})
    assert Reconciler(once).run().held == 0


def test_what_happened_is_adopted_with_evidence(shop: InstrumentBench) -> None:
    far = FarSide(shop, Happened({"protocol": 7}))
    doubt(shop, far)
    report = run(shop)
    assert (report.asked, report.adopted) == (1, 1)
    record = record_of(shop)
    assert record.status is Status.SUCCESS
    assert [entry["what"] for entry in json.loads(record.evidence or "")] == ["adopted"]
    assert shop.do(shop.once.run(pay(shop), key="k", call=pytest.fail)).value == {"protocol": 7}


def test_what_did_not_happen_is_freed_without_using_up_a_retry(shop: InstrumentBench) -> None:
    far = FarSide(shop, NotHappened())
    doubt(shop, far)
    assert run(shop).freed == 1
    record = record_of(shop)
    assert (record.status, record.attempt) == (Status.FAILED, 1)
    assert [entry["what"] for entry in json.loads(record.evidence or "")] == ["not happened"]
    assert shop.do(shop.once.run(pay(shop), key="k", call=shop.work(lambda: 5))).attempt == 2


def test_what_did_not_happen_is_run_by_a_registered_callable(shop: InstrumentBench) -> None:
    far = FarSide(shop, NotHappened())
    doubt(shop, far)
    report = run(shop, reruns={pay(shop): shop.work(lambda question: f"paid {question.key.value}")})
    assert report.reran == 1
    outcome = shop.do(shop.once.run(pay(shop), key="k", call=pytest.fail))
    assert (outcome.value, outcome.attempt) == ("paid k", 2)


def test_a_rerun_that_fails_again_is_unknown_again_and_others_go_on(shop: InstrumentBench) -> None:
    far = FarSide(shop, NotHappened())
    doubt(shop, far, "a")
    doubt(shop, far, "b")

    def cut(question: Any) -> str:
        if question.key.value == "a":
            raise ConnectionResetError("again")
        return "paid"

    report = run(shop, reruns={pay(shop): shop.work(cut)})
    assert (report.failed, report.reran) == (1, 1)
    assert record_of(shop, "a").status is Status.UNKNOWN
    assert record_of(shop, "b").status is Status.SUCCESS


@pytest.mark.parametrize("answer", [CannotTell("closed"), RuntimeError("bug in ask"), "yes"], ids=repr)
def test_no_usable_answer_leaves_it_unknown_with_evidence(shop: InstrumentBench, answer: Any) -> None:
    far = FarSide(shop, answer)
    doubt(shop, far)
    assert run(shop).left == 1
    record = record_of(shop)
    assert record.status is Status.UNKNOWN
    assert [entry["what"] for entry in json.loads(record.evidence or "")] == ["cannot tell"]


def test_questions_come_further_and_further_apart(shop: InstrumentBench) -> None:
    far = FarSide(shop, CannotTell())
    doubt(shop, far)
    service = reconciler(shop, pace=Pace(first=30, factor=2, cap=100, settle=0))
    moments = []
    for second in range(0, 300, 5):
        before = len(far.questions)
        report = shop.do(service.run())
        if len(far.questions) > before:
            moments.append(second)
        else:
            assert report.waiting == 1
        shop.clock.advance(5)
    gaps = [later - sooner for sooner, later in pairwise(moments)]
    # A server's own time goes on as well, so a slow machine may ask a step early.
    assert len(gaps) == 4, f"asked at {moments}"
    assert all(abs(gap - wanted) <= 5 for gap, wanted in zip(gaps, [30, 60, 100, 100], strict=True)), gaps


def test_after_too_many_questions_a_human_resolves_it_with_name_and_reason(
    shop: InstrumentBench,
) -> None:
    far = FarSide(shop, CannotTell())
    doubt(shop, far)
    service = reconciler(shop, pace=Pace(first=1, cap=1, settle=0, max_asks=3))
    for _ in range(5):
        shop.clock.advance(2)
        report = shop.do(service.run())
    assert (len(far.questions), report.tired) == (3, 1)
    shop.do(shop.once.resolve(pay(shop), "k", Happened(1), by="ana", reason="on the statement"))
    entry = json.loads(record_of(shop).evidence or "")[-1]
    assert (entry["by"], entry["reason"]) == ("ana", "on the statement")


def test_a_far_side_is_not_asked_before_it_can_have_finished(shop: InstrumentBench) -> None:
    far = FarSide(shop, NotHappened())
    doubt(shop, far)
    service = reconciler(shop, pace=Pace(settle=60))
    shop.clock.advance(50)
    assert shop.do(service.run()).waiting == 1
    shop.clock.advance(11)
    assert shop.do(service.run()).freed == 1


def test_a_holder_that_died_is_asked_about_once_its_lease_is_over(shop: InstrumentBench) -> None:
    far = FarSide(shop, Happened(3))
    plan = shop.once.plans.declared(pay(shop), {"unknown": far.ask, "lease": 30})
    flow = admit(Intent(plan.key("k"), None, "process-1", "step"), plan.policy, f"dead-{shop.scope}")
    shop.do(shop.pick(attempt.drive, async_attempt.drive)(flow, shop.once.store))
    assert run(shop).asked == 0
    shop.clock.advance(30)
    assert run(shop).adopted == 1
    record = record_of(shop)
    assert (record.process_instance, record.activity) == ("process-1", "step")


def test_operations_that_hold_are_only_counted(shop: InstrumentBench) -> None:
    shop.once.plans.declared(f"mail {shop.scope}", {"unknown": "hold"})
    doubt(shop, FarSide(shop, Happened()), operation=f"mail {shop.scope}")
    report = run(shop)
    assert (report.held, report.asked) == (1, 0)
    assert record_of(shop, operation=f"mail {shop.scope}").status is Status.UNKNOWN


def test_the_age_of_the_oldest_unknown_is_told(shop: InstrumentBench) -> None:
    far = FarSide(shop, CannotTell())
    doubt(shop, far)
    shop.clock.advance(3600)
    age = shop.do(reconciler(shop).oldest_unknown())
    assert age >= 3600


def test_a_budget_bounds_a_run(shop: InstrumentBench) -> None:
    far = FarSide(shop, NotHappened())
    for number in range(6):
        doubt(shop, far, f"k{number}")
    assert run(shop, budget=4).asked == 4
    assert run(shop, budget=4).asked == 2


def test_reconcilers_side_by_side_ask_once(shop: InstrumentBench) -> None:
    far = FarSide(shop, NotHappened())
    for number in range(10):
        doubt(shop, far, f"k{number}")
    shop.clock.advance(11)
    reports = shop.together(4, lambda: reconciler(shop).run())
    assert sum(report.freed for report in reports) == 10
    assert len(far.questions) == 10
    assert all(record_of(shop, f"k{n}").status is Status.FAILED for n in range(10))


def test_reconcilers_side_by_side_do_not_repeat_a_question_that_had_no_answer(shop: InstrumentBench) -> None:
    far = FarSide(shop, CannotTell())
    for number in range(10):
        doubt(shop, far, f"k{number}")
    shop.clock.advance(11)
    reports = shop.together(4, lambda: reconciler(shop).run())
    assert sum(report.left for report in reports) == len(far.questions) == 10


def test_scopes_take_turns() -> None:
    def record(scope: str, number: int) -> Record:
        from umavez import Key

        return Record(Key(scope, "pay", str(number)), "s", 1, Status.UNKNOWN, 1, number, number)

    crowd = [record("big", n) for n in range(10_000)] + [record("small", n) for n in range(3)]
    chosen = [item.key.scope for item in fairly(crowd, 10, None)]
    assert chosen.count("small") == 3
    assert len(chosen) == 10
    assert [item.key.scope for item in fairly(crowd, 10, 2)] == ["big", "small", "big", "small"]
    assert list(fairly([], 10, None)) == []


def test_ten_thousand_stuck_in_one_scope_do_not_starve_another() -> None:
    clock, asked = ManualClock(), []

    def ask(question: Any) -> Any:
        asked.append(question.key.scope)
        return CannotTell()

    with Once(open_store("memory:", clock=clock), scope="big") as once:
        pay = once.plans.declared("pay", {"unknown": ask})
        assert pay.policy.asks
        _crowd(once, "big", 9_999)
        _crowd(once, "small", 1)
        clock.advance(11)
        Reconciler(once, budget=10).run()
    assert asked.count("small") == 1
    assert len(asked) == 10


def test_those_that_wait_for_later_do_not_hide_those_that_are_due() -> None:
    clock, asked = ManualClock(), []

    def ask(question: Any) -> Any:
        asked.append(question.key.value)
        return CannotTell()

    with Once(open_store("memory:", clock=clock), scope="x") as once:
        once.plans.declared("pay", {"unknown": ask})
        _crowd(once, "x", 30)
        clock.advance(11)
        Reconciler(once, window=10, budget=100).run()
        assert len(asked) == 10, "a window's worth"
        # The ten oldest were asked just now and wait; the window is filled from behind them.
        Reconciler(once, window=10, budget=100).run()
        Reconciler(once, window=10, budget=100).run()
    assert sorted(asked, key=int) == [str(number) for number in range(30)]


def _crowd(once: Once, scope: str, count: int) -> None:
    from umavez import Key
    from umavez.core.record import Draft

    for number in range(count):
        once.store.swap(None, Draft(Key(scope, "pay", str(number)), f"{scope}{number}", Status.UNKNOWN, True))


def test_an_unknown_redemption_is_reconciled_with_its_owner_and_payload_kept() -> None:
    clock = ManualClock()
    with Once(open_store("memory:", clock=clock), scope="rides") as once:
        tokens = Tokens(once, "confirm", unknown=lambda question: Happened(f"ride to {question.progress}"))
        issued = tokens.issue("ana", "home")
        with pytest.raises(KeyboardInterrupt):
            tokens.redeem(issued.token, "ana", _interrupted)
        clock.advance(11)
        assert Reconciler(once).run().adopted == 1
        assert tokens.status(issued.token, "ana").state is TokenState.USED
        assert tokens.redeem(issued.token, "ana", pytest.fail).value == "ride to home"


def _interrupted(_: Any) -> None:
    raise KeyboardInterrupt


def test_a_reconciler_that_dies_while_asking_leaves_it_to_the_next() -> None:
    clock = ManualClock()
    answers: list[Callable[[], Any]] = [_interrupt, lambda: Happened(1)]
    with Once(open_store("memory:", clock=clock), scope="x") as once:
        once.plans.declared("pay", {"unknown": lambda _: answers.pop(0)(), "lease": 30})
        with pytest.raises(ConnectionResetError):
            once.run("pay", key="k", call=_cut)
        clock.advance(11)
        with pytest.raises(KeyboardInterrupt):
            Reconciler(once).run()
        assert Reconciler(once).run().asked == 0
        clock.advance(60)
        assert Reconciler(once).run().adopted == 1


def _interrupt() -> None:
    raise KeyboardInterrupt


def _cut() -> None:
    raise ConnectionResetError("cut")


def test_the_service_runs_until_it_is_stopped() -> None:
    stop, reports = threading.Event(), []

    def told(report: Any) -> None:
        reports.append(report)
        if len(reports) == 3:
            stop.set()

    with Once("memory:", scope="x") as once:
        Reconciler(once).serve(stop, every=0.001, told=told)
    assert len(reports) == 3


def test_the_service_for_tasks_runs_until_it_is_stopped() -> None:
    async def serve() -> int:
        stop, reports = asyncio.Event(), []

        def told(report: Any) -> None:
            reports.append(report)
            if len(reports) == 3:
                stop.set()

        async with AsyncOnce("memory:", scope="x") as once:
            await AsyncReconciler(once).serve(stop, every=0.001, told=told)
        return len(reports)

    assert asyncio.run(serve()) == 3


def test_a_caller_and_a_reconciler_never_both_run(shop: InstrumentBench) -> None:
    far = FarSide(shop, CannotTell())
    doubt(shop, far)
    with pytest.raises(OutcomeUnknown):
        shop.do(shop.once.run(pay(shop), key="k", call=pytest.fail))


def _hanging(shop: InstrumentBench, over: threading.Event) -> Any:
    """A far side that never answers; its threads go when the test is over."""

    async def hang(_: Any) -> Any:
        await asyncio.Event().wait()

    return shop.pick(lambda _: over.wait(60), hang)


@pytest.fixture
def over() -> Any:
    event = threading.Event()
    yield event
    event.set()


def test_a_far_side_that_hangs_keeps_no_other_waiting_and_no_claim(shop: InstrumentBench, over: Any) -> None:
    mute, talks = FarSide(shop), FarSide(shop, Happened(1))
    mute.ask = _hanging(shop, over)
    for number in range(6):
        doubt(shop, mute, f"m{number}", operation=f"mute {shop.scope}")
    doubt(shop, talks)
    report = run(shop, patience=0.2, at_once=2)
    # Another may have begun in the moment between the first two that were late.
    assert report.left in (2, 3)
    assert (report.asked, report.silent, report.adopted) == (report.left + 1, 6 - report.left, 1)
    states = [record_of(shop, f"m{number}", f"mute {shop.scope}") for number in range(6)]
    assert {record.status for record in states} == {Status.UNKNOWN}, "no claim is held"
    told = [json.loads(record.evidence or "[]") for record in states]
    assert {entries[-1]["reason"] for entries in told if entries} == {"the far side did not answer within 0.2 s"}


def test_questions_run_side_by_side_within_their_bound(shop: InstrumentBench) -> None:
    most, running, full = [0], [0], threading.Event()

    def begin() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        if most[0] >= 3:
            full.set()

    def ask(_: Any) -> Any:
        begin()
        full.wait(10)  # until there are as many as may be, however slow the machine is
        threading.Event().wait(0.02)
        running[0] -= 1
        return Happened(1)

    async def ask_in_task(_: Any) -> Any:
        begin()
        for _ in range(1000):
            await asyncio.sleep(0.01)
            if full.is_set():
                break
        running[0] -= 1
        return Happened(1)

    far = FarSide(shop)
    far.ask = shop.pick(ask, ask_in_task)
    for number in range(9):
        doubt(shop, far, f"k{number}")
    assert run(shop, at_once=3).adopted == 9
    assert most[0] == 3


def test_the_service_stops_while_every_question_hangs(over: Any) -> None:
    clock, stop, asked = ManualClock(), threading.Event(), threading.Event()

    def ask(_: Any) -> Any:
        asked.set()
        over.wait(60)

    with Once(open_store("memory:", clock=clock), scope="x") as once:
        once.plans.declared("pay", {"unknown": ask})
        _crowd(once, "x", 9)
        clock.advance(11)
        service = threading.Thread(target=Reconciler(once, patience=60).serve, args=(stop,), daemon=True)
        service.start()
        assert asked.wait(5)
        stop.set()
        service.join(5)
        assert not service.is_alive()
        assert {record.status for record in once.find(limit=9)} == {Status.UNKNOWN}, "no claim is held"


def test_the_service_for_tasks_stops_while_every_question_hangs() -> None:
    async def serve() -> set[Status]:
        clock, stop = ManualClock(), asyncio.Event()

        async def ask(_: Any) -> Any:
            stop.set()
            await asyncio.Event().wait()

        async def cut() -> None:
            raise ConnectionResetError("cut")

        async with AsyncOnce(open_async_store("memory:", clock=clock), scope="x") as once:
            once.plans.declared("pay", {"unknown": ask})
            for number in range(9):
                with pytest.raises(ConnectionResetError):
                    await once.run("pay", key=number, call=cut)
            clock.advance(11)
            await asyncio.wait_for(AsyncReconciler(once, patience=60).serve(stop), 5)
            return {record.status for record in await once.find(limit=9)}

    assert asyncio.run(serve()) == {Status.UNKNOWN}


def test_a_rerun_that_takes_long_keeps_its_claim_and_settles_by_itself() -> None:
    clock, go, done = ManualClock(), threading.Event(), threading.Event()

    def again(_: Any) -> str:
        go.wait(10)
        return "paid"

    with Once(open_store("memory:", clock=clock), scope="x", observers=[lambda event: _ended(event, done)]) as once:
        once.plans.declared("pay", {"unknown": lambda _: NotHappened()})
        _crowd(once, "x", 1)
        clock.advance(11)
        report = Reconciler(once, patience=0.1, reruns={"pay": again}).run()
        assert (report.running, report.reran) == (1, 0)
        assert [record.status for record in once.find()] == [Status.PENDING]
        go.set()
        assert done.wait(5)
        assert [record.status for record in once.find()] == [Status.SUCCESS]


def _ended(event: Any, done: threading.Event) -> None:
    if event.kind == "succeeded":
        done.set()


@pytest.mark.parametrize(
    ("answer", "word"), [(Happened("yes"), "adopted"), (NotHappened(), "freed"), (CannotTell("503"), "left")]
)
def test_one_record_is_asked_about_now_whatever_the_pace(shop: InstrumentBench, answer: Any, word: str) -> None:
    far = FarSide(shop, answer)
    doubt(shop, far)
    record = record_of(shop)

    assert shop.do(reconciler(shop, pace=Pace(settle=1e6)).ask(record)) == word

    assert len(far.questions) == 1
    assert record_of(shop).stamp != record.stamp


def test_a_record_that_changed_since_it_was_read_is_not_asked_about(shop: InstrumentBench) -> None:
    far = FarSide(shop, CannotTell("503"))
    doubt(shop, far)
    record = record_of(shop)
    shop.do(reconciler(shop).ask(record))

    assert shop.do(reconciler(shop).ask(record)) == "busy"

    assert len(far.questions) == 1


def test_nobody_is_asked_where_an_operation_names_nobody(shop: InstrumentBench) -> None:
    far = FarSide(shop, Happened(1))
    doubt(shop, far)
    record = record_of(shop)
    shop.once.plans.declared(pay(shop), {"unknown": "hold"})

    with pytest.raises(ConfigurationError, match="nobody to ask"):
        shop.do(reconciler(shop).ask(record))
