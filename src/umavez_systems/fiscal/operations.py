"""The use cases of fiscal documents: the only file of the system that calls the engine.

One flow for every act: what is wanted is stored with its signed bytes; one worker at a time, holding the engine's
claim, writes that it is about to send, sends those bytes, and writes what came back. An outcome that nobody knows is
closed by asking the authority, by whoever meets it first: the caller's repeat, another worker, the reconciler.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from umavez import (
    Attempt,
    CannotTell,
    ClaimLost,
    Happened,
    MaxRetriesExceeded,
    NoSuchRecord,
    NotHappened,
    Once,
    OperationInProgress,
    OutcomeUnknown,
    Question,
    Status,
    StoreUnavailable,
)
from umavez import reconcile as engine
from umavez.retry import Retry
from umavez_systems.database import Connection, Database
from umavez_systems.fiscal import database as tables
from umavez_systems.fiscal.atos.claims import Reserva, encerrar
from umavez_systems.fiscal.atos.emission import Emissao
from umavez_systems.fiscal.atos.events import Cancelamento, Correcao, Epec
from umavez_systems.fiscal.atos.governor import STATUS, Governador, Limites
from umavez_systems.fiscal.atos.records import Conflito
from umavez_systems.fiscal.atos.steps import BLOQUEIO, PARADA, Conclusao, Contexto, Cumprido, Passo, Regras, Veredito
from umavez_systems.fiscal.atos.voiding import Inutilizacao
from umavez_systems.fiscal.domain import Acao, Desfecho
from umavez_systems.fiscal.numbering import Numeracao
from umavez_systems.fiscal.organizations import Organizacoes
from umavez_systems.fiscal.ports import Ato, AutoridadeError, NadaEnviado, Ocupada, Recusada, Resposta, SemResposta
from umavez_systems.fiscal.rules.catalogue import MANUAL, catalogo
from umavez_systems.fiscal.rules.retrying import BACKOFF, trouble_of

LOG = logging.getLogger("umavez.systems.fiscal")
Answer = Happened | NotHappened | CannotTell
OPEN = (AutoridadeError, OutcomeUnknown, OperationInProgress, MaxRetriesExceeded, ClaimLost)
"""Ways in which an act may stay open; its state tells the caller, and somebody will look again."""
UNBOUNDED = 1_000_000
"""No bound for a whole life, neither of attempts nor of questions: after a long outage it would leave an act open for
ever, with nobody to carry it. What leaves this machine is bounded by the hour instead (governor.py)."""
PERGUNTA = 120.0
"""Seconds that one question of the reconciler may take: São Paulo's goes through the pages of a period."""


class Parado(AutoridadeError):
    """The bytes must not be sent any more: the act was decided or withdrawn meanwhile."""


@dataclass(frozen=True, slots=True)
class Termos:
    """How long claims last and outcomes are kept, how patient a caller is, how soon and often the reconciler asks."""

    lease: float = 30.0
    keep: float = 30 * 24 * 3600.0
    patience: float = 90.0
    settle: float = 10.0
    first: float = 30.0
    cap: float = 600.0
    """Five questions while the pauses double, then one in ten minutes: nine in the first hour, of the ten there are.
    Longer, and the right to cancel would end while nobody asks."""
    quarentena: float = 60.0
    """How long a document must stay absent before it is sent again where that could destroy the first."""
    conferir: float = 120.0
    """After how long a decided document is looked at once more where one that arrives twice destroys the first."""
    wait: float = 5.0
    """How long a caller waits for whoever is carrying the same act."""

    def pausa(self, attempts: int) -> float:
        """Seconds until an open act is looked at again, after so many tries."""
        return max(self.settle, min(self.first * (1 << min(attempts, 20)), self.cap))


class Atos:
    """Carries acts to their authority, each once."""

    def __init__(
        self,
        once: Once,
        database: Database,
        organizacoes: Organizacoes,
        *,
        perfil: str = MANUAL,
        termos: Termos | None = None,
        limites: Limites | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.termos = termos or Termos()
        self.governador = Governador(database, limites)
        self._once = once
        self._database = database
        self._organizacoes = organizacoes
        self._sleep = sleep
        self._catalogo = catalogo(perfil)
        self._paradas: dict[tuple[str, str], str] = {}
        dialect, rules = tables.Dialect(database), Regras(self._catalogo, self.termos.quarentena, self.termos.conferir)
        self.numeracao = Numeracao(dialect)
        self.emissao, self.cancelamento = Emissao(dialect, rules), Cancelamento(dialect, rules)
        steps: tuple[Passo, ...] = (
            self.emissao,
            self.cancelamento,
            Correcao(dialect, rules),
            Epec(dialect, rules),
            Inutilizacao(dialect, rules, self.numeracao.anular),
        )
        self._passos: dict[str, Passo] = {operation(step.acao): step for step in steps}
        for name in self._passos:
            self._declare(name)

    def _declare(self, name: str) -> None:
        options: dict[str, Any] = {
            "unknown": self._about,
            "free": (NadaEnviado, Ocupada, Recusada, Parado),
            "lease": self.termos.lease,
            "keep": self.termos.keep,
            "wait": self.termos.wait,
            "max_retries": UNBOUNDED,
            "fingerprint": None,
        }
        self._once.operation(name, key=lambda nome: nome, **options)(_declared)

    def reservar(self, reserva: Reserva, connection: Connection, acao: Acao, org_id: str, nome: str) -> None:
        """Claim an act in the transaction that stores it, to be carried after the commit; not where somebody has it."""
        with suppress(*OPEN):
            where = {"scope": org_id, "connection": connection.raw}
            reserva.fazer(self._once.attempt(operation(acao), key=nome, **where))

    def cumprir(
        self, acao: Acao, org_id: str, nome: str, contexto: Contexto | None = None, reserva: Reserva | None = None
    ) -> Cumprido:
        """Carry a stored act to the authority unless that is done.

        `contexto`: the act as whoever stored it a moment ago knows it, used where nobody has had it in hand since.
        Raises only what is no answer of the authority: problems and StoreError.
        """
        name = operation(acao)
        self._organizacoes.autoridade(org_id)  # opened before anything is claimed: a certificate may not open
        made = reserva is not None and reserva.feita
        try:
            with reserva.usada() if reserva and made else self._once.attempt(name, key=nome, scope=org_id) as attempt:
                if attempt.replayed:
                    return Cumprido.REPETIDO
                self._carry(self._passos[name], attempt, contexto if attempt.number == 1 else None)
                if not attempt.done:
                    attempt.succeed({"nome": nome})
        except OPEN as trouble:
            LOG.info("%s %s stays open: %s", name, nome, trouble)
            self.planejar(acao, org_id, nome, trouble)
            return Cumprido.ABERTO
        return Cumprido.FEITO

    def _carry(self, step: Passo, attempt: Attempt, context: Contexto | None) -> None:
        """Send until there is an answer, asking between two sends. Raises how the last one failed."""
        if context is None:
            with self._database.statements() as connection:
                context = step.contexto(connection, attempt.key.scope, attempt.key.value)
        trying = Retry(BACKOFF, classify=trouble_of, deadline=self.termos.patience, sleep=self._sleep)
        trying.run(lambda: self._send(step, context, attempt), ask=lambda: self._ask(step, context))

    def _send(self, step: Passo, context: Contexto, attempt: Attempt) -> None:
        """One send with its writings. Returns when the act is over; raises how it failed."""
        noted, context.anotado = context.anotado, False
        known, context.conhecida = context.conhecida, None
        began = time.monotonic()
        if not noted:
            self._refuse_blocked(context.org_id)
            if not self._announced(step, context):
                return
        self.provar(attempt)
        try:
            answer = self._organizacoes.autoridade(context.org_id, context.ato.tipo).transmitir(context.ato)
        except AutoridadeError as failed:
            error = _doubted(context.ato, failed)
            with self._database.transaction() as connection:
                step.falhou(connection, context, error)
                if isinstance(error, NadaEnviado | Ocupada) and not noted:
                    self.governador.devolver_envio(connection, context.org_id, context.ato.nome)
            raise error from failed
        if noted and known is not None:
            late = round((time.monotonic() - began) * 1000)
            context.conhecida = {**known, "agora": known["agora"] + late}
        self._conclude(context, self._answered(step, context, answer, attempt))

    def _answered(self, step: Passo, context: Contexto, answer: Resposta, attempt: Attempt) -> Conclusao:
        """Write the answer down, and that the attempt is over where it decides; where both cannot be, the answer.

        Over the row as it is known, or over the row as it is where that has changed.
        """
        ending: Attempt | None = attempt
        try:
            return self._written(step, context, answer, ending)
        except Conflito:
            context.conhecida = None
        except StoreUnavailable:
            ending = None
        return self._written(step, context, answer, ending)

    def _written(self, step: Passo, context: Contexto, answer: Resposta, attempt: Attempt | None) -> Conclusao:
        with self._database.transaction() as connection:
            concluded = step.respondido(connection, context, answer)
            if attempt is not None and concluded.veredito is Veredito.FEITO:
                encerrar(attempt, connection, {"nome": context.ato.nome})
        return concluded

    def _announced(self, step: Passo, context: Contexto) -> bool:
        """Write down that the bytes are about to leave; False when the act is over. Raises Parado and Ocupada."""
        with self._database.transaction() as connection:
            before = step.antes(connection, context)
            if before is Veredito.FEITO:
                return False
            if before is Veredito.ESPERAR:
                raise Parado("O pedido não pode mais ser enviado.")
            wait = self.governador.repetir(connection, context.org_id, context.ato.nome)
            if wait:
                raise Ocupada("Este pedido já foi enviado vezes demais; fica para mais tarde.", wait / 1000)
        return True

    def provar(self, attempt: Attempt) -> None:
        """Raise ClaimLost if the claim is no longer ours: a worker that was frozen meanwhile must not send."""
        if time.monotonic() - attempt.renewed_at > self.termos.lease / 3:
            attempt.renew()
        attempt.check()

    def _conclude(self, context: Contexto, concluded: Conclusao) -> None:
        if concluded.bloqueia:
            self.governador.bloquear(context.org_id)
        if concluded.veredito is Veredito.ESPERAR:
            raise Ocupada(concluded.motivo, concluded.espera)
        if concluded.veredito is not Veredito.FEITO:
            raise SemResposta(concluded.motivo)

    def _refuse_blocked(self, org_id: str) -> None:
        with self._database.statements() as connection:
            blocked = self.governador.bloqueado(connection, org_id)
        if blocked:
            raise Ocupada("A autoridade pediu silêncio a este contribuinte (656).", blocked / 1000)

    def _about(self, question: Question) -> Answer:
        """The engine's question about an attempt that ended without an answer."""
        step = self._passos[question.key.operation]
        with self._database.transaction() as connection:
            context = step.contexto(connection, question.key.scope, question.key.value)
        known = self._known(step, context)
        if known.veredito is Veredito.FEITO:
            return Happened({"nome": question.key.value})
        if known.veredito is Veredito.NAO_FEITO:
            return NotHappened()
        asked = (question.record.evidence or "").count('"cannot tell"')
        pause = max(self.termos.pausa(asked), known.espera)
        with self._database.transaction() as connection:
            step.marcar(connection, context, int(pause * 1000))
        return CannotTell(known.motivo)

    def _ask(self, step: Passo, context: Contexto) -> Answer:
        """The question between two sends."""
        known = self._known(step, context)
        match known.veredito:
            case Veredito.FEITO:
                return Happened(None)
            case Veredito.NAO_FEITO:
                return NotHappened()
            case _:
                return CannotTell(known.motivo)

    def _known(self, step: Passo, context: Contexto) -> Conclusao:
        """What our books know, and only where they do not, what the authority says; within the budget."""
        with self._database.transaction() as connection:
            known = step.sabido(connection, context)
        return self._consulted(step, context) if known is None else known

    def _consulted(self, step: Passo, context: Contexto) -> Conclusao:
        about = context.ato.chave or context.ato.nome
        wait = self.governador.pedir(context.org_id, about, de_servico=context.ato.tipo.de_servico)
        if wait:
            said = f"O orçamento de consultas acabou; pergunte em {wait / 1000:.0f} s."
            return Conclusao(Veredito.NAO_SEI, said, wait / 1000)
        try:
            answer = self._organizacoes.autoridade(context.org_id, context.ato.tipo).consultar(context.ato)
        except AutoridadeError as error:
            if isinstance(error, NadaEnviado):
                self.governador.devolver(context.org_id, about)
            return Conclusao(Veredito.NAO_SEI, str(error), error.retry_after if isinstance(error, Ocupada) else 0.0)
        with self._database.transaction() as connection:
            concluded = step.consultado(connection, context, answer)
        if concluded.bloqueia:
            self.governador.bloquear(context.org_id)
        return concluded

    def perguntar(self, acao: Acao, org_id: str, nome: str) -> Conclusao:
        """Ask the authority now, whatever our books say, and adopt what it answers."""
        step = self._passos[operation(acao)]
        with self._database.transaction() as connection:
            context = step.contexto(connection, org_id, nome)
        return self._consulted(step, context)

    def parado(self, org_id: str, tp_emis: str) -> str | None:
        """Why the authoriser of a mode takes nothing now, by its own status; None when it does, or none may ask yet."""
        place = (org_id, tp_emis)
        if self.governador.pedir(org_id, f"{STATUS} {tp_emis}"):
            return self._paradas.get(place)
        try:
            answer = self._organizacoes.autoridade(org_id).situacao(tp_emis)
        except AutoridadeError as error:
            self._paradas[place] = str(error)
        else:
            rule = self._catalogo.regra("sefaz", "status", answer.codigo)
            self._paradas.pop(place, None)
            if rule.desfecho is not Desfecho.SERVICO_ATIVO:
                self._paradas[place] = f"{answer.codigo} {answer.motivo}"[:300]
        return self._paradas.get(place)

    def largar(self, acao: Acao, org_id: str, nome: str, reason: str) -> None:
        """Free an act whose outcome was found out: the next caller may send it again."""
        self._once.release(operation(acao), nome, by="fiscal", reason=reason, scope=org_id)

    def reabrir(self, connection: Connection, acao: Acao, org_id: str, nome: str) -> None:
        """Free an act that was over and is asked for anew, in the transaction that opens it again: its bytes bear the
        same name, and a settled record would be replayed in place of sending them. Raises OperationInProgress."""
        why = {"by": "fiscal", "reason": "pedido de novo depois de encerrado", "scope": org_id}
        with suppress(NoSuchRecord):
            self._once.release(operation(acao), nome, **why, override=True, connection=connection.raw)

    def planejar(self, acao: Acao, org_id: str, nome: str, trouble: Exception) -> None:
        """Write down when an open act will be looked at again, by what stopped it."""
        if isinstance(trouble, OutcomeUnknown):
            return  # whoever asked has planned the next question
        name = operation(acao)
        step = self._passos[name]
        record = self._once.get(name, nome, scope=org_id)
        pause = self.termos.pausa(0 if record is None else record.attempt - 1)
        wish = trouble.retry_after if isinstance(trouble, Ocupada | SemResposta) else None
        if isinstance(trouble, NadaEnviado):
            pause = min(pause, PARADA)  # costs the authority nothing
        elif wish is not None:
            pause = max(self.termos.settle, min(wish, BLOQUEIO))
        with self._database.transaction() as connection:
            context = step.contexto(connection, org_id, nome)
            step.marcar(connection, context, int(pause * 1000))
            if wish is not None:
                self.governador.adiar(connection, org_id, nome, int(pause * 1000))

    def conciliar(self, budget: int = 100) -> engine.Report:
        """One pass of the engine's reconciler over every act whose outcome nobody knows."""
        terms = self.termos
        pace = engine.Pace(first=terms.first, cap=terms.cap, settle=terms.settle, max_asks=UNBOUNDED)
        return engine.Reconciler(self._once, pace=pace, budget=budget, patience=PERGUNTA).run()

    def adiado(self, acao: Acao, org_id: str, nome: str, proximo_em: int | None) -> bool:
        """Whether the next question about an unknown outcome is planned for later: a caller's repeats must not use
        the budget up, nor tire the reconciler."""
        if proximo_em is None:
            return False
        with self._database.statements() as connection:
            now, _ = self.governador.agora(connection, org_id)
        if proximo_em <= now:
            return False
        record = self._once.get(operation(acao), nome, scope=org_id)
        return record is not None and record.status is Status.UNKNOWN

    def em_duvida(self, acao: Acao, org_id: str, nome: str) -> bool:
        """Whether an act is being carried, or waits for the reconciler's question."""
        record = self._once.get(operation(acao), nome, scope=org_id)
        return record is not None and record.status in (Status.PENDING, Status.UNKNOWN)


def operation(acao: Acao) -> str:
    """How the engine names an act."""
    return f"fiscal_{acao.value}"


def _doubted(ato: Ato, error: AutoridadeError) -> AutoridadeError:
    """`error`, but in doubt where sending again destroys the first document: there only what certainly never left this
    machine is safe, for a gateway may say "not now" or "no" about what the city has already taken."""
    if ato.acao is not Acao.EMITIR or not ato.tipo.reenvio_destroi or not isinstance(error, Ocupada | Recusada):
        return error
    wish = error.retry_after if isinstance(error, Ocupada) else None
    return SemResposta(str(error), error.bruto, wish)


def _declared(nome: str) -> None:
    """Stands for an act's code where it is declared; `Atos.cumprir` brings the code."""
