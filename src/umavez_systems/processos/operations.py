"""The operations of the revenue cycle: the only file of the system that calls the engine.

Each has its effect outside, at the payer. Its record is claimed before, settled after, and an outcome nobody knows
is closed by asking the payer, never by guessing (seed 003, with its sample's second row after FAILED left out).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from umavez import (
    Attempt,
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
    derived_key,
)
from umavez.retry import Backoff, Retry
from umavez.transport import Phase, Trouble
from umavez_systems.processos.domain import Glosa, Lote
from umavez_systems.processos.ports import Duplicado, PayerPortal, PortalError, PortalInalcancavel, PortalOcupado
from umavez_systems.processos.tiss import JA_APRESENTADA

LOG = logging.getLogger("umavez.systems.processos")
SUBMIT = "submit_claim"
PAY = "process_payment"
ELIGIBLE = "check_eligibility"
OPERATIONS = (ELIGIBLE, SUBMIT, PAY)
MAX_RETRIES = 3
ASKED_OFTEN = 1000
"""Retries of what changes nothing: workers that die over a question must not use it up."""

Value = dict[str, Any]
Look = Callable[[str], Value | None]
"""Asks the payer, under the reference it was given, for what an operation would have returned; None: not there."""


READING = Retry(
    Backoff(attempts=3, first=0.1, cap=1.0),
    deadline=5.0,
    classify=lambda error: Trouble(Phase.NEVER_SENT if isinstance(error, PortalError) else Phase.REFUSED),
)
"""Questions change nothing: they are asked again at once, without using up the operation's own retries."""


class Alheio(PortalError):
    """The payer has something under the same name that is not ours."""


@dataclass(frozen=True, slots=True)
class Step:
    """Where an operation belongs. `begun`: an earlier worker may have run it, even if no record is left."""

    principal: str
    process_instance: str
    activity: str
    begun: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """How long claims last, results are kept, and silence must last before "not there" means "never happened"."""

    lease: float = 30.0
    keep: float = 24 * 3600.0
    quiet: float = 30.0


@dataclass  # not frozen, hence without a hash: the engine must not keep plans that hold a patient's lote
class Asking:
    """What `unknown=` is: looks at the payer. "Not there" counts only once the request can no longer be on its way."""

    look: Look
    quiet_ms: int
    now: Callable[[], int]

    def __call__(self, question: Question) -> Happened | NotHappened | CannotTell:
        """The payer's answer about an attempt that ended without one."""
        try:
            found = self.look(question.downstream_key())
        except PortalError as error:
            return CannotTell(str(error))
        if found is not None:
            return Happened(found)
        left = doubted_since(question.record) + self.quiet_ms - self.now()
        if left > 0:
            return CannotTell(f"O pedido não chegou, mas ainda pode estar a caminho; pergunte em {left / 1000:.1f} s.")
        return NotHappened()


def doubted_since(record: Record) -> int:
    """When the attempt's last possible request ended, by the store's clock; asking again does not move it."""
    began = max(record.updated_at, record.lease_until or 0)
    for entry in reversed(json.loads(record.evidence) if record.evidence else []):
        if entry["what"] != "cannot tell":
            break
        began = entry["at"]
    return began


class Faturamento:
    """submit_claim, process_payment and check_eligibility, each once per process instance, activity and input."""

    def __init__(
        self,
        store: Store,
        portal: PayerPortal,
        *,
        codec: Codec | None = None,
        terms: Terms | None = None,
        observers: Iterable[Callable[[Event], None]] = (),
    ) -> None:
        self._store = store
        self._observers = tuple(observers)
        self._portal = portal
        self._codec = codec
        self._terms = terms or Terms()
        self._onces: dict[str, Once] = {}
        self._lock = threading.Lock()

    def submit_claim(self, step: Step, lote: Lote) -> Outcome[Value]:
        """Hand a lote in. Raises Glosa (final), PortalError kinds, OperationInProgress, MaxRetriesExceeded,
        OutcomeUnknown."""

        def look(referencia: str) -> Value | None:
            found = READING.run(lambda: self._portal.protocol_of(lote), repeatable=True)
            if found is not None and found.referencia != referencia:
                raise Alheio("O portal tem outro lote com este número; confira e resolva o registro.")
            return None if found is None else found.result(lote)

        def act(referencia: str) -> Value:
            try:
                return self._portal.submit(lote, referencia).result(lote)
            except Duplicado:
                found = self._portal.protocol_of(lote)
                if found is None or found.referencia != referencia:
                    raise Glosa(JA_APRESENTADA, "Guia já apresentada") from None
                return found.result(lote)

        return self._run(step, SUBMIT, lote.sent(), look, act)

    def process_payment(self, step: Step, operadora: str, protocolo: str, valor: str) -> Outcome[Value]:
        """Ask for the payment of a protocolo. Raises as submit_claim."""

        def look(referencia: str) -> Value | None:
            found = READING.run(lambda: self._portal.payment_of(operadora, protocolo), repeatable=True)
            if found is not None and found.referencia != referencia:
                raise Alheio("O portal tem outro pagamento deste protocolo; confira e resolva o registro.")
            return None if found is None else found.result()

        def act(referencia: str) -> Value:
            try:
                return self._portal.pay(operadora, protocolo, valor, referencia).result()
            except Duplicado:
                found = look(referencia)
                if found is None:
                    raise
                return found

        inputs = {"operadora": operadora, "protocolo": protocolo, "valor": valor}
        return self._run(step, PAY, inputs, look, act)

    def check_eligibility(self, step: Step, lote: Lote) -> Outcome[Value]:
        """Whether every patient of a lote is covered. It changes nothing, so it may simply run again."""
        cards = sorted({guia.carteira for guia in lote.guias})

        def covered(card: str) -> bool:
            return READING.run(lambda: self._portal.eligible(lote.operadora, card), repeatable=True)

        def act(_: str) -> Value:
            return {"elegivel": all(covered(card) for card in cards)}

        return self._run(step, ELIGIBLE, {"operadora": lote.operadora, "carteiras": cards}, None, act, ASKED_OFTEN)

    def _run(
        self,
        step: Step,
        operation: str,
        inputs: Value,
        look: Look | None,
        act: Callable[[str], Value],
        max_retries: int = MAX_RETRIES,
    ) -> Outcome[Value]:
        once = self.once(step.principal)
        key = derived_key(step.process_instance, step.activity, operation, inputs)
        with once.attempt(
            operation,
            key=key,
            process_instance=step.process_instance,
            activity=step.activity,
            unknown="rerun" if look is None else self._asking(once, operation, key, look),
            final=(Glosa,),
            free=(PortalOcupado, PortalInalcancavel),
            max_retries=max_retries,
            keep=self._terms.keep,
            lease=self._terms.lease,
        ) as attempt:
            if attempt.replayed:
                return Outcome(attempt.outcome, True, attempt.number, attempt.key)
            if attempt.number > 1:
                LOG.info("Retry %d of %s in process %s", attempt.number - 1, operation, step.process_instance)
            referencia = attempt.downstream_key()
            # A step that was begun but has no record may have outlived it: then the payer is asked first.
            found = look(referencia) if look is not None and step.begun and attempt.number == 1 else None
            if found is None:
                self._prove(attempt)
                found = act(referencia)
            return attempt.succeed(found)

    def _prove(self, attempt: Attempt) -> None:
        """Raise ClaimLost if the claim is no longer ours: a worker that was frozen meanwhile must not send."""
        if time.monotonic() - attempt.beaten_at > self._terms.lease / 3:
            attempt.renew()
        attempt.check()

    def _asking(self, once: Once, operation: str, key: str, look: Look) -> Asking:
        name = once.plans.any(operation).key(key)
        return Asking(look, int(self._terms.quiet * 1000), lambda: once.store.read(name).now)

    def once(self, principal: str) -> Once:
        """The engine for one principal's records; keys of different principals never meet."""
        with self._lock:
            if principal not in self._onces:
                self._onces[principal] = Once(
                    self._store, scope=principal, codec=self._codec, observers=self._observers
                )
            return self._onces[principal]

    def record(self, principal: str, key: str) -> Record:
        """The record of a key (seed: findByIdempotencyKey). Raises NoSuchRecord."""
        once = self.once(principal)
        found = once.find(key=key, limit=2)
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
        """Close a record by decision, with evidence. Raises NoSuchRecord, OperationInProgress, AlreadySettled."""
        record = self.record(principal, key)
        self.once(principal).resolve(record.key.operation, key, answer, by=by, reason=reason)
        return self.record(principal, key)

    def close(self) -> None:
        """Stop the heartbeats and give the portal's connections back. The store is closed with them."""
        for once in self._onces.values():
            once.close()
        self._store.close()
        self._portal.close()
