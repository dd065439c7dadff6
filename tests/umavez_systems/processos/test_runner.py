"""S3.10: a real BPMN process, its workers killed at every moment, and one submission in the payer's ledger."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.umavez_systems.processos.conftest import claim
from tests.umavez_systems.processos.worlds import LOCAL, Died, World
from umavez import ClaimLost, NotHappened, Status
from umavez_systems.problems import Problem
from umavez_systems.processos.attempts import Step, Terms
from umavez_systems.processos.domain import Remessa, lote_of
from umavez_systems.processos.engine import builtin


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def events(world: World, number: str) -> list[tuple[str | None, str]]:
    return [(step["atividade"], step["evento"]) for step in world.worker().runner.timeline(LOCAL, number)]


def finished(world: World, number: str) -> dict[str, Any]:
    """The instance after as many rounds of fresh workers as it takes."""
    for _ in range(20):
        world.clock.advance(60)
        world.worker().runner.work()
        row = world.worker().runner.row(LOCAL, number)
        if row["estado"] == "encerrado":
            return row
    raise AssertionError(f"{number} is {row['estado']}: {row['motivo']}")


def test_s3_10_a_worker_killed_at_every_moment_leaves_one_submission_and_one_payment(world: World) -> None:
    asked = 0
    for nth in count(1):
        number = f"p{nth}"
        worker = world.worker(nth)
        try:
            worker.runner.start(LOCAL, number, lote_of(claim(number)), "PT0S")
            worker.runner.advance(LOCAL, number)
        except Died:
            world.worker().runner.start(LOCAL, number, lote_of(claim(number)), "PT0S")
        assert finished(world, number)["desfecho"] == "End_Paid", f"killed at moment {nth}"
        records = world.worker().faturamento.records(LOCAL, process_instance=number)
        assert [record.status for record in records] == [Status.SUCCESS] * 3
        asked += any("adopted" in (record.evidence or "") for record in records)
        if not worker.fate.dead:
            break

    assert nth > 25
    assert asked >= 2
    lotes = [row["lote"] for row in world.submissions]
    assert sorted(lotes) == sorted(f"L-p{n}" for n in range(1, nth + 1))
    assert len(world.payments) == len({row["protocolo"] for row in world.payments}) == nth


def test_the_instance_ends_at_the_gateways_other_side_when_the_patient_is_not_covered(world: World) -> None:
    worker = world.worker()
    worker.runner.start(LOCAL, "p", lote_of(claim("1", carteira="9000")), "PT0S")

    assert worker.runner.advance(LOCAL, "p")["desfecho"] == "End_Ineligible"
    assert world.submissions == []


def test_a_slow_payer_is_asked_about_many_patients_in_turns_and_about_none_twice(world: World) -> None:
    """Or whoever started the process waits for each of a hundred cards, and so does every instance behind it."""
    world.terms = replace(world.terms, turn=0.0)
    lote = claim()
    lote["guias"] = [{**lote["guias"][0], "numeroGuiaPrestador": f"G-{n}", "carteira": f"{n:011}"} for n in range(1, 9)]
    worker = world.worker()
    worker.runner.start(LOCAL, "p", lote_of(lote), "PT0S")

    row = worker.runner.advance(LOCAL, "p")
    assert (row["estado"], row["falhas"]) == ("ativo", 0)
    assert worker.portal.sent == ["/elegibilidade"]

    asked = 1
    for _ in range(7):
        world.clock.advance(60)
        other = world.worker()
        other.runner.work()
        asked += other.portal.sent.count("/elegibilidade")
    assert asked == 8
    assert finished(world, "p")["desfecho"] == "End_Paid"


def test_a_glosa_goes_through_the_error_boundary(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from umavez_systems.processos.domain import Glosa

    worker = world.worker()

    def refuse(*_: Any) -> Any:
        raise Glosa("1801", "Procedimento inválido")

    monkeypatch.setattr(worker.portal, "submit", refuse)
    worker.runner.start(LOCAL, "p", lote_of(claim()), "PT0S")
    row = worker.runner.advance(LOCAL, "p")

    assert (row["estado"], row["desfecho"]) == ("encerrado", "End_Glosa")
    assert ("Task_SubmitClaim", "glosa") in events(world, "p")
    _, tasks = worker.runner.drawn(row)
    assert (tasks["Task_SubmitClaim"], tasks["Boundary_Glosa"]) == ("CANCELLED", "COMPLETED")


def test_a_timer_holds_the_instance_until_its_time(world: World) -> None:
    world.clock.offset = int(time.time() * 1000) - world.clock.now()
    worker = world.worker()
    worker.runner.start(LOCAL, "p", lote_of(claim()), "PT1H")
    row = worker.runner.advance(LOCAL, "p")

    assert row["estado"] == "esperando"
    assert 3500 < (row["vence_em"] - world.clock.now()) / 1000 <= 3601
    assert worker.runner.work() == 0
    assert worker.runner.advance(LOCAL, "p")["estado"] == "esperando"
    assert world.payments == []


def test_a_step_that_outlived_its_record_asks_the_payer_before_sending_again(world: World) -> None:
    """Killed after the payer accepted, resumed two days later: the record is swept, the step is known to be begun."""
    for nth in count(1):
        number = f"p{nth}"
        worker = world.worker(nth)
        worker_done = False
        try:
            worker.runner.start(LOCAL, number, lote_of(claim(number)), "PT0S")
            worker.runner.advance(LOCAL, number)
            worker_done = True
        except Died:
            world.worker().runner.start(LOCAL, number, lote_of(claim(number)), "PT0S")
        world.clock.advance(2 * 24 * 3600)
        world.worker().faturamento.once(LOCAL).sweep()
        assert finished(world, number)["desfecho"] == "End_Paid"
        if worker_done:
            break
    assert len(world.submissions) == len(world.payments) == nth


def test_a_worker_that_was_overtaken_writes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = world.worker(), world.worker()
    slow.runner.start(LOCAL, "p", lote_of(claim()), "PT0S")
    eligible = slow.portal.eligible

    def overtaken(operadora: str, carteira: str) -> bool:
        answer = eligible(operadora, carteira)
        world.clock.advance(60)
        with ThreadPoolExecutor(1) as other:
            other.submit(fast.runner.advance, LOCAL, "p").result()
        return answer

    monkeypatch.setattr(slow.portal, "eligible", overtaken)
    row = slow.runner.advance(LOCAL, "p")

    assert row["estado"] == "encerrado"
    assert [event for event in events(world, "p") if event[1] == "encerrado"] == [(None, "encerrado")]
    assert len(world.submissions) == 1


def test_a_worker_that_was_frozen_past_its_lease_does_not_send(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stood still between its claim and its request, heartbeat and all, while another did the work."""
    world.terms = Terms(lease=0.05, quiet=0)
    frozen, other = world.worker(), world.worker()
    monkeypatch.setattr(frozen.faturamento.once(LOCAL)._admission.heartbeats, "add", lambda _: None)
    step = Step(LOCAL, "p", "Task_SubmitClaim", begun=True)
    look = frozen.portal.protocol_of

    def freeze(remessa: Remessa) -> Any:
        found = look(remessa)
        time.sleep(0.02)
        world.clock.advance(60)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(other.faturamento.submit_claim, step, lote_of(claim())).result()
        return found

    monkeypatch.setattr(frozen.portal, "protocol_of", freeze)
    with pytest.raises(ClaimLost):
        frozen.faturamento.submit_claim(step, lote_of(claim()))

    assert len(world.submissions) == 1


def test_used_up_retries_make_an_incident_and_a_release_lets_it_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from umavez_systems.processos.ports import PortalOcupado

    worker = world.worker()

    def busy(*_: Any) -> Any:
        raise PortalOcupado("ocupado", 1.0)

    with monkeypatch.context() as patch:
        patch.setattr(worker.portal, "submit", busy)
        worker.runner.start(LOCAL, "p", lote_of(claim()), "PT0S")
        for _ in range(5):
            worker.runner.advance(LOCAL, "p")
    row = worker.runner.advance(LOCAL, "p")
    assert (row["estado"], "ocupado" in row["motivo"]) == ("incidente", True)
    world.clock.advance(3600)
    assert worker.runner.work() == 0
    (failed,) = worker.faturamento.records(LOCAL, process_instance="p", status=Status.FAILED)

    worker.faturamento.resolve(LOCAL, failed.key.value, NotHappened(), by="ana", reason="portal voltou")

    assert worker.runner.advance(LOCAL, "p", force=True)["desfecho"] == "End_Paid"


def test_an_instance_that_cannot_be_read_is_set_aside_and_the_others_go_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    runner = world.worker().runner
    for number in ("p1", "p2", "p3"):
        runner.start(LOCAL, number, lote_of(claim(number)), "PT0S")
    with world.database.transaction() as connection:
        connection.rows("UPDATE processos SET conteudo = '{\"tasks\": \"Maria\"}' WHERE id = 'p2'")

    assert runner.work() == 3

    assert [runner.row(LOCAL, number)["estado"] for number in ("p1", "p2", "p3")] == [
        "encerrado",
        "incidente",
        "encerrado",
    ]
    assert runner.work() == 0
    assert "Process p2 cannot be moved on" in caplog.text
    assert "Maria" not in caplog.text


def test_an_operation_that_breaks_the_worker_makes_an_incident_that_can_be_resumed(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker = world.worker()
    worker.runner.start(LOCAL, "p", lote_of(claim()), "PT0S")

    def broken(*_: Any) -> Any:
        raise RuntimeError("Maria")

    with monkeypatch.context() as patch:
        patch.setattr(worker.faturamento, "submit_claim", broken)
        worker.runner.work()
    row = worker.runner.row(LOCAL, "p")

    assert (row["estado"], row["motivo"]) == ("incidente", "RuntimeError: o processo não pôde ser movido.")
    assert "Maria" not in caplog.text
    assert worker.runner.advance(LOCAL, "p", force=True)["desfecho"] == "End_Paid"


def test_starting_twice_with_one_id_is_one_instance_and_another_lote_is_refused(world: World) -> None:
    runner = world.worker().runner
    first, there = runner.start(LOCAL, "p", lote_of(claim()), "PT0S")
    again, there_again = runner.start(LOCAL, "p", lote_of(claim()), "PT0S")

    assert (there, there_again, again["versao"]) == (False, True, first["versao"])
    runner.advance(LOCAL, "p")
    assert runner.start(LOCAL, "p", lote_of(claim()), "PT0S")[1]
    with pytest.raises(Problem, match="outros dados"):
        runner.start(LOCAL, "p", lote_of(claim("2")), "PT0S")


def test_a_duration_that_is_none_is_refused(world: World) -> None:
    for prazo in ("", "P", "PT", "1h", "PT1H; import os", "R3/PT1S", "P1Y"):
        with pytest.raises(Problem, match="prazo"):
            world.worker().runner.start(LOCAL, "p", lote_of(claim()), prazo)


def test_the_state_is_json_without_the_definition() -> None:
    definition = builtin()
    instance = definition.start({"lote": {"x": 1}, "prazo": "PT0S"})
    text = json.dumps(instance.state())

    assert "Gateway_Eligible" in definition.xml
    assert len(text) < len(definition.xml)
    assert definition.restore(json.loads(text)).service() == instance.service()


def test_an_error_that_no_boundary_catches_changes_nothing() -> None:
    instance = builtin().start({"lote": {}, "prazo": "PT0S"})
    service = instance.service()
    assert service is not None
    assert not instance.fail(service, "GLOSA", {})
    assert instance.service() == service
