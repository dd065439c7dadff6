"""The use cases of clientes and propostas: the only file of the system that calls the engine.

Creation carries its key on its own row: UNIQUE decides, and the row is the record. Changes of state join the
engine's record to their own transaction: record, change and audit trail commit together or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from umavez import Once, fingerprint
from umavez_systems.database import Connection, Database, Duplicate, Row
from umavez_systems.documentos import valid_document
from umavez_systems.principals import LOCAL, scoped_key
from umavez_systems.problems import Problem
from umavez_systems.propostas import database as tables
from umavez_systems.propostas.domain import ACOES, Acao, Cliente, Estado, IdempotenciaKey, Proposta, valor_exato

ACTIVITY = "propostas"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, under which key, and how strictly a repeated key is compared with its first content."""

    principal: str
    key: IdempotenciaKey | None
    usuario: str
    strict: bool = False

    @property
    def column(self) -> str | None:
        """The key as it stands in the row."""
        return None if self.key is None else scoped_key(self.principal, self.key.valor)

    @property
    def shown(self) -> str | None:
        """The key as the caller sent it."""
        return None if self.key is None else self.key.valor


class Propostas:
    """Every use case, synchronous, each in one transaction."""

    def __init__(self, once: Once, database: Database, keep_seconds: float) -> None:
        self._once = once
        self._database = database
        self._dialect = tables.Dialect(database)
        self._keep = keep_seconds

    def create_cliente(self, caller: Caller, nome: str, email: str, documento: str | None) -> tuple[Cliente, bool]:
        """A new cliente, or the one this key made before. The key is looked up before every other rule."""
        mark = fingerprint({"nome": nome, "email": email, "documento": documento})
        valid = None if documento is None else valid_document(documento)
        with self._database.statements() as connection:
            if caller.strict and valid is False:
                row = self._made_before(connection, tables.CLIENTE_BY_KEY, caller, mark)
                return tables.cliente_of(_documented(row), caller.shown), True
            values = (nome, email, documento, valid, caller.column, mark)
            row, made = self._found_or_inserted(connection, values, caller)
            if row is None:
                row, made = _there(connection.row(tables.CLIENTE_BY_KEY, (caller.column,))), False
        if not made:
            _refuse_other_content(row, caller, mark)
        return tables.cliente_of(row, caller.shown), not made

    def _found_or_inserted(
        self, connection: Connection, values: tuple[Any, ...], caller: Caller
    ) -> tuple[Row | None, bool]:
        """The key's row and whether it is new; no row when a rival with the same key was faster."""
        try:
            return self._dialect.find_or_insert_cliente(connection, caller.column, values)
        except Duplicate as error:
            # The rival may have this very key: then its row is ours, whatever else it collides with.
            if caller.key is not None and (row := connection.row(tables.CLIENTE_BY_KEY, (caller.column,))):
                return row, False
            raise Problem(409, "email-em-uso", "E-mail em uso", "Já existe um cliente com este e-mail.") from error

    def create_proposta(self, caller: Caller, cliente_id: int, valor: object) -> tuple[Proposta, bool]:
        """A new proposta in rascunho, or the one this key made before, with its current state."""
        mark = fingerprint({"cliente_id": cliente_id, "valor": valor})
        with self._database.statements() as connection:
            row = self._made_before(connection, tables.PROPOSTA_BY_KEY, caller, mark)
            if row is not None:
                return tables.proposta_of(row, caller.shown), True
        exato = valor_exato(valor)
        with self._database.transaction() as connection:
            if tables.find_cliente(connection, cliente_id) is None:
                raise Problem(422, "cliente-inexistente", "Cliente inexistente", f"Não há cliente {cliente_id}.")
            made = connection.row(tables.INSERT_PROPOSTA, (cliente_id, str(exato), caller.column, mark))
            if made is None:
                row = _there(self._made_before(connection, tables.PROPOSTA_BY_KEY, caller, mark))
                return tables.proposta_of(row, caller.shown), True
            self._note(connection, made["id"], "criar_proposta", None, Estado.RASCUNHO, 1, caller, None)
            return tables.proposta_of(made, caller.shown), False

    def change(self, caller: Caller, name: str, number: int, versao: int, motivo: str | None) -> tuple[Proposta, bool]:
        """Carry out an action on a proposta once per key. A repeat gives the proposta as it is now."""
        action = ACOES[name]
        with self._database.transaction() as connection:
            if caller.key is None:
                return self._changed(connection, caller, action, number, versao, motivo), False
            meaning = {"proposta": number, **({"versao": versao, "motivo": motivo} if caller.strict else {})}
            with self._once.joined(
                connection.raw,
                action.operacao,
                key=caller.key.valor,
                scope=caller.principal,
                fingerprint=meaning,
                activity=ACTIVITY,
                keep=self._keep,
            ) as attempt:
                if attempt.replayed:
                    return self._current(connection, attempt.outcome["id"]), True
                proposta = self._changed(connection, caller, action, number, versao, motivo)
                attempt.succeed({**proposta.shown(), "valor": str(proposta.valor)})
            return proposta, False

    def _changed(
        self, connection: Connection, caller: Caller, action: Acao, number: int, versao: int, motivo: str | None
    ) -> Proposta:
        current = self._current(connection, number)
        if current.versao != versao:
            raise _stale(current)
        if current.estado not in action.de:
            raise Problem(
                409,
                "transicao-invalida",
                "Transição não permitida",
                f"A proposta está {current.estado.value} e não pode passar a {action.para.value}.",
                estado=current.estado.value,
                versao=current.versao,
            )
        row = connection.row(tables.CHANGE_STATE, (action.para.value, number, versao, current.estado.value))
        if row is None:
            # Changed between the look and the update, by somebody who committed meanwhile.
            raise _stale(self._current(connection, number))
        self._note(connection, number, action.operacao, current.estado, action.para, row["versao"], caller, motivo)
        return tables.proposta_of(row, unscoped(row["idempotencia_key"], caller.principal))

    def _note(
        self,
        connection: Connection,
        number: int,
        operation: str,
        de: Estado | None,
        para: Estado,
        versao: int,
        caller: Caller,
        motivo: str | None,
    ) -> None:
        before = None if de is None else de.value
        values = (number, operation, before, para.value, versao, caller.usuario, motivo, caller.column)
        connection.rows(tables.INSERT_HISTORY, values)

    def _made_before(self, connection: Connection, sql: str, caller: Caller, mark: str) -> Row | None:
        """The row this key made, if any. Raises a 422 problem when the strict rule finds other content."""
        if caller.key is None:
            return None
        row = connection.row(sql, (caller.column,))
        if row is not None:
            _refuse_other_content(row, caller, mark)
        return row

    def _current(self, connection: Connection, number: int) -> Proposta:
        row = tables.find_proposta(connection, number)
        if row is None:
            raise not_found("proposta", number)
        return tables.proposta_of(row, row["idempotencia_key"])

    def cliente_of_key(self, caller: Caller) -> Cliente | None:
        """The cliente that the caller's key made, if it made one."""
        with self._database.statements() as connection:
            row = connection.row(tables.CLIENTE_BY_KEY, (caller.column,))
        return None if row is None else tables.cliente_of(row, caller.shown)

    def proposta_of_key(self, caller: Caller) -> Proposta | None:
        """The proposta that the caller's key made, if it made one."""
        with self._database.statements() as connection:
            row = connection.row(tables.PROPOSTA_BY_KEY, (caller.column,))
        return None if row is None else tables.proposta_of(row, caller.shown)

    def cliente(self, principal: str, number: int) -> Cliente:
        """One cliente. Raises a 404 problem."""
        with self._database.statements() as connection:
            row = tables.find_cliente(connection, number)
        if row is None:
            raise not_found("cliente", number)
        return tables.cliente_of(row, unscoped(row["idempotencia_key"], principal))

    def clientes(self, principal: str, after: int, limit: int) -> list[Cliente]:
        """A page of clientes, by id."""
        with self._database.statements() as connection:
            rows = connection.rows(tables.CLIENTES, (after, limit))
        return [tables.cliente_of(row, unscoped(row["idempotencia_key"], principal)) for row in rows]

    def proposta(self, principal: str, number: int) -> Proposta:
        """One proposta. Raises a 404 problem."""
        with self._database.statements() as connection:
            row = tables.find_proposta(connection, number)
        if row is None:
            raise not_found("proposta", number)
        return tables.proposta_of(row, unscoped(row["idempotencia_key"], principal))

    def propostas(self, principal: str, after: int, limit: int) -> list[Proposta]:
        """A page of propostas, by id."""
        with self._database.statements() as connection:
            rows = connection.rows(tables.PROPOSTAS, (after, limit))
        return [tables.proposta_of(row, unscoped(row["idempotencia_key"], principal)) for row in rows]

    def history(self, number: int) -> list[Row]:
        """Who changed a proposta, when, and how. Raises a 404 problem."""
        with self._database.statements() as connection:
            if tables.find_proposta(connection, number) is None:
                raise not_found("proposta", number)
            return connection.rows(tables.HISTORY, (number,))


def unscoped(column: str | None, principal: str) -> str | None:
    """A stored key as `principal` may see it: its own as it was sent, another's not at all."""
    if column is None or principal == LOCAL:
        return column
    return column.removeprefix(f"{principal}:") if column.startswith(f"{principal}:") else None


def not_found(what: str, number: int) -> Problem:
    """The 404 of an unknown id."""
    return Problem(404, f"{what}-inexistente", f"{what.capitalize()} inexistente", f"Não há {what} {number}.")


def _stale(current: Proposta) -> Problem:
    return Problem(
        409,
        "versao-desatualizada",
        "Versão desatualizada",
        f"A versão atual é {current.versao}; releia a proposta e tente de novo.",
        versao=current.versao,
        estado=current.estado.value,
    )


def _refuse_other_content(row: Row, caller: Caller, mark: str) -> None:
    """Raise a 422 problem when a strict caller's key made this row of other content."""
    if caller.strict and row["impressao"] != mark:
        raise Problem(
            422,
            "chave-reutilizada",
            "Chave de idempotência já usada",
            "Esta chave foi usada antes com outro conteúdo; repita o conteúdo original ou use uma chave nova.",
        )


def _documented(row: Row | None) -> Row:
    """The row that was there before; a new one is not made with a document whose digits are wrong."""
    if row is None:
        raise Problem(422, "documento-invalido", "Documento inválido", "Os dígitos do CPF/CNPJ não conferem.")
    return row


def _there(row: Row | None) -> Row:
    if row is None:
        raise Problem(503, "indisponivel", "Tente de novo", "O registro mudou durante a leitura; tente de novo.")
    return row
