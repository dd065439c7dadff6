"""Runner: drives process instances through their operations, and keeps their state.

A step is begun, its operation run through the engine, and its end written with the beginning of the next, each time
naming the version it replaces. A worker may die anywhere: the next one repeats the operation, which replays, asks the
payer or runs, as its record says; a worker that was overtaken finds another version and stops.
"""

from __future__ import annotations

import contextlib
import logging
import random
import re
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from umavez import (
    ClaimLost,
    Codec,
    JsonCodec,
    Key,
    KeyReused,
    MaxRetriesExceeded,
    OperationInProgress,
    OutcomeUnknown,
    StoreError,
    UmavezError,
)
from umavez_systems.database import Database, Row
from umavez_systems.problems import Problem
from umavez_systems.processos import database as tables
from umavez_systems.processos.attempts import Step
from umavez_systems.processos.database import Mudanca, Passo
from umavez_systems.processos.domain import Glosa, Lote, invalid, lote_of
from umavez_systems.processos.engine import Definition, Instance, Service, builtin, definition_of
from umavez_systems.processos.operations import ELIGIBLE, PAY, SUBMIT, Faturamento
from umavez_systems.processos.ports import EmAndamento, NaoPagavel, PortalError, PortalOcupado

LOG = logging.getLogger("umavez.systems.processos")
LONGEST_PAUSE = 60.0
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
_DURATION = re.compile(r"P(?=.)([0-9]{1,4}D)?(T(?=.)([0-9]{1,5}H)?([0-9]{1,5}M)?([0-9]{1,6}(\.[0-9]{1,3})?S)?)?")


@dataclass
class Run:
    """An instance in the hands of a worker: what was loaded, and what is to be written about it."""

    principal: str
    id: str
    versao: int
    falhas: int
    instance: Instance
    steps: list[Passo] = field(default_factory=list)
    begun: set[Any] = field(default_factory=set)
    """Service tasks that this worker began itself."""


class Overtaken(Exception):
    """Another worker has moved the instance on."""


class Runner:
    """Starts and moves process instances.

    `pause` is the first wait after a failure, doubled by each that follows. `hold`: how long an instance is left to the
    worker that took it before another looks; it spares double work, while only the records decide what may run.
    """

    def __init__(
        self,
        database: Database,
        faturamento: Faturamento,
        *,
        codec: Codec | None = None,
        pause: float = 1.0,
        hold: float = 30.0,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._database = database
        self._faturamento = faturamento
        self._codec: Codec = codec or JsonCodec()
        self._pause = pause
        self._hold_ms = int(hold * 1000)
        self._clock = clock

    def start(self, principal: str, number: str | None, lote: Lote, prazo: str = "P1D") -> tuple[Row, bool]:
        """A new instance of the billing process, or the one of that id; the flag says that it was there.

        It is not run yet: see `advance`. Raises a 409 problem when the id belongs to another lote.
        """
        number = str(uuid.uuid4()) if number is None else number
        if not _ID.fullmatch(number):
            raise invalid("id: use de 1 a 64 letras, dígitos e . _ : -.")
        if not _DURATION.fullmatch(prazo):
            raise invalid("prazo deve ser uma duração como P1D, PT2H ou PT0S.")
        definition = builtin()
        data = {"lote": lote.sent(), "prazo": prazo}
        run = Run(principal, number, 1, 0, definition.start(data), [Passo(None, "iniciado", definition.name)])
        now = self._clock()
        change = self._change(run, vence_em=now)
        with self._database.transaction() as connection:
            names = (definition.digest, definition.name, definition.xml)
            if tables.insert(connection, principal, number, names, change, now):
                tables.note(connection, principal, number, 1, run.steps, now)
                return self._row(principal, number, tables.find(connection, principal, number)), False
        row = self.row(principal, number)
        # Any task's data holds what the instance began with.
        if self._data(row) != data:
            raise Problem(409, "id-em-uso", "Id em uso", "Já existe um processo com este id e outros dados.")
        return row, True

    def advance(self, principal: str, number: str, *, force: bool = False) -> Row:
        """Move an instance on as far as it goes. `force`: also one with an incident, after it was dealt with."""
        row = self.row(principal, number)
        if row["estado"] == "encerrado" or (row["estado"] == "incidente" and not force):
            return row
        self._advance(row)
        return self.row(principal, number)

    def _advance(self, row: Row) -> None:
        with contextlib.suppress(Overtaken):
            self._drive(self._taken(row))

    def _taken(self, row: Row) -> Run:
        return Run(row["principal"], row["id"], row["versao"], row["falhas"], self._instance(row))

    def work(self, limit: int = 100, stop: threading.Event | None = None) -> int:
        """Move on every instance whose time has come, until `stop` is set; returns how many were found."""
        with self._database.statements() as connection:
            due = connection.rows(tables.DUE, (self._clock(), limit))
        # Workers see the same list; in the same order they would meet at every instance.
        random.shuffle(due)
        for found in due:
            if stop is not None and stop.is_set():
                break
            row = self.row(found["principal"], found["id"])
            if row["vence_em"] is not None and row["vence_em"] <= self._clock():
                self._advance_or_set_aside(row)
        return len(due)

    def _advance_or_set_aside(self, row: Row) -> None:
        """Move an instance on; one that breaks the worker becomes an incident, so that the others go on."""
        run: Run | None = None
        try:
            run = self._taken(row)
            self._drive(run)
        except Overtaken:
            return
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the other instances must not wait for it
            # Without the error's text and trace: a BPMN engine's errors quote the data they met.
            LOG.error("Process %s cannot be moved on: %s", row["id"], type(error).__name__)  # noqa: TRY400
            versao = row["versao"] if run is None else run.versao
            self._set_aside(row, versao, f"{type(error).__name__}: o processo não pôde ser movido.")

    def _set_aside(self, row: Row, versao: int, motivo: str) -> None:
        now = self._clock()
        with self._database.transaction() as connection:
            if tables.set_aside(connection, row["principal"], row["id"], versao, motivo, now):
                steps = [Passo(None, "incidente", motivo)]
                tables.note(connection, row["principal"], row["id"], versao + 1, steps, now)

    def row(self, principal: str, number: str) -> Row:
        """One instance. Raises a 404 problem."""
        with self._database.statements() as connection:
            return self._row(principal, number, tables.find(connection, principal, number))

    def instances(self, principal: str, estado: str | None = None, since: int = 0, limit: int = 50) -> list[Row]:
        """Instances, newest first; nothing of their content."""
        with self._database.statements() as connection:
            if estado is None:
                return connection.rows(tables.LIST, (principal, since, limit))
            return connection.rows(tables.LIST_BY_STATE, (principal, since, estado, limit))

    def timeline(self, principal: str, number: str) -> list[Row]:
        """What happened to an instance, oldest first."""
        with self._database.statements() as connection:
            return connection.rows(tables.STEPS, (principal, number))

    def drawn(self, row: Row) -> tuple[Definition, dict[str, str]]:
        """An instance's definition and the state of each task, for drawing."""
        instance = self._instance(row)
        return instance.definition, instance.tasks()

    def _drive(self, run: Run) -> None:
        run.instance.settle()
        # Takes the instance: a rival that read the same version finds another one here and leaves it alone.
        self._persist(run)
        while (service := run.instance.service()) is not None:
            if not self._performed(run, service):
                return
            self._persist(run)
            following = run.instance.service()
            if following is not None:
                run.begun.add(following.id)

    def _performed(self, run: Run, service: Service) -> bool:
        """Run one service task's operation; False when the instance has to wait or needs a human."""
        step = Step(run.principal, run.id, service.activity, begun=service.id not in run.begun)
        try:
            outcome = self._operate(step, service)
        except Glosa as glosa:
            content = {"glosa": {"codigo": glosa.codigo, "descricao": glosa.descricao}}
            run.steps.append(Passo(service.activity, "glosa", str(glosa)))
            if not run.instance.fail(service, "GLOSA", content):
                return self._incident(run, service, str(glosa))
            return True
        except NaoPagavel as error:
            return self._incident(run, service, str(error))
        except (OperationInProgress, OutcomeUnknown, ClaimLost, PortalError) as error:
            return self._later(run, service, error)
        except (MaxRetriesExceeded, KeyReused) as error:
            last = error.last_error if isinstance(error, MaxRetriesExceeded) else None
            return self._incident(run, service, last or str(error))
        run.falhas = 0
        how = "repetida" if outcome.replayed else "executada"
        run.steps.append(Passo(service.activity, "concluída", f"{how}, tentativa {outcome.attempt}"))
        run.instance.complete(service, outcome.value)
        return True

    def _operate(self, step: Step, service: Service) -> Any:
        lote = lote_of(service.data["lote"])
        if service.operation == ELIGIBLE:
            return self._faturamento.check_eligibility(step, lote)
        if service.operation == SUBMIT:
            return self._faturamento.submit_claim(step, lote)
        if service.operation == PAY:
            claim = service.data[SUBMIT]
            return self._faturamento.process_payment(step, lote.operadora, claim["claimId"], claim["valor"])
        raise UmavezError(f"{service.activity} names the operation {service.operation!r}, which is not known here.")

    def _later(self, run: Run, service: Service, error: Exception) -> bool:
        if isinstance(error, OperationInProgress | EmAndamento):
            # Nothing failed: somebody else's claim is waited for, as long as it says, or the rest is asked next time.
            pause = max(self._pause, error.retry_after)
        else:
            wish = error.retry_after if isinstance(error, PortalOcupado) else 0.0
            pause = max(min(self._pause * 2**run.falhas, LONGEST_PAUSE), wish)
            run.falhas = min(run.falhas + 1, 16)
        text = f"{type(error).__name__}; nova tentativa em {pause:.3g} s"
        run.steps.append(Passo(service.activity, "adiada", text))
        self._persist(run, vence_em=self._clock() + int(pause * 1000))
        return False

    def _incident(self, run: Run, service: Service, motivo: str) -> bool:
        run.steps.append(Passo(service.activity, "incidente", motivo))
        self._persist(run, estado="incidente", motivo=motivo)
        return False

    def _persist(self, run: Run, **changed: Any) -> None:
        """Write the instance where its version stands. Raises Overtaken."""
        now = self._clock()
        if run.instance.ended:
            run.steps.append(Passo(None, "encerrado", run.instance.ending))
        change = self._change(run, **changed)
        with self._database.transaction() as connection:
            versao = tables.update(connection, run.principal, run.id, run.versao, change, now)
            if versao is None:
                raise Overtaken
            tables.note(connection, run.principal, run.id, versao, run.steps, now)
        run.versao = versao
        run.steps.clear()

    def _change(self, run: Run, **changed: Any) -> Mudanca:
        instance = run.instance
        conteudo = self._codec.encode(instance.state(), _key(run.principal, run.id))
        if instance.ended:
            return Mudanca("encerrado", conteudo, None, desfecho=instance.ending)
        waiting = instance.service() is None
        fields: dict[str, Any] = {
            "estado": "esperando" if waiting else "ativo",
            "vence_em": (instance.due() if waiting else None) or self._clock() + self._hold_ms,
            "falhas": run.falhas,
        }
        return Mudanca(conteudo=conteudo, **{**fields, **changed})

    def _instance(self, row: Row) -> Instance:
        with self._database.statements() as connection:
            found = connection.row(tables.DEFINITION, (row["definicao"],))
        xml = "" if found is None else found["xml"]
        return definition_of(xml).restore(self._codec.decode(row["conteudo"], _key(row["principal"], row["id"])))

    def _data(self, row: Row) -> dict[str, Any]:
        state = self._codec.decode(row["conteudo"], _key(row["principal"], row["id"]))
        for task in state["tasks"].values():
            found = {**task["data"], **task["delta"].get("updates", {})}
            if "lote" in found and "prazo" in found:
                return {"lote": found["lote"], "prazo": found["prazo"]}
        return {}

    def _row(self, principal: str, number: str, row: Row | None) -> Row:
        if row is None:
            raise Problem(404, "nao-encontrado", "Processo não encontrado", f"Não há processo {number!r}.")
        return row


def _key(principal: str, number: str) -> Key:
    """What a sealed state is bound to: copied to another row it does not open."""
    return Key(principal, "processo", number)
