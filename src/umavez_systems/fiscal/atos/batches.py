"""Batches: up to fifty documents of São Paulo in one message, each with a key, a claim, a proof and an end of its own.

What is stored, claimed and about to leave is one commit, what was answered another. A batch is never sent again: where
its answer was lost, one question by the keys of all tells which notes are there, and each of the others goes on by
itself, as if it had been sent alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from umavez import Attempt
from umavez_systems.database import Connection, Duplicate, Row
from umavez_systems.fiscal.atos.claims import Reserva, encerrar
from umavez_systems.fiscal.atos.steps import Conclusao, Contexto, Veredito
from umavez_systems.fiscal.domain import Acao, Pedido, Tipo
from umavez_systems.fiscal.ports import AutoridadeDeLotes, AutoridadeError, NadaEnviado, Resposta, SemResposta
from umavez_systems.fiscal.rules.identifiers import invalid
from umavez_systems.fiscal.rules.orders import MOST_IN_BATCH, Conteudo, conteudo
from umavez_systems.principals import scoped_key
from umavez_systems.problems import Problem

if TYPE_CHECKING:
    from umavez_systems.fiscal.cases import Caller, Fiscal, Resultado


@dataclass(slots=True)
class Levado:
    """One document on its way in a batch."""

    contexto: Contexto
    attempt: Attempt
    problema: AutoridadeError | None = None
    """Why it is still open."""


class Lotes:
    """Emits several documents at once."""

    def __init__(self, fiscal: Fiscal) -> None:
        self._fiscal = fiscal
        self._atos = fiscal.atos
        self._passo = fiscal.atos.emissao

    def emitir(self, pedidos: list[tuple[Caller, Pedido]], *, transacao: bool = False) -> list[Resultado]:
        """Emit each once per key, those that are new in one message. `transacao`: the city takes all of it or nothing.

        Raises 422 problems, after which nothing is stored. A document that was there is shown as it is now.
        """
        _refuse_unfit([order for _, order in pedidos])
        with ExitStack() as held:
            fresh, batch, message = self._stored(held, pedidos, transacao)
            if batch:
                self._carried(batch, message, transacao)
        for one in batch:
            if one.problema is not None:
                self._atos.planejar(Acao.EMITIR, one.contexto.org_id, one.contexto.ato.nome, one.problema)
        return [self._shown(caller, order, fresh.get(place)) for place, (caller, order) in enumerate(pedidos)]

    def _shown(self, caller: Caller, order: Pedido, fresh: str | None) -> Resultado:
        from umavez_systems.fiscal.cases import Resultado  # noqa: PLC0415  # it builds on this folder

        if fresh is None:
            return self._fiscal.emitir(caller, order)
        row = self._fiscal.documento(caller.principal, fresh)
        return Resultado(row, row["origem"])

    def _stored(
        self, held: ExitStack, pedidos: list[tuple[Caller, Pedido]], transacao: bool
    ) -> tuple[dict[int, str], list[Levado], bytes]:
        """Number, sign, store and claim those that are new, and note the message that will carry them: one commit.

        Their ids by place. Where a rival stores one of them first, those that are there are left out.
        """
        for last in (False, True):
            try:
                with ExitStack() as claims:
                    with self._fiscal.database.transaction() as connection:
                        fresh = self._registered(connection, pedidos)
                        batch, message = self._announced(claims, connection, list(fresh.values()), transacao)
                    held.push(claims.pop_all())
                    return {place: row["id"] for place, row in fresh.items()}, batch, message
            except Duplicate:
                if last:
                    detail = "Outra organização com o mesmo CNPJ já deu um destes números na série; use outra."
                    raise Problem(409, "serie-em-uso", "Série em uso", detail) from None
        return {}, [], b""

    def _registered(self, connection: Connection, pedidos: list[tuple[Caller, Pedido]]) -> dict[int, Row]:
        fresh = self._fresh(pedidos)
        if not fresh:
            return {}
        caller, order = pedidos[0]
        org_id = self._fiscal.organizacoes.apta(caller.principal, order.organizacao)["id"]
        series = [pedidos[place][1].serie for place in fresh]
        # All of them before anything is stored: a key that a rival stores is waited for with series in hand.
        self._atos.numeracao.reter(connection, org_id, order.tipo.modelo, series)
        registrar = self._fiscal.registrar
        return {
            place: registrar(connection, pedidos[place][0], org_id, pedidos[place][1], said, enviar=False)
            for place, said in fresh.items()
        }

    def _fresh(self, pedidos: list[tuple[Caller, Pedido]]) -> dict[int, Conteudo]:
        """The places of those whose key has no document yet, each with its content."""
        found: dict[int, Conteudo] = {}
        used: set[str] = set()
        for place, (caller, order) in enumerate(pedidos):
            column = None if caller.key is None else scoped_key(caller.principal, caller.key)
            said = conteudo(order)
            if column in used or self._fiscal.da_chave(column, said.impressao) is not None:
                continue
            found[place] = said
            used |= set() if column is None else {column}
        return found

    def _announced(
        self, claims: ExitStack, connection: Connection, rows: list[Row], transacao: bool
    ) -> tuple[list[Levado], bytes]:
        """Claim them and write down that they are about to leave in one message; nothing while silence is asked for."""
        if not rows or self._atos.governador.bloqueado(connection, rows[0]["org_id"]):
            return [], b""
        batch: list[Levado] = []
        for row in rows:
            attempt = self._claimed(claims, connection, row)
            if attempt is not None:
                context = self._passo.contexto(connection, row["org_id"], row["id_idempotencia"])
                batch.append(Levado(context, attempt))
        if not batch:
            return [], b""
        message = self._cidade(rows[0]["org_id"]).montar_lote([one.contexto.ato for one in batch], transacao=transacao)
        for one in batch:
            one.contexto.levado = message
            self._passo.antes(connection, one.contexto)
        return batch, message

    def _claimed(self, claims: ExitStack, connection: Connection, row: Row) -> Attempt | None:
        """A claim that lives until `claims` end; None where somebody else has it, who will carry it."""
        reserva = claims.enter_context(Reserva())
        self._atos.reservar(reserva, connection, Acao.EMITIR, row["org_id"], row["id_idempotencia"])
        attempt = reserva.attempt
        return None if attempt is None or attempt.replayed else attempt

    def _carried(self, batch: list[Levado], message: bytes, transacao: bool) -> None:
        """Send the message, once, and write what came of each document."""
        city = self._cidade(batch[0].contexto.org_id)
        for one in batch:
            self._atos.provar(one.attempt)
        try:
            answers = city.transmitir_lote([one.contexto.ato for one in batch], transacao=transacao, xml=message)
        except AutoridadeError as failed:
            self._failed(batch, failed)
        else:
            self._write(batch, answers, asked=False)
        silent = [one for one in batch if isinstance(one.problema, SemResposta)]
        if silent:
            self._ask(silent)
        for one in batch:
            if one.problema is not None:
                one.attempt.fail_quietly(one.problema)

    def _failed(self, batch: list[Levado], failed: AutoridadeError) -> None:
        """No answer at all: only what certainly never left is in no doubt."""
        error = failed if isinstance(failed, NadaEnviado) else SemResposta(str(failed), failed.bruto)
        with self._fiscal.database.transaction() as connection:
            for one in batch:
                self._passo.falhou(connection, one.contexto, error)
                one.problema = error

    def _ask(self, silent: list[Levado]) -> None:
        """One question about all whose answer was lost; each counts it against its own budget."""
        org_id = silent[0].contexto.org_id
        asked = [
            one for one in silent if not self._atos.governador.pedir(org_id, one.contexto.ato.nome, de_servico=True)
        ]
        if not asked:
            return
        try:
            answers = self._cidade(org_id).consultar_lote([one.contexto.ato for one in asked])
        except AutoridadeError:
            return  # each is asked about by itself, later
        self._write(asked, answers, asked=True)

    def _write(self, batch: list[Levado], answers: Sequence[Resposta | SemResposta], *, asked: bool) -> None:
        """Each answer with its decision, and the end of those that it decides: one commit."""
        with self._fiscal.database.transaction() as connection:
            for one, answer in zip(batch, answers, strict=True):
                if isinstance(answer, SemResposta):
                    self._passo.falhou(connection, one.contexto, answer)
                    one.problema = answer
                    continue
                write = self._passo.consultado if asked else self._passo.respondido
                one.problema = _open(write(connection, one.contexto, answer))
                if one.problema is None:
                    encerrar(one.attempt, connection, {"nome": one.contexto.ato.nome})

    def _cidade(self, org_id: str) -> AutoridadeDeLotes:
        return cast(AutoridadeDeLotes, self._fiscal.organizacoes.autoridade(org_id, Tipo.NFSE_SP))


def _open(concluded: Conclusao) -> AutoridadeError | None:
    return None if concluded.veredito is Veredito.FEITO else SemResposta(concluded.motivo)


def _refuse_unfit(orders: list[Pedido]) -> None:
    if not 1 <= len(orders) <= MOST_IN_BATCH:
        raise invalid(f"documentos: de 1 a {MOST_IN_BATCH} em um lote.")
    if any(order.tipo is not Tipo.NFSE_SP for order in orders):
        raise invalid("documentos: um lote é de NFSE_SP; os outros tipos vão um a um.")
    if len({order.organizacao for order in orders}) > 1:
        raise invalid("documentos: um lote é de uma organização só.")
