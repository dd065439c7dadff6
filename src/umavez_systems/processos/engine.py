"""The BPMN engine: SpiffWorkflow behind a narrow door. Only this module knows it.

A service task is begun by the engine and left STARTED; who drives the instance runs the operation and completes it.
State goes to JSON without the definition, which is kept once and named by its digest; nothing is pickled.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from lxml import etree  # type: ignore[import-untyped]  # ships no type information
from SpiffWorkflow.bpmn.parser import BpmnParser  # type: ignore[import-untyped]  # ships no type information
from SpiffWorkflow.bpmn.serializer import DEFAULT_CONFIG, BpmnWorkflowSerializer  # type: ignore[import-untyped]  # same
from SpiffWorkflow.bpmn.serializer.default import BpmnTaskSpecConverter  # type: ignore[import-untyped]  # the same
from SpiffWorkflow.bpmn.specs.defaults import EndEvent, ServiceTask  # type: ignore[import-untyped]  # the same
from SpiffWorkflow.bpmn.specs.event_definitions import ErrorEventDefinition  # type: ignore[import-untyped]  # the same
from SpiffWorkflow.bpmn.util import BpmnEvent  # type: ignore[import-untyped]  # the same
from SpiffWorkflow.bpmn.workflow import BpmnWorkflow  # type: ignore[import-untyped]  # the same
from SpiffWorkflow.exceptions import WorkflowException  # type: ignore[import-untyped]  # the same
from SpiffWorkflow.util.task import TaskState  # type: ignore[import-untyped]  # the same

from umavez import ConfigurationError

CAMUNDA = "{http://camunda.org/schema/1.0/bpmn}"
MODEL = "{http://www.omg.org/spec/BPMN/20100524/MODEL}"
# Below this level the engine attaches every task's data to its log records: patients would be in the logs.
for _name in ("spiff.task", "spiff.workflow", "spiff.data"):
    logging.getLogger(_name).setLevel(logging.WARNING)

SERIALIZER = BpmnWorkflowSerializer(
    BpmnWorkflowSerializer.configure({**DEFAULT_CONFIG, ServiceTask: BpmnTaskSpecConverter})
)
SPECS = ("spec", "subprocess_specs")


@dataclass(frozen=True, slots=True)
class Service:
    """A service task that waits for its operation."""

    id: Any
    activity: str
    operation: str
    data: dict[str, Any]


class Definition:
    """A BPMN process, parsed once. `topics`: the operation of each service task (Camunda's topic)."""

    def __init__(self, xml: str) -> None:
        self.xml = xml
        self.digest = sha256(xml.encode()).hexdigest()
        self.root = parsed(xml)
        parser = BpmnParser()
        parser.add_bpmn_xml(self.root)
        names = parser.get_process_ids()
        if len(names) != 1:
            raise ConfigurationError(f"A BPMN file holds one executable process; this one holds {len(names)}.")
        self.name: str = names[0]
        self.spec = parser.get_spec(self.name)
        tasks = self.root.iter(f"{MODEL}serviceTask")
        self.topics = {task.get("id"): task.get(f"{CAMUNDA}topic") or task.get("id") for task in tasks}
        self._specs = {
            "spec": SERIALIZER.to_dict(self.spec),
            "subprocess_specs": {},
        }

    def start(self, data: dict[str, Any]) -> Instance:
        """A new instance with `data`, run up to its first service task or event."""
        workflow = BpmnWorkflow(self.spec)
        workflow.get_next_task(state=TaskState.READY).data.update(data)
        instance = Instance(self, workflow)
        instance.settle()
        return instance

    def restore(self, state: dict[str, Any]) -> Instance:
        """The instance that `Instance.state` gave."""
        return Instance(self, SERIALIZER.from_dict({**self._specs, **state}))


class Instance:
    """A running process: a task tree and its data."""

    def __init__(self, definition: Definition, workflow: Any) -> None:
        self.definition = definition
        self._workflow = workflow

    def settle(self) -> None:
        """Go on through gateways and events, and through timers whose time has come; begin service tasks."""
        self._workflow.refresh_timers()
        self._workflow.do_engine_steps()

    def service(self) -> Service | None:
        """The first service task that is begun and not complete."""
        for task in self._workflow.get_tasks(state=TaskState.STARTED):
            name = task.task_spec.name
            if name in self.definition.topics:
                return Service(task.id, name, self.definition.topics[name], dict(task.data))
        return None

    def complete(self, service: Service, result: dict[str, Any]) -> None:
        """End a service task with its operation's result, kept under the operation's name, and go on."""
        task = self._workflow.get_task_from_id(service.id)
        task.data[service.operation] = result
        task.complete()
        self.settle()

    def fail(self, service: Service, code: str, content: dict[str, Any]) -> bool:
        """Raise a BPMN error at a service task and go on; False when no boundary event catches it."""
        try:
            self._workflow.send_event(BpmnEvent(ErrorEventDefinition(code, code), payload=content))
        except WorkflowException:
            return False
        self.settle()
        return True

    def due(self) -> int | None:
        """When the next timer fires, in milliseconds since the epoch; None: none is set."""
        times = [
            datetime.fromisoformat(event.value)
            for event in self._workflow.waiting_events()
            if "Timer" in event.event_type and isinstance(event.value, str)
        ]
        return int(min(times).timestamp() * 1000) + 1 if times else None

    @property
    def ended(self) -> bool:
        """Whether nothing is left to do."""
        return bool(self._workflow.completed)

    @property
    def ending(self) -> str | None:
        """The end event that was reached."""
        ends = [
            task.task_spec.name
            for task in self._workflow.get_tasks(state=TaskState.COMPLETED)
            if isinstance(task.task_spec, EndEvent)
        ]
        return ends[-1] if ends else None

    def tasks(self) -> dict[str, str]:
        """The state of each element of the diagram that was reached, in the engine's words."""
        found = {
            task.task_spec.bpmn_id: TaskState.get_name(task.state)
            for task in self._workflow.get_tasks(state=TaskState.DEFINITE_MASK | TaskState.FINISHED_MASK)
            if task.task_spec.bpmn_id is not None
        }
        # A boundary event that waits beside a running task has not happened, and one that was cancelled never will.
        return {name: state for name, state in found.items() if state not in ("FUTURE", "LIKELY", "MAYBE")}

    def state(self) -> dict[str, Any]:
        """Everything about the instance as JSON values, without its definition."""
        state = SERIALIZER.to_dict(self._workflow)
        return {name: value for name, value in state.items() if name not in SPECS}


def parsed(xml: str) -> Any:
    """The root element of `xml`. Entities are not resolved and nothing is fetched. Raises ConfigurationError."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        return etree.fromstring(xml.encode(), parser)
    except etree.XMLSyntaxError as error:
        raise ConfigurationError(f"The BPMN file is not well-formed XML: {error}.") from error


@lru_cache(maxsize=32)
def definition_of(xml: str) -> Definition:
    """The definition of `xml`, parsed once per process."""
    return Definition(xml)


def builtin(name: str = "faturamento") -> Definition:
    """A definition that comes with the system."""
    return definition_of(files("umavez_systems.processos").joinpath(f"bpmn/{name}.bpmn").read_text())
