"""External tasks: the operations as a worker of another process engine, with one adapter for Camunda 7's REST API.

The engine's records decide what runs: a task that is handed out twice, or after its lock ran out, replays or asks.
Written after the API's documented shape and tried on a small stand-in server only, not on a real Camunda.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

import httpx

from umavez import (
    BoundedJson,
    ClaimLost,
    InvalidJson,
    MaxRetriesExceeded,
    OperationInProgress,
    Outcome,
    OutcomeUnknown,
)
from umavez_systems.outgoing.connections import Answer, Connections
from umavez_systems.problems import Problem
from umavez_systems.processos.attempts import MAX_RETRIES, Step
from umavez_systems.processos.domain import Glosa, lote_of
from umavez_systems.processos.operations import ELIGIBLE, OPERATIONS, PAY, SUBMIT, Faturamento
from umavez_systems.processos.ports import PortalError

LOG = logging.getLogger("umavez.systems.processos")
LARGEST = 16_000_000
_BOUNDED = BoundedJson(number=Decimal, nul=False, size=LARGEST)
_JSON = {"Content-Type": "application/json"}
DOUBTS = (OperationInProgress, OutcomeUnknown, ClaimLost, PortalError)
"""What another try may settle. None of them uses up the task's retries: the record counts what really failed."""


@dataclass(frozen=True, slots=True)
class ExternalTask:
    """A service task that another engine has handed to this worker, for a time."""

    id: str
    topic: str
    process_instance: str
    activity: str
    retries: int | None
    variables: dict[str, Any]


class ExternalTasks(Protocol):
    """Where external tasks come from. What it says to a task whose lock is over is refused there, and harmless."""

    def fetch(self, topics: tuple[str, ...], *, most: int, lock: float) -> list[ExternalTask]:
        """Lock up to `most` tasks for `lock` seconds."""
        ...

    def complete(self, task: ExternalTask, variables: dict[str, Any]) -> None:
        """The task is done."""
        ...

    def fail(self, task: ExternalTask, message: str, *, retries: int, after: float) -> None:
        """The task is not done; with `retries` left it is handed out again `after` seconds, with 0 a human is asked."""
        ...

    def error(self, task: ExternalTask, code: str, message: str, variables: dict[str, Any]) -> None:
        """The task ended in a BPMN error, for a boundary event to catch."""
        ...


class CamundaTasks:
    """Camunda 7's external tasks over REST. `url` ends in /engine-rest; `worker` names this worker to the engine."""

    def __init__(self, url: str, worker: str, *, timeout: float = 30.0) -> None:
        self._worker = worker
        self._url = str(httpx.URL(url)).rstrip("/")
        self._timeout = timeout
        self._connections = Connections()

    def fetch(self, topics: tuple[str, ...], *, most: int, lock: float) -> list[ExternalTask]:
        """See ExternalTasks."""
        wanted = [{"topicName": topic, "lockDuration": int(lock * 1000)} for topic in topics]
        content = {"workerId": self._worker, "maxTasks": most, "usePriority": False, "topics": wanted}
        answer = self._post("/external-task/fetchAndLock", content).successful()
        return [_task(found) for found in _BOUNDED.parse(answer.body)]

    def complete(self, task: ExternalTask, variables: dict[str, Any]) -> None:
        """See ExternalTasks."""
        self._tell(task, "complete", {"variables": _typed(variables)})

    def fail(self, task: ExternalTask, message: str, *, retries: int, after: float) -> None:
        """See ExternalTasks."""
        content = {"errorMessage": message[:666], "retries": retries, "retryTimeout": int(after * 1000)}
        self._tell(task, "failure", content)

    def error(self, task: ExternalTask, code: str, message: str, variables: dict[str, Any]) -> None:
        """See ExternalTasks."""
        content = {"errorCode": code, "errorMessage": message[:666], "variables": _typed(variables)}
        self._tell(task, "bpmnError", content)

    def close(self) -> None:
        """Give connections back."""
        self._connections.close()

    def _post(self, path: str, content: dict[str, Any]) -> Answer:
        """The answer to one POST, whatever its status. Raises httpx.HTTPError."""
        body = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        return self._connections.call("POST", f"{self._url}{path}", self._timeout, body, _JSON, LARGEST)

    def _tell(self, task: ExternalTask, verb: str, content: dict[str, Any]) -> None:
        answer = self._post(f"/external-task/{task.id}/{verb}", {"workerId": self._worker, **content})
        if answer.status in (400, 404):
            # The lock is over and another worker has the task: it will find the outcome in the record.
            LOG.info("Camunda no longer takes %s for task %s (HTTP %d)", verb, task.id, answer.status)
            return
        answer.successful()


class ExternalWorker:
    """Runs the operations of external tasks: topic by topic, each once whatever the other engine hands out again."""

    def __init__(self, tasks: ExternalTasks, faturamento: Faturamento, principal: str, *, lock: float = 60.0) -> None:
        self._tasks = tasks
        self._faturamento = faturamento
        self._principal = principal
        self._lock = lock

    def work(self, most: int = 10) -> int:
        """Fetch and run; returns how many tasks there were."""
        found = self._tasks.fetch(OPERATIONS, most=most, lock=self._lock)
        for task in found:
            self._run(task)
        return len(found)

    def _run(self, task: ExternalTask) -> None:
        left = MAX_RETRIES if task.retries is None else task.retries
        try:
            outcome = self._operate(task)
        except Glosa as glosa:
            said = {"glosa": {"codigo": glosa.codigo, "descricao": glosa.descricao}}
            self._tasks.error(task, "GLOSA", str(glosa), said)
        except DOUBTS as error:
            after = float(getattr(error, "retry_after", 1.0))
            self._tasks.fail(task, str(error), retries=max(left, 1), after=after)
        except (MaxRetriesExceeded, Problem) as error:
            self._tasks.fail(task, str(error), retries=0, after=0.0)
        else:
            self._tasks.complete(task, {task.topic: outcome.value})

    def _operate(self, task: ExternalTask) -> Outcome[dict[str, Any]]:
        # Begun: the other engine may have handed it out before, longer ago than any record is kept.
        step = Step(self._principal, task.process_instance, task.activity, begun=True)
        lote = lote_of(task.variables.get("lote"))
        if task.topic == ELIGIBLE:
            return self._faturamento.check_eligibility(step, lote)
        if task.topic == SUBMIT:
            return self._faturamento.submit_claim(step, lote)
        claim = task.variables.get(SUBMIT)
        if task.topic != PAY or not isinstance(claim, dict) or not {"claimId", "valor"} <= claim.keys():
            raise Problem(422, "dados-invalidos", "Dados inválidos", f"{PAY} precisa do resultado de {SUBMIT}.")
        return self._faturamento.process_payment(step, lote.operadora, str(claim["claimId"]), str(claim["valor"]))


def _task(found: dict[str, Any]) -> ExternalTask:
    variables = {name: _value(variable) for name, variable in (found.get("variables") or {}).items()}
    return ExternalTask(
        found["id"],
        found["topicName"],
        found["processInstanceId"],
        found["activityId"],
        found.get("retries"),
        variables,
    )


def _value(variable: dict[str, Any]) -> Any:
    """A variable's value; objects travel as JSON text. None for one that cannot be read: only its task fails."""
    value = variable.get("value")
    if variable.get("type") not in ("Json", "Object") or not isinstance(value, str):
        return value
    try:
        return _BOUNDED.parse(value)
    except InvalidJson:
        return None


def _typed(variables: dict[str, Any]) -> dict[str, Any]:
    # A decision may have put exact numbers into an outcome: they travel as text.
    return {name: {"type": "Json", "value": json.dumps(value, default=str)} for name, value in variables.items()}
