"""How an operation of this system runs through the engine: claimed, noted, proven, acted, settled; or asked about.

Whoever needs the payer's effect once goes through `Attempts.run`. An outcome that nobody knows is closed by asking the
payer, never by guessing.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from umavez import (
    Attempt,
    CannotTell,
    Codec,
    Event,
    Happened,
    NotHappened,
    Once,
    Outcome,
    Question,
    Record,
    Store,
    derived_key,
)
from umavez.failures import Phase, Trouble
from umavez.retry import Backoff, Retry
from umavez_systems.processos.domain import Glosa, invalid
from umavez_systems.processos.ports import NaoPagavel, PortalError, PortalInalcancavel, PortalOcupado, Recusado

LOG = logging.getLogger("umavez.systems.processos")
MAX_RETRIES = 3
LONGEST_INSTANCE, LONGEST_ACTIVITY = 64, 255
"""Characters of a process instance's id and of an activity's (seed 003)."""
ASKED_OFTEN = 1000
"""Retries of what changes nothing: workers that die over a question must not use it up."""

Value = dict[str, Any]
Asked = Callable[[str], Value | None]
"""Asks the payer, under the reference it was given, for what an operation would have returned; None: not there."""


class Look(NamedTuple):
    """How to ask the payer, and what to note before acting, so that somebody else can ask; no patient in it."""

    ask: Asked
    noted: list[str]


READING = Retry(
    Backoff(attempts=3, first=0.1, cap=1.0),
    deadline=5.0,
    classify=lambda error: Trouble(Phase.NEVER_SENT if isinstance(error, PortalError) else Phase.REFUSED),
)
"""Questions change nothing: they are asked again at once, without using up the operation's own retries."""


@dataclass(frozen=True, slots=True)
class Step:
    """Where an operation belongs. `begun`: an earlier worker may have run it, even if no record is left."""

    principal: str
    process_instance: str
    activity: str
    begun: bool = False

    def __post_init__(self) -> None:
        """Hold what the seed's columns hold, whoever asks. Raises a 422 problem."""
        if not 1 <= len(self.process_instance) <= LONGEST_INSTANCE:
            raise invalid(f"processInstanceId: informe um texto de 1 a {LONGEST_INSTANCE} caracteres.")
        if not 1 <= len(self.activity) <= LONGEST_ACTIVITY:
            raise invalid(f"activityId: informe um texto de 1 a {LONGEST_ACTIVITY} caracteres.")

    def key(self, operation: str, inputs: Value) -> str:
        """The idempotency key of an operation with these inputs."""
        return derived_key(self.process_instance, self.activity, operation, inputs)


@dataclass(frozen=True, slots=True)
class Terms:
    """How long claims last, results are kept, and silence must last before "not there" means "never happened".

    `turn`: after so many seconds an operation that asks the payer about many leaves the rest to its next attempt.
    """

    lease: float = 30.0
    keep: float = 24 * 3600.0
    quiet: float = 30.0
    turn: float = 10.0


@dataclass  # not frozen, hence without a hash: the engine must not keep plans that hold a patient's lote
class Asking:
    """What `unknown=` is: looks at the payer. "Not there" counts only once the request can no longer be on its way."""

    look: Asked
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


class Attempts:
    """Runs operations, each once per process instance, activity and input, for every principal apart."""

    def __init__(
        self,
        store: Store,
        *,
        codec: Codec | None = None,
        terms: Terms | None = None,
        observers: Iterable[Callable[[Event], None]] = (),
    ) -> None:
        self.store = store
        self.terms = terms or Terms()
        self._observers = tuple(observers)
        self._codec = codec
        self._quiet_ms = int(self.terms.quiet * 1000)
        self._onces: dict[str, Once] = {}
        self._lock = threading.Lock()

    def run(
        self,
        step: Step,
        operation: str,
        inputs: Value,
        look: Look | None,
        act: Callable[[str], Value],
        max_retries: int = MAX_RETRIES,
    ) -> Outcome[Value]:
        """Run `act` once; `look` asks whether it happened, and without one `act` changes nothing and may run again."""
        once = self.once(step.principal)
        key = step.key(operation, inputs)
        with once.attempt(
            operation,
            key=key,
            process_instance=step.process_instance,
            activity=step.activity,
            unknown="rerun" if look is None else self._asking(once, operation, key, look.ask),
            max_retries=max_retries,
            **self.policy,
        ) as attempt:
            if attempt.replayed:
                return Outcome(attempt.outcome, True, attempt.number, attempt.key)
            if attempt.number > 1:
                LOG.warning("Retry %d of %s in process %s", attempt.number - 1, operation, step.process_instance)
            referencia = attempt.downstream_key()
            # A step that was begun but has no record may have outlived it: then the payer is asked first.
            found = look.ask(referencia) if look is not None and step.begun and attempt.number == 1 else None
            if found is None:
                if look is not None:
                    attempt.checkpoint(look.noted)
                self._prove(attempt)
                found = act(referencia)
            return attempt.succeed(found)

    def _prove(self, attempt: Attempt) -> None:
        """Raise ClaimLost if the claim is no longer ours: a worker that was frozen meanwhile must not send."""
        if time.monotonic() - attempt.renewed_at > self.terms.lease / 3:
            attempt.renew()
        attempt.check()

    def _asking(self, once: Once, operation: str, key: str, look: Asked) -> Asking:
        name = once.plans.any(operation).key(key)
        return Asking(look, self._quiet_ms, lambda: once.store.read(name).now)

    def ask(self, question: Question, look: Asked) -> Happened | NotHappened | CannotTell:
        """What the payer says about a record that nobody repeats."""
        return Asking(look, self._quiet_ms, lambda: self.store.read(question.key).now)(question)

    @property
    def policy(self) -> Any:
        """What holds for every operation that acts at the payer, and for whoever asks about one."""
        free = (PortalOcupado, PortalInalcancavel, NaoPagavel, Recusado)
        return {"final": (Glosa,), "free": free, "keep": self.terms.keep, "lease": self.terms.lease}

    def once(self, principal: str) -> Once:
        """The engine for one principal's records; keys of different principals never meet."""
        with self._lock:
            if principal not in self._onces:
                self._onces[principal] = Once(self.store, scope=principal, codec=self._codec, observers=self._observers)
            return self._onces[principal]

    def refused(self, principal: str, operation: str, key: str) -> bool:
        """Whether a key's operation was refused for good: then it can never happen, and another may."""
        record = self.once(principal).get(operation, key)
        return record is not None and record.settled is not None and not record.settled.ok

    def close(self) -> None:
        """Stop the heartbeats. The store is closed with them."""
        for once in self._onces.values():
            once.close()
        self.store.close()
