"""External tasks over Camunda 7's REST shape, against a stand-in; not tried on a real Camunda."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.umavez_systems.processos.camunda_stand_in import Engine, served
from tests.umavez_systems.processos.conftest import claim
from tests.umavez_systems.processos.worlds import LOCAL, World
from umavez_systems.processos.camunda import CamundaTasks, ExternalWorker
from umavez_systems.processos.domain import Glosa
from umavez_systems.processos.ports import PortalOcupado, PortalSemResposta


class Place:
    """An engine, a world and a worker between them."""

    def __init__(self, world: World, engine: Engine, url: str) -> None:
        self.world = world
        self.engine = engine
        self.worker = world.worker()
        self.tasks = CamundaTasks(url, "w1")
        self.external = ExternalWorker(self.tasks, self.worker.faturamento, LOCAL)

    def submit(self) -> str:
        return self.engine.add("submit_claim", "Task_SubmitClaim", "pi-1", {"lote": claim()})


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    world, engine = World(tmp_path), Engine()
    with served(engine) as url:
        made = Place(world, engine, url)
        yield made
        made.tasks.close()
    world.close()


def test_a_task_is_completed_with_its_result(place: Place) -> None:
    task = place.submit()
    assert place.external.work() == 1
    ((done, verb, content),) = place.engine.done

    assert (done, verb) == (task, "complete")
    assert json.loads(content["variables"]["submit_claim"]["value"])["claimId"] == "CLM-000001"
    assert len(place.world.submissions) == 1


def test_a_task_handed_out_again_after_its_lock_is_not_submitted_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock ends while the payer is being told: completing is refused, and the next worker replays."""
    place.submit()
    submit = place.worker.portal.submit

    def slow(*arguments: Any) -> Any:
        answer = submit(*arguments)
        place.engine.expire()
        return answer

    monkeypatch.setattr(place.worker.portal, "submit", slow)
    place.external.work()
    assert place.engine.done == []
    place.external.work()

    assert [verb for _, verb, _ in place.engine.done] == ["complete"]
    assert len(place.world.submissions) == 1


def test_doubt_uses_up_no_retries_and_is_closed_by_asking(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.submit()
    submit = place.worker.portal.submit

    def lost(*arguments: Any) -> Any:
        submit(*arguments)
        raise PortalSemResposta("perdida")

    with monkeypatch.context() as patch:
        patch.setattr(place.worker.portal, "submit", lost)
        place.external.work()
    place.external.work()

    assert [verb for _, verb, _ in place.engine.done] == ["failure", "complete"]
    assert place.engine.done[0][2]["retries"] == 3
    assert len(place.world.submissions) == 1


def test_used_up_retries_leave_none_so_that_a_human_is_asked(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.submit()

    def busy(*_: Any) -> Any:
        raise PortalOcupado("ocupado", 2.0)

    monkeypatch.setattr(place.worker.portal, "submit", busy)
    # A begun step asks first; the simulated ledger has nothing, so each round ends at the busy portal.
    for _ in range(5):
        place.external.work()

    assert [content["retries"] for _, _, content in place.engine.done] == [3, 3, 3, 3, 0]
    assert place.engine.done[0][2]["retryTimeout"] == 2000
    assert place.external.work() == 0


def test_a_glosa_is_a_bpmn_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.submit()

    def refused(*_: Any) -> Any:
        raise Glosa("1801", "Procedimento inválido")

    monkeypatch.setattr(place.worker.portal, "submit", refused)
    place.external.work()
    ((_, verb, content),) = place.engine.done

    assert (verb, content["errorCode"]) == ("bpmnError", "GLOSA")


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"valor": 1e999999999}', '"\\ud800"'])
def test_a_variable_that_cannot_be_read_fails_its_own_task_only(place: Place, text: str) -> None:
    number = place.submit()
    place.engine.tasks[number]["variables"]["lote"]["value"] = text
    place.submit()

    place.external.work()

    assert [(task, verb) for task, verb, _ in place.engine.done] == [(number, "failure"), ("task-2", "complete")]
    assert place.engine.done[0][2]["retries"] == 0


def test_a_payment_without_its_claim_fails_its_own_task_only(place: Place) -> None:
    place.engine.add("process_payment", "process_payment", "pi-1", {"lote": claim(), "submit_claim": {"valor": "1"}})
    place.submit()

    place.external.work()

    assert [verb for _, verb, _ in place.engine.done] == ["failure", "complete"]


def test_a_whole_process_of_external_tasks(place: Place) -> None:
    place.engine.add("check_eligibility", "Task_CheckEligibility", "pi-1", {"lote": claim()})
    place.submit()
    place.external.work()
    receipt = json.loads(place.engine.done[1][2]["variables"]["submit_claim"]["value"])
    place.engine.add("process_payment", "process_payment", "pi-1", {"lote": claim(), "submit_claim": receipt})
    place.engine.add("process_payment", "process_payment", "pi-1", {"lote": claim()})
    place.external.work()

    assert [verb for _, verb, _ in place.engine.done] == ["complete", "complete", "complete", "failure"]
    assert len(place.world.payments) == 1
