"""The operations after the payer's analysis: ask for the demonstrativo, read one from a file, appeal against glosas."""

from __future__ import annotations

import hashlib
from typing import Any

from umavez import Outcome, Status
from umavez_systems.problems import Problem
from umavez_systems.processos.attempts import ASKED_OFTEN, READING, Look, Step, Value
from umavez_systems.processos.contas.database import Glosas
from umavez_systems.processos.contas.domain import Demonstrativo, Recebido, Recurso, Tipo, demonstrativo_of
from umavez_systems.processos.domain import Glosa, invalid
from umavez_systems.processos.operations import APPEAL, IMPORT, STATEMENT, Faturamento
from umavez_systems.processos.ports import (
    Alheio,
    DemonstrativoInvalido,
    Duplicado,
    PayerPortal,
    PortalInalcancavel,
    PortalSemResposta,
    SemDemonstrativo,
    confirmed,
)
from umavez_systems.processos.tiss.tables import JA_APRESENTADA
from umavez_systems.processos.tiss.xml import InvalidMessage


class Recursos:
    """request_statement, import_statement and submit_appeal, each once per process instance, activity and input."""

    def __init__(self, faturamento: Faturamento, portal: PayerPortal, glosas: Glosas) -> None:
        self._attempts = faturamento.attempts
        self._portal = portal
        self.glosas = glosas
        # The reconciler asks about a recurso that nobody repeats by what its attempt noted.
        faturamento.looks[APPEAL] = self._received

    def request_statement(self, step: Step, operadora: str, protocolo: str, tipo: Tipo) -> Outcome[Value]:
        """Ask the payer for a demonstrativo and keep it with its glosas. It changes nothing there, so it may run again.

        Raises SemDemonstrativo while there is none, DemonstrativoInvalido, PortalError kinds.
        """

        def act(_: str) -> Value:
            xml = self._asked(operadora, protocolo, tipo)
            if xml is None:
                raise SemDemonstrativo(tipo)
            try:
                found = demonstrativo_of(xml)
            except InvalidMessage as error:
                raise DemonstrativoInvalido(str(error)) from error
            if (found.operadora, found.protocolo, found.tipo) != (operadora, protocolo, tipo):
                raise DemonstrativoInvalido("O portal mandou o demonstrativo de outro protocolo.")
            return self._kept(step.principal, found)

        inputs = {"operadora": operadora, "protocolo": protocolo, "tipo": tipo.value}
        return self._attempts.run(step, STATEMENT, inputs, None, act, ASKED_OFTEN)

    def _asked(self, operadora: str, protocolo: str, tipo: Tipo) -> bytes | None:
        try:
            return READING.run(lambda: self._portal.statement_of(operadora, protocolo, tipo), repeatable=True)
        except PortalSemResposta as error:
            raise PortalInalcancavel("O demonstrativo não pôde ser lido; nada mudou.") from error

    def import_statement(self, step: Step, data: bytes) -> Outcome[Value]:
        """Keep the demonstrativo in a TISS message that somebody has as a file. Raises a 422 problem for a bad one."""
        try:
            found = demonstrativo_of(data)
        except InvalidMessage as error:
            raise invalid(str(error)) from error
        inputs = {"sha256": hashlib.sha256(data).hexdigest()}

        def act(_: str) -> Value:
            return self._kept(step.principal, found)

        try:
            return self._attempts.run(step, IMPORT, inputs, None, act, ASKED_OFTEN)
        except DemonstrativoInvalido as error:
            raise Problem(409, "demonstrativo-divergente", "Demonstrativo divergente", str(error)) from error

    def _kept(self, principal: str, found: Demonstrativo) -> Value:
        self.glosas.keep(principal, found)
        return found.result()

    def submit_appeal(self, step: Step, recurso: Recurso) -> Outcome[Value]:
        """Appeal against glosas, in time, each in one recurso only. Raises as submit_claim, and Recusado kinds.

        What was sent in time is replayed, and asked about, also when the time is over.
        """
        inputs = recurso.sent()
        key = step.key(APPEAL, inputs)
        noted = [step.principal, key, recurso.operadora, recurso.protocolo, recurso.numero]
        record = self._attempts.once(step.principal).get(APPEAL, key)
        if record is None or (record.status is Status.FAILED and record.settled is None):
            self._reserve(step.principal, recurso, key)

        def look(referencia: str) -> Value | None:
            return self._received(noted, referencia)

        def act(referencia: str) -> Value:
            self._reserve(step.principal, recurso, key)
            try:
                found = confirmed(self._portal.appeal(recurso, referencia), referencia)
            except Duplicado:
                there = self._portal.appeal_of(recurso.operadora, recurso.protocolo, recurso.numero)
                if there is None or there.referencia != referencia:
                    raise Glosa(JA_APRESENTADA, "Recurso já apresentado com este número") from None
                found = there
            return self._told(noted, found)

        return self._attempts.run(step, APPEAL, inputs, Look(look, noted), act)

    def _reserve(self, principal: str, recurso: Recurso, key: str) -> None:
        """Take the glosas; those of a recurso that was refused for good are free again."""
        others = self.glosas.owners(principal, recurso) - {key}
        passing = {other for other in others if self._attempts.refused(principal, APPEAL, other)}
        self.glosas.reserve(principal, recurso, key, passing)

    def _received(self, noted: list[str], referencia: str) -> Value | None:
        """What the payer has of a recurso; None: nothing. Raises Alheio where it is somebody else's."""
        found = READING.run(lambda: self._portal.appeal_of(*noted[2:]), repeatable=True)
        if found is not None and found.referencia != referencia:
            raise Alheio("O portal tem outro recurso com este número; confira e resolva o registro.")
        return None if found is None else self._told(noted, found)

    def _told(self, noted: list[str], found: Recebido) -> Value:
        principal, key, operadora, protocolo, numero = noted
        self.glosas.told(principal, operadora, protocolo, key, found)
        return {
            "appealId": found.numero,
            "claimId": protocolo,
            "numeroRecurso": numero,
            "valorRecursado": found.valor,
            "status": found.situacao,
        }

    def appeal(self, principal: str, operadora: str, protocolo: str, numero: str) -> dict[str, Any]:
        """Where one of this principal's recursos stands, asked from the payer now and kept. Raises a 404 problem."""
        try:
            found = READING.run(lambda: self._portal.appeal_of(operadora, protocolo, numero), repeatable=True)
        except PortalSemResposta as error:
            raise PortalInalcancavel("A situação do recurso não pôde ser lida.") from error
        key = None if found is None else self.glosas.key_of(principal, operadora, protocolo, numero, found.numero)
        if found is None or key is None:
            raise Problem(404, "nao-encontrado", "Recurso não encontrado", "Não há recurso seu com este número.")
        return {**self._told([principal, key, operadora, protocolo, numero], found), "valorAcatado": found.acatado}
