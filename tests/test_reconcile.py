"""Reconciliation: every unknown outcome is asked about, at its pace, fairly, and by one at a time."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.instrument_benches import async_bench, async_store, bench, shop, store_url, sync_store
from umavez import AsyncOnce, CannotTell, Happened, NotHappened, Once, OutcomeUnknown, Status
from umavez.aio_reconcile import AsyncReconciler
from umavez.core.reconciliation import Pace, fairly
from umavez.core.record import Record
from umavez.reconcile import Reconciler
from umavez.stores import open_store
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
    from umavez.core.protocol import Intent, admit
    from umavez.testing.drive import adrive, drive

    flow = admit(Intent(plan.key("k"), None, "process-1", "step"), plan.policy, f"dead-{shop.scope}")
    shop.do(shop.pick(drive, adrive)(flow, shop.once.store))
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
