"""The operations of the revenue cycle: eligibility, submission, payment, and the records of all of them.

Each has its effect outside, at the payer. Its record is claimed before, settled after, and an outcome nobody knows
is closed by asking the payer, never by guessing (seed 003, with its sample's second row after FAILED left out).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from umavez import (
    CannotTell,
    Codec,
    Event,
    Happened,
    NoSuchRecord,
    NotHappened,
    Once,
    Outcome,
    Question,
    Record,
    Status,
    Store,
    current_attempt,
)
from umavez.reconcile import Pace, Reconciler
from umavez_systems.processos.attempts import ASKED_OFTEN, MAX_RETRIES, READING, Attempts, Look, Step, Terms, Value
from umavez_systems.processos.database import Owner, Reservas
from umavez_systems.processos.domain import Glosa, Lote, Pagamento, Remessa, check_result
from umavez_systems.processos.ports import (
    Alheio,
    Duplicado,
    EmAnalise,
    EmAndamento,
    NaoPagavel,
    PayerPortal,
    PortalInalcancavel,
    PortalSemResposta,
    confirmed,
)
from umavez_systems.processos.tiss.tables import JA_APRESENTADA, Situacao

SUBMIT = "submit_claim"
PAY = "process_payment"
ELIGIBLE = "check_eligibility"
STATEMENT = "request_statement"
IMPORT = "import_statement"
APPEAL = "submit_appeal"
OPERATIONS = (ELIGIBLE, SUBMIT, PAY)
"""What a process has as its tasks."""
RECORDED = (*OPERATIONS, STATEMENT, IMPORT, APPEAL)
RECONCILER = "umavez"
"""The scope of whoever asks about all scopes: a name that no principal can have."""

UNPAYABLE = (Situacao.ENCERRADO_SEM_PAGAMENTO, Situacao.PAGO, Situacao.NAO_LOCALIZADO, Situacao.CANCELADO)


class Reservado(NaoPagavel):
    """The payment of the protocolo is another key's."""

    def __init__(self) -> None:
        super().__init__("O pagamento deste protocolo já é de outro processo; repita por ele ou confira o protocolo.")


class Faturamento:
    """submit_claim, process_payment and check_eligibility, each once per process instance, activity and input."""

    def __init__(
        self,
        store: Store,
        portal: PayerPortal,
        reservas: Reservas,
        *,
        codec: Codec | None = None,
        terms: Terms | None = None,
        observers: Iterable[Callable[[Event], None]] = (),
    ) -> None:
        self.attempts = Attempts(store, codec=codec, terms=terms, observers=observers)
        self._portal = portal
        self._reservas = reservas
        self.looks: dict[str, Callable[[list[str], str], Value | None]] = {
            SUBMIT: lambda noted, referencia: self._submitted(Remessa(*noted), referencia),
            PAY: lambda noted, referencia: self._paid(noted[0], noted[1], referencia),
        }
        """How the payer is asked about each operation, by what its attempt noted before it acted."""

    def submit_claim(self, step: Step, lote: Lote) -> Outcome[Value]:
        """Hand a lote in. Raises Glosa (final), PortalError kinds, OperationInProgress, MaxRetriesExceeded,
        OutcomeUnknown."""

        def look(referencia: str) -> Value | None:
            return self._submitted(lote.remessa, referencia)

        def act(referencia: str) -> Value:
            try:
                return confirmed(self._portal.submit(lote, referencia), referencia).result(lote.numero)
            except Duplicado:
                found = self._portal.protocol_of(lote.remessa)
                if found is None or found.referencia != referencia:
                    raise Glosa(JA_APRESENTADA, "Guia já apresentada") from None
                return found.result(lote.numero)

        return self.attempts.run(step, SUBMIT, lote.sent(), Look(look, list(lote.remessa)), act)

    def _submitted(self, remessa: Remessa, referencia: str) -> Value | None:
        found = READING.run(lambda: self._portal.protocol_of(remessa), repeatable=True)
        if found is not None and found.referencia != referencia:
            raise Alheio("O portal tem outro lote com este número; confira e resolva o registro.")
        return None if found is None else found.result(remessa.numero)

    def process_payment(self, step: Step, operadora: str, protocolo: str, valor: str) -> Outcome[Value]:
        """Ask for the payment of a protocolo, once it is released. Raises as submit_claim, EmAnalise, NaoPagavel."""
        inputs = {"operadora": operadora, "protocolo": protocolo, "valor": valor}
        owner = (step.principal, step.key(PAY, inputs))
        self._permit(step, operadora, protocolo, owner)

        def look(referencia: str) -> Value | None:
            return self._paid(operadora, protocolo, referencia)

        def act(referencia: str) -> Value:
            if self._reservas.owner(operadora, protocolo, owner) != owner:
                raise Reservado
            try:
                return _of(protocolo, confirmed(self._portal.pay(operadora, protocolo, valor, referencia), referencia))
            except Duplicado:
                found = look(referencia)
                if found is None:
                    raise
                return found

        return self.attempts.run(step, PAY, inputs, Look(look, [operadora, protocolo]), act)

    def _permit(self, step: Step, operadora: str, protocolo: str, owner: Owner) -> None:
        """Raise where a payment must not begin. One that has begun, or is settled, is its record's business."""
        record = self.once(step.principal).get(PAY, owner[1])
        if record is not None and record.settled is not None:
            return
        if record is None or record.status is Status.FAILED:
            self._refuse_unreleased(step, operadora, protocolo)
        if not self._reservas.take(operadora, protocolo, owner, self._refused):
            raise Reservado

    def _refuse_unreleased(self, step: Step, operadora: str, protocolo: str) -> None:
        try:
            situacao = READING.run(lambda: self._portal.situation_of(operadora, protocolo), repeatable=True)
        except PortalSemResposta as error:
            # A question that got no answer has done nothing; only a payment that got none is in doubt.
            raise PortalInalcancavel("A situação do protocolo não pôde ser lida; nada foi pago.") from error
        # A step that was begun may have paid and lost its record: the payer is asked for the payment then.
        if situacao is Situacao.LIBERADO or (situacao is Situacao.PAGO and step.begun):
            return
        if situacao in UNPAYABLE:
            raise NaoPagavel(f"O protocolo não pode ser pago (situação {situacao}, {situacao.name}).")
        raise EmAnalise(situacao)

    def _refused(self, owner: Owner) -> bool:
        """Whether a key's payment was refused for good: then it can never pay, and another may."""
        return self.attempts.refused(owner[0], PAY, owner[1])

    def _paid(self, operadora: str, protocolo: str, referencia: str) -> Value | None:
        found = READING.run(lambda: self._portal.payment_of(operadora, protocolo), repeatable=True)
        if found is not None and found.referencia != referencia:
            raise Alheio("O portal tem outro pagamento deste protocolo; confira e resolva o registro.")
        return None if found is None else _of(protocolo, found)

    def ask(self, question: Question) -> Happened | NotHappened | CannotTell:
        """What the payer says about a record that nobody repeats, by what its attempt noted before it acted."""
        noted = question.progress
        if not isinstance(noted, list):
            return CannotTell("O registro não diz o que perguntar; quem repetir a operação pergunta.")
        look = self.looks[question.key.operation]
        return self.attempts.ask(question, lambda referencia: look(noted, referencia))

    def check_eligibility(self, step: Step, lote: Lote) -> Outcome[Value]:
        """Whether every patient of a lote is covered. It changes nothing, so it may simply run again.

        Raises EmAndamento where the payer takes longer than one turn: whoever waits, and the worker, go on with others.
        """
        cards = sorted({guia.carteira for guia in lote.guias})

        def covered(card: str) -> bool:
            return READING.run(lambda: self._portal.eligible(lote.operadora, card), repeatable=True)

        def act(_: str) -> Value:
            attempt, ends = current_attempt(), time.monotonic() + self.attempts.terms.turn
            # By their number alone: a record is open to more people than a patient's card is.
            for asked, card in enumerate(cards[attempt.progress or 0 :], (attempt.progress or 0) + 1):
                if not covered(card):
                    return {"elegivel": False}
                if asked < len(cards) and time.monotonic() >= ends:
                    attempt.checkpoint(asked)
                    raise EmAndamento(asked, len(cards))
            return {"elegivel": True}

        inputs = {"operadora": lote.operadora, "carteiras": cards}
        return self.attempts.run(step, ELIGIBLE, inputs, None, act, ASKED_OFTEN)

    def reconciler(self, patience: float) -> Reconciler:
        """Asks the payer about outcomes that nobody knows, of all principals, and frees what never happened."""
        once = self.once(RECONCILER)
        for operation in self.looks:
            once.plans.declared(operation, {"unknown": self.ask, "max_retries": MAX_RETRIES, **self.attempts.policy})
        return Reconciler(once, pace=Pace(settle=self.attempts.terms.quiet), patience=patience)

    def once(self, principal: str) -> Once:
        """The engine for one principal's records; keys of different principals never meet."""
        return self.attempts.once(principal)

    def record(self, principal: str, key: str) -> Record:
        """The record of a key (seed: findByIdempotencyKey). Raises NoSuchRecord."""
        once = self.once(principal)
        # By the digest, of which the operation is a part: a look at one row, whatever the table's size.
        found = [record for name in RECORDED if (record := once.get(name, key)) is not None]
        if not found:
            raise NoSuchRecord(once.plans.any("operation").key(key))
        return found[0]

    def records(
        self,
        principal: str,
        *,
        process_instance: str | None = None,
        status: Status | None = None,
        older_than: float | None = None,
        limit: int = 100,
    ) -> list[Record]:
        """Records by process instance, or by status and age in seconds (seed: findByStatusAndCreatedAtBefore)."""
        return self.once(principal).find(
            process_instance=process_instance, status=status, older_than=older_than, limit=limit
        )

    def result(self, principal: str, record: Record) -> Any:
        """The value kept in a record, opened; None where there is none. Raises the stored refusal."""
        if record.settled is None:
            return None
        return self.once(principal).plans.any(record.key.operation).stored(record)

    def resolve(self, principal: str, key: str, answer: Happened | NotHappened, *, by: str, reason: str) -> Record:
        """Close a record by decision, with evidence. Raises NoSuchRecord, OperationInProgress, AlreadySettled, and a
        422 problem for a result that nobody could go on with."""
        record = self.record(principal, key)
        if isinstance(answer, Happened):
            check_result(record.key.operation, answer.value)
        self.once(principal).resolve(record.key.operation, key, answer, by=by, reason=reason)
        return self.record(principal, key)

    def close(self) -> None:
        """Stop the heartbeats and give the portal's connections back. The store is closed with them."""
        self.attempts.close()
        self._portal.close()


def _of(protocolo: str, found: Pagamento) -> Value:
    """What process_payment gives. Raises PortalSemResposta for the payment of another protocolo."""
    if found.protocolo != protocolo:
        raise PortalSemResposta("O portal respondeu com o pagamento de outro protocolo.")
    return found.result()
