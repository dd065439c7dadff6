"""Fiscal: what callers ask for. Stores what is wanted, has it carried out (operations.py), and shows what is known."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from umavez import AlreadySettled, NoSuchRecord, OperationInProgress
from umavez_systems.database import Connection, Database, Duplicate, Row
from umavez_systems.fiscal import database as tables
from umavez_systems.fiscal.atos.claims import Reserva
from umavez_systems.fiscal.atos.events import ABERTO
from umavez_systems.fiscal.atos.records import Cadeia, Conflito, Registro, resumo_de
from umavez_systems.fiscal.atos.steps import Contexto, Cumprido, Veredito, ato_da_linha
from umavez_systems.fiscal.domain import ABERTOS, Acao, Estado, Origem, Pedido, Tipo
from umavez_systems.fiscal.numbering import ChaveUsada
from umavez_systems.fiscal.operations import Atos
from umavez_systems.fiscal.organizations import Organizacoes, identidade
from umavez_systems.fiscal.ports import Ato, Montado, Numerado
from umavez_systems.fiscal.rules.deadlines import brasilia
from umavez_systems.fiscal.rules.identifiers import invalid, sortear_cnf
from umavez_systems.fiscal.rules.orders import Conteudo, conteudo
from umavez_systems.principals import scoped_key
from umavez_systems.problems import Problem

FINAL = frozenset(Estado) - ABERTOS - {Estado.CANCELAMENTO_PENDENTE}
_ID = re.compile(r"^[0-9a-f]{32}\Z", re.ASCII)
ENVIADOS = ("normal", "svc")
"""Modes in which a document is sent as soon as it is stored."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and under which key."""

    principal: str
    key: str | None = None
    usuario: str = ""

    @property
    def coluna(self) -> str | None:
        """The key as it is stored: whose it is stands in it."""
        return None if self.key is None else scoped_key(self.principal, self.key)


@dataclass(frozen=True, slots=True)
class Resultado:
    """A document as it is now, how the answer was found, and whether the call had been made before."""

    row: Row
    origem: str
    repetida: bool = False


class Fiscal:
    """Every use case, synchronous."""

    def __init__(
        self, database: Database, organizacoes: Organizacoes, atos: Atos, modo_svc: Callable[[str], str]
    ) -> None:
        self.database = database
        self.organizacoes = organizacoes
        self.atos = atos
        self._dialect = tables.Dialect(database)
        self._modo_svc = modo_svc

    def emitir(self, caller: Caller, pedido: Pedido) -> Resultado:
        """Emit once per key: numbered, signed and stored first, then sent. A repeat shows the document as it is now."""
        with Reserva() as reserva:
            return self._emitted(caller, pedido, reserva)

    def _emitted(self, caller: Caller, pedido: Pedido, reserva: Reserva) -> Resultado:
        row, repeated = self._registered(caller, pedido, conteudo(pedido), reserva)
        if row["estado"] in FINAL:
            return Resultado(row, Origem.CACHE if repeated else row["origem"], repeated)
        if repeated and self.atos.adiado(Acao.EMITIR, row["org_id"], row["id_idempotencia"], row["proximo_em"]):
            return Resultado(row, row["origem"], True)
        if pedido.modo == "epec" and row["epec_em"] is None:
            self._carry_epec(row)
        elif pedido.modo != "offline" or repeated:
            return self._carried(caller, row, repeated, reserva)
        row = self.documento(caller.principal, row["id"])
        return Resultado(row, row["origem"], repeated)

    def _carried(self, caller: Caller, row: Row, repeated: bool, reserva: Reserva) -> Resultado:
        written = None
        if not repeated:
            noted, now = row["enviado_em"] is not None, row["criado_em"]
            known = {**row, "agora": now} if self._dialect.one_statement else None
            written = Contexto(row["org_id"], ato_da_linha(row), row["id"], anotado=noted, conhecida=known)
        done = self.atos.cumprir(Acao.EMITIR, row["org_id"], row["id_idempotencia"], written, reserva)
        if done is Cumprido.ABERTO or written is None or written.linha is None:
            row = self.documento(caller.principal, row["id"])
        else:
            row = written.linha
        found = Origem.CACHE if repeated and done is Cumprido.REPETIDO else row["origem"]
        return Resultado(row, found, repeated)

    def _registered(self, caller: Caller, pedido: Pedido, said: Conteudo, reserva: Reserva) -> tuple[Row, bool]:
        """The key's document: there already, or made now. UNIQUE decides between two at once, and no number is lost."""
        try:
            return self._made(caller, pedido, said, reserva), False
        except (Duplicate, Problem) as error:
            # Whatever stands in the way of a new document: where the key has one, that is the answer.
            found = self.da_chave(caller.coluna, said.impressao)
            if found is not None:
                return found, True
            if isinstance(error, Problem):
                raise
            detail = f"Outra organização com o mesmo CNPJ já deu este número na série {pedido.serie}; use outra."
            raise Problem(409, "serie-em-uso", "Série em uso", detail) from None

    def _made(self, caller: Caller, pedido: Pedido, said: Conteudo, reserva: Reserva) -> Row:
        """A new document, claimed in the same transaction where it is sent next. Raises Duplicate for a used key."""
        svc = pedido.modo == "svc"
        if (svc or not self._dialect.one_statement) and self.da_chave(caller.coluna, said.impressao) is not None:
            raise ChaveUsada(caller.key or "")
        org_id = self.organizacoes.apta(caller.principal, pedido.organizacao)["id"]
        if svc:
            self._refuse_closed(org_id, self._tp_emis(pedido, org_id))
        # Left without an error where the key is used: a rollback would cost what the connection has prepared.
        with self.database.transaction() as connection, suppress(ChaveUsada):
            row = self.registrar(connection, caller, org_id, pedido, said)
            if row["enviado_em"] is not None:
                self.atos.reservar(reserva, connection, Acao.EMITIR, org_id, row["id_idempotencia"])
            return row
        raise ChaveUsada(caller.key or "")

    def da_chave(self, column: str | None, mark: str) -> Row | None:
        """The document of an idempotency key. Raises a 422 problem where the key was used for another content."""
        if column is None:
            return None
        with self.database.statements() as connection:
            row = connection.row(tables.DOCUMENT_BY_KEY, (column,))
        if row is not None and row["impressao"] != mark:
            raise Problem(
                422,
                "chave-reutilizada",
                "Chave de idempotência já usada",
                "Esta chave foi usada antes com outro conteúdo; repita o conteúdo original ou use uma chave nova.",
            )
        return row

    def registrar(
        self,
        connection: Connection,
        caller: Caller,
        org_id: str,
        pedido: Pedido,
        said: Conteudo,
        *,
        enviar: bool = True,
    ) -> Row:
        """Take a number, fix everything the bytes are made from, sign, and store. All of it or nothing.

        Stored as TRANSMITIDO where it is sent next (seed 004 §3.3): without a claim of the engine nothing has left.
        """
        authority = self.organizacoes.autoridade(org_id, pedido.tipo)
        series = (org_id, pedido.tipo.modelo, pedido.serie)
        number, now, quiet = self.atos.numeracao.dado(connection, *series, caller.coluna)
        sent = enviar and pedido.modo in ENVIADOS and not quiet
        moment = brasilia(now)
        mode = self._tp_emis(pedido, org_id)
        late = moment if mode != "1" else None
        made = authority.montar(Numerado(pedido, number, sortear_cnf(number), moment, mode, late))
        chain = Cadeia(uuid.uuid4().hex, now)
        wanted = {"pedido": said.impressao, "numero": number, "serie": pedido.serie, "usuario": caller.usuario}
        chain.anotar("intencao", {**wanted, "id_idempotencia": made.id_idempotencia, "chave": made.chave})
        chain.anotar("bytes", {"sha256": resumo_de(made.xml), "digVal": made.digest, "bytes": len(made.xml)})
        if sent:
            chain.anotar("envio", {"sha256": resumo_de(made.xml), "tentativa": 1})
            chain.anotar("estado", {"de": Estado.RASCUNHO.value, "para": Estado.TRANSMITIDO.value})
        act = None if pedido.modo != "epec" else authority.montar_epec(_ato(pedido.tipo, mode, made), moment)
        if act is not None:
            chain.anotar("bytes", {"acao": act.acao.value, "id": act.nome, "sha256": resumo_de(act.xml)})
        values = self._values(caller, org_id, pedido, said, number, mode, made, chain, sent)
        row = tables.insert_document(connection, values, chain.colhidas(), at_once=self._dialect.one_statement)
        if act is not None:
            self._store_act(connection, org_id, row["id"], act, now)
        return row

    def _values(
        self,
        caller: Caller,
        org_id: str,
        pedido: Pedido,
        said: Conteudo,
        number: int,
        mode: str,
        made: Montado,
        chain: Cadeia,
        sent: bool,
    ) -> tuple[Any, ...]:
        # An organisation's environment stands in its natural key: the simulator and homologation share nothing.
        place = self.organizacoes.linha(caller.principal, pedido.organizacao)["ambiente"]
        now = chain.agora
        soon = now + int(self.atos.termos.settle * 1000)
        kind = pedido.tipo
        head = (chain.documento, org_id, caller.principal, caller.coluna, said.impressao, kind.value, kind.modelo)
        names = (made.id_idempotencia, f"{place}_{made.natural}", made.chave)
        first = Estado.TRANSMITIDO if sent else Estado.RASCUNHO
        state = (first.value, 1, Origem.EMISSAO.value, said.texto, made.total, made.xml, made.digest)
        answer = (None, None, None, None, int(sent))
        times = (now, now if sent else None, None, None, None, soon, None)
        proof = (chain.sequencia, chain.resumo, now, now, None)
        return (*head, pedido.serie, number, mode, *names, *state, *answer, *times, *proof)

    def _tp_emis(self, pedido: Pedido, org_id: str) -> str:
        if pedido.modo != "svc":
            return {"normal": "1", "offline": "9", "epec": "4"}[pedido.modo]
        with self.database.statements() as connection:
            row = connection.row(tables.ORGANISATION, (org_id,))
        return self._modo_svc("" if row is None else row["uf"])

    def _refuse_closed(self, org_id: str, mode: str) -> None:
        """Enter contingency only where its own status says that it is open. Raises a 503 problem, no number taken."""
        why = self.atos.parado(org_id, mode)
        if why is not None:
            detail = f"A contingência não está aberta: {why} Nenhum número foi usado; tente em três minutos."
            raise Problem(503, "contingencia-fechada", "Contingência fechada", detail)

    def _carry_epec(self, row: Row) -> None:
        for act in self.atos_de(row["id"]):
            if act["acao"] == Acao.EPEC.value:
                self.atos.cumprir(Acao.EPEC, row["org_id"], act["nome"])

    def documento(self, principal: str, number: str) -> Row:
        """One document. Raises a 404 problem, also for another principal's."""
        row = None
        if _ID.match(number):
            with self.database.statements() as connection:
                row = connection.row(tables.DOCUMENT, (number,))
        if row is None or row["principal"] != principal:
            raise Problem(404, "nao-encontrado", "Documento não encontrado", "Não há documento com este id.")
        return row

    def documentos(
        self, principal: str, *, organizacao: str | None, estado: str | None, antes: str | None, limite: int
    ) -> list[Row]:
        """Documents, newest first; `antes` is where a page ended, as `pagina` tells."""
        org_id = None if organizacao is None else identidade(principal, organizacao)
        with self.database.statements() as connection:
            before = None if antes is None else (int(antes.partition("-")[0]), antes.partition("-")[2])
            return tables.documents(connection, principal, org_id=org_id, estado=estado, before=before, limit=limite)

    def atos_de(self, number: str) -> list[Row]:
        """The acts about a document."""
        with self.database.statements() as connection:
            return connection.rows(tables.ACTS_OF, (number,))

    def cancelar(
        self, caller: Caller, number: str, justificativa: str, versao: int, substituta: str | None = None
    ) -> Resultado:
        """Cancel once (seed 004 §8.1): from cache if done, pending before sending, then CANCELADO or back.

        `substituta`: the key of the NFC-e that took its place, where the first was sent and its answer lost.
        """
        row = self.documento(caller.principal, number)
        if row["estado"] == Estado.CANCELADO:
            return Resultado(row, Origem.CACHE, True)
        act = self._cancellation(row, justificativa, versao, substituta)
        if act is None:  # somebody else's came first, between our look and our lock
            return Resultado(self.documento(caller.principal, number), Origem.CACHE, True)
        done = self.atos.cumprir(Acao.CANCELAR, row["org_id"], act["nome"])
        if done is Cumprido.ABERTO:
            self._revert(row["org_id"], act["nome"])
        row = self.documento(caller.principal, number)
        if row["estado"] == Estado.AUTORIZADO:
            raise self._not_cancelled(row, act["nome"])
        return Resultado(row, row["origem"])

    def _cancellation(self, seen: Row, justificativa: str, versao: int, substituta: str | None) -> Row | None:
        """The stored cancellation, the document pending; None when it is cancelled. Raises 409 and 422 problems."""
        with self.database.transaction() as connection:
            row = self._held(connection, seen["id"])
            record = Registro(connection, row)
            if record.estado is Estado.CANCELADO:
                return None
            if record.estado not in (Estado.AUTORIZADO, Estado.CANCELAMENTO_PENDENTE):
                detail = f"Documento em estado {record.estado} não pode ser cancelado."
                raise Problem(409, "transicao-invalida", "Estado não permite", detail, estado=record.estado.value)
            acts = (act for act in connection.rows(tables.ACTS_OF, (row["id"],)) if act["acao"] == "cancelar")
            pending = next((act for act in acts if act["estado"] in ABERTO), None)
            if record.estado is Estado.CANCELAMENTO_PENDENTE and pending is not None:
                return pending
            if row["versao"] != versao:
                raise Conflito(row["versao"])
            authority = self.organizacoes.autoridade(row["org_id"], Tipo(row["tipo"]))
            said = (row["protocolo"] or "", justificativa, brasilia(record.agora), substituta)
            made = self._asked(connection, record, authority.montar_cancelamento(ato_da_linha(row), *said))
            record.passar(Estado.CANCELAMENTO_PENDENTE)
            record.gravar()
            return made

    def _asked(self, connection: Connection, record: Registro, ato: Ato) -> Row:
        """The cancellation as it is asked for now: what was refused before may have been refused for what it said."""
        org_id, soon = record.row["org_id"], record.agora + int(self.atos.termos.settle * 1000)
        record.cadeia.anotar("bytes", {"acao": "cancelar", "id": ato.nome, "sha256": resumo_de(ato.xml)})
        act = self._dialect.locked_act(connection, org_id, ato.nome)
        if act is None:
            return self._store_act(connection, org_id, record.row["id"], ato, record.agora)
        again = {"estado": "PENDENTE", "xml": ato.xml, "texto": ato.texto or "", "proximo_em": soon}
        tables.change_act(connection, act, again)
        self.atos.reabrir(connection, Acao.CANCELAR, org_id, ato.nome)
        return act

    def _revert(self, org_id: str, nome: str) -> None:
        """After a failed cancellation: ask, and only a proof that nothing was registered brings AUTORIZADO back."""
        found = self.atos.perguntar(Acao.CANCELAR, org_id, nome)
        if found.veredito is not Veredito.NAO_FEITO:
            return
        try:
            self.atos.largar(Acao.CANCELAR, org_id, nome, "a consulta mostra a nota sem o evento")
        except NoSuchRecord:
            pass
        except (OperationInProgress, AlreadySettled):
            return  # somebody else is at it
        step = self.atos.cancelamento
        with self.database.transaction() as connection:
            context = step.contexto(connection, org_id, nome)
            step.desistir(connection, context, int(self.atos.termos.first * 1000))

    def _not_cancelled(self, row: Row, nome: str) -> Problem:
        with self.database.statements() as connection:
            act = connection.row(tables.ACT, (row["org_id"], nome))
        if act is not None and act["estado"] == "RECUSADO":
            said = f"A autoridade recusou o cancelamento: {act['codigo']} {act['motivo']}"
            more = {"codigo": act["codigo"], "estado": row["estado"], "versao": row["versao"]}
            return Problem(422, "cancelamento-recusado", "Cancelamento recusado", said[:500], **more)
        detail = "A autoridade não respondeu e a consulta mostra a nota ainda autorizada; repita o cancelamento."
        return Problem(503, "cancelamento-falhou", "Cancelamento não registrado", detail, versao=row["versao"])

    def corrigir(self, caller: Caller, number: str, text: str) -> tuple[Row, bool]:
        """Send a correction letter; the same text is the same letter. The act's row and whether it was there."""
        row = self.documento(caller.principal, number)
        with self.database.transaction() as connection:
            row = self._held(connection, row["id"])
            letters = [act for act in connection.rows(tables.ACTS_OF, (row["id"],)) if act["acao"] == "corrigir"]
            act = next((one for one in letters if one["texto"] == text and one["estado"] != "RECUSADO"), None)
            there = act is not None
            if act is None:
                act = self._letter(connection, row, text, letters)
        self.atos.cumprir(Acao.CORRIGIR, row["org_id"], act["nome"])
        with self.database.statements() as connection:
            return connection.row(tables.ACT, (row["org_id"], act["nome"])) or act, there

    def _letter(self, connection: Connection, row: Row, text: str, letters: list[Row]) -> Row:
        if row["estado"] != Estado.AUTORIZADO:
            detail = f"Documento em estado {row['estado']} não recebe carta de correção."
            raise Problem(409, "transicao-invalida", "Estado não permite", detail, estado=row["estado"])
        if any(letter["estado"] in ("PENDENTE", "RECUSA") for letter in letters):
            detail = "Outra carta desta nota ainda não tem resposta; espere por ela."
            raise Problem(409, "carta-pendente", "Carta de correção pendente", detail)
        sequence = max((letter["sequencia"] for letter in letters), default=0) + 1
        if sequence > 20:
            raise Problem(409, "cartas-demais", "Cartas de correção demais", "Uma nota aceita até 20 cartas.")
        record = Registro(connection, row)
        authority = self.organizacoes.autoridade(row["org_id"], Tipo(row["tipo"]))
        ato = authority.montar_correcao(ato_da_linha(row), text, sequence, brasilia(record.agora))
        record.cadeia.anotar("bytes", {"acao": "corrigir", "id": ato.nome, "sha256": resumo_de(ato.xml)})
        made = self._store_act(connection, row["org_id"], row["id"], ato, record.agora)
        record.gravar()
        return made

    def _held(self, connection: Connection, number: str) -> Row:
        row = self._dialect.locked(connection, number)
        if row is None:
            raise Problem(404, "nao-encontrado", "Documento não encontrado", "Não há documento com este id.")
        return row

    def _store_act(self, connection: Connection, org_id: str, document: str | None, ato: Ato, now: int) -> Row:
        soon = now + int(self.atos.termos.settle * 1000)
        head = (org_id, ato.nome, ato.acao.value, document, "PENDENTE", ato.xml, ato.texto or "", ato.sequencia)
        row = connection.row(tables.INSERT_ACT, (*head, ato.tipo.value, None, None, None, None, None, None, soon, now))
        if row is None:
            raise invalid("O pedido não pôde ser guardado.")
        return row

    def conciliar(self, caller: Caller, number: str) -> Resultado:
        """Ask the authority about a document now, and adopt what it says; what it does not have is sent again."""
        row = self.documento(caller.principal, number)
        if row["estado"] in ABERTOS:
            self.atos.cumprir(Acao.EMITIR, row["org_id"], row["id_idempotencia"])
        elif row["estado"] == Estado.CANCELAMENTO_PENDENTE:
            for act in self.atos_de(row["id"]):
                if act["acao"] == Acao.CANCELAR.value:
                    self.atos.cumprir(Acao.CANCELAR, row["org_id"], act["nome"])
        else:
            self.atos.perguntar(Acao.EMITIR, row["org_id"], row["id_idempotencia"])
        row = self.documento(caller.principal, number)
        return Resultado(row, row["origem"])


def _ato(tipo: Tipo, mode: str, made: Montado) -> Ato:
    return Ato(Acao.EMITIR, made.id_idempotencia, made.xml, tipo, mode, made.chave, made.digest)
