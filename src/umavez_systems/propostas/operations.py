"""The use cases of clientes and propostas: the only file of the system that calls the engine.

Creation carries its key on its own row: UNIQUE decides, and the row is the record. Every change joins the engine's
record to its own transaction: record, row in idempotencia_operacoes, change and audit trail commit together or not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from umavez import Once, fingerprint
from umavez_systems.database import Connection, Database, Duplicate, Row
from umavez_systems.documentos import valid_document
from umavez_systems.propostas import database as tables
from umavez_systems.propostas.domain import (
    ACOES,
    ALTERAR_CLIENTE,
    ALTERAR_PROPOSTA,
    Acao,
    Cliente,
    Estado,
    Proposta,
    data_de_validade,
    hoje,
    valor_exato,
)
from umavez_systems.propostas.reading import Caller, Reading, unscoped
from umavez_systems.propostas.refusals import (
    bad_document,
    in_use,
    moved,
    not_allowed,
    reused,
    stale,
    unknown_cliente,
)

ACTIVITY = "propostas"
E = TypeVar("E", Cliente, Proposta)


class Propostas(Reading):
    """Every use case, synchronous, each in one transaction."""

    def __init__(self, once: Once, database: Database, keep_seconds: float) -> None:
        super().__init__(database)
        self._once = once
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
            values = (nome, email, documento, valid, caller.column, mark, *tables.unicos(email, documento))
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
            # Both may be another's: then the e-mail is told, on every database.
            taken = connection.row(tables.CLIENTE_BY_EMAIL, (values[6],))
            raise in_use("email_unico" if taken else error.constraint) from error

    def create_proposta(
        self, caller: Caller, cliente_id: int, valor: object, validade: str | None = None
    ) -> tuple[Proposta, bool]:
        """A new proposta in rascunho, or the one this key made before, with its current state."""
        said = {"cliente_id": cliente_id, "valor": valor}
        mark = fingerprint(said if validade is None else {**said, "validade": validade})
        with self._database.statements() as connection:
            row = self._made_before(connection, tables.PROPOSTA_BY_KEY, caller, mark)
            if row is not None:
                return tables.proposta_of(row, caller.shown), True
        exato = tables.centavos(valor_exato(valor))
        dia = None if validade is None else data_de_validade(validade).isoformat()
        with self._database.transaction() as connection:
            _refuse_unknown(connection, cliente_id)
            made = connection.row(self._dialect.insert_proposta, (cliente_id, exato, dia, caller.column, mark))
            if made is None:
                row = _there(self._made_before(connection, tables.PROPOSTA_BY_KEY, caller, mark))
                return tables.proposta_of(row, caller.shown), True
            self._note(connection, made["id"], "criar_proposta", None, Estado.RASCUNHO, 1, caller, None)
            return tables.proposta_of(made, caller.shown), False

    def change(self, caller: Caller, name: str, number: int, versao: int, motivo: str | None) -> tuple[Proposta, bool]:
        """Carry out an action on a proposta once per key. A repeat gives the proposta as it is now."""
        action = ACOES[name]
        mark = fingerprint({"proposta": number, "versao": versao, "motivo": motivo})
        with self._database.transaction() as connection:
            return self._once_per_key(
                connection,
                caller,
                (action.operacao, {"proposta": number}, mark),
                lambda: self._changed(connection, caller, action, number, versao, motivo),
                lambda known: self._current(connection, caller.principal, known),
            )

    def edit_proposta(
        self, caller: Caller, number: int, versao: int, changes: dict[str, Any], motivo: str | None
    ) -> tuple[Proposta, bool]:
        """Change a proposta that is still in rascunho, once per key. A repeat gives the proposta as it is now."""
        mark = fingerprint({"proposta": number, "versao": versao, "motivo": motivo, **changes})
        with self._database.transaction() as connection:
            return self._once_per_key(
                connection,
                caller,
                (ALTERAR_PROPOSTA, {"proposta": number}, mark),
                lambda: self._edited(connection, caller, number, versao, changes, motivo),
                lambda known: self._current(connection, caller.principal, known),
            )

    def edit_cliente(self, caller: Caller, number: int, versao: int, changes: dict[str, Any]) -> tuple[Cliente, bool]:
        """Change a cliente, once per key. A repeat gives the cliente as it is now."""
        mark = fingerprint({"cliente": number, "versao": versao, **changes})
        with self._database.transaction() as connection:
            return self._once_per_key(
                connection,
                caller,
                (ALTERAR_CLIENTE, {"cliente": number}, mark),
                lambda: self._edited_cliente(connection, caller, number, versao, changes),
                lambda known: self._cliente(connection, caller.principal, known),
            )

    def _once_per_key(
        self,
        connection: Connection,
        caller: Caller,
        operation: tuple[str, dict[str, int], str],
        run: Callable[[], E],
        current: Callable[[int], E],
    ) -> tuple[E, bool]:
        """What `run` makes, or what it made before under this key, as it is now."""
        if caller.key is None:
            return run(), False
        name, meaning, mark = operation
        with self._once.joined(
            connection.raw,
            name,
            key=caller.key.valor,
            scope=caller.principal,
            fingerprint=meaning,
            activity=ACTIVITY,
            keep=self._keep,
            wait=self._database.timeout,
        ) as attempt:
            known = attempt.outcome if attempt.replayed else self._known(connection, caller, name, meaning)
            if known is not None:
                _refuse_other_content(known, caller, mark)
                if not attempt.replayed:
                    attempt.succeed(known)
                return current(known["id"]), True
            entity = run()
            told = entity.snapshot()
            values = (caller.column, name, entity.id, json.dumps(told, ensure_ascii=False), mark, self._keep)
            connection.rows(self._dialect.insert_operation, values)
            attempt.succeed({**told, "impressao": mark})
        return entity, False

    def _known(
        self, connection: Connection, caller: Caller, name: str, meaning: dict[str, int]
    ) -> dict[str, Any] | None:
        """What idempotencia_operacoes remembers of a key. Raises a 422 problem when it was of another entity."""
        row = connection.row(tables.OPERATION, (caller.column, name))
        if row is None:
            return None
        if row["entidade_id"] not in meaning.values():
            raise reused()
        return {"id": row["entidade_id"], "impressao": row["impressao"]}

    def proposta_of_operation(self, caller: Caller, operacao: str, number: int) -> Proposta | None:
        """The proposta that the caller's key has changed before, as it is now, if it has."""
        with self._database.statements() as connection:
            known = self._known(connection, caller, operacao, {"proposta": number})
            return None if known is None else self._current(connection, caller.principal, known["id"])

    def cliente_of_operation(self, caller: Caller, number: int) -> Cliente | None:
        """The cliente that the caller's key has changed before, as it is now, if it has."""
        with self._database.statements() as connection:
            known = self._known(connection, caller, ALTERAR_CLIENTE, {"cliente": number})
            return None if known is None else self._cliente(connection, caller.principal, known["id"])

    def _edited(
        self,
        connection: Connection,
        caller: Caller,
        number: int,
        versao: int,
        changes: dict[str, Any],
        motivo: str | None,
    ) -> Proposta:
        current = self._current(connection, caller.principal, number)
        if current.versao != versao:
            raise stale(current)
        if current.estado is not Estado.RASCUNHO:
            raise not_allowed(current, "só um rascunho pode ser alterado")
        cliente = changes.get("cliente_id", current.cliente_id)
        _refuse_unknown(connection, cliente)
        valor = valor_exato(changes["valor"]) if "valor" in changes else current.valor
        dia = current.validade
        if "validade" in changes:
            dia = None if changes["validade"] is None else data_de_validade(changes["validade"])
        values = (cliente, tables.centavos(valor), None if dia is None else dia.isoformat(), number, versao)
        row = connection.row(self._dialect.change_draft, values)
        if row is None:
            raise stale(self._current(connection, caller.principal, number))
        draft = Estado.RASCUNHO
        self._note(connection, number, ALTERAR_PROPOSTA, draft, draft, row["versao"], caller, motivo)
        return tables.proposta_of(row, unscoped(row["idempotencia_key"], caller.principal))

    def _edited_cliente(
        self, connection: Connection, caller: Caller, number: int, versao: int, changes: dict[str, Any]
    ) -> Cliente:
        before = self._cliente(connection, caller.principal, number)
        if before.versao != versao:
            raise stale(before)
        after = {"nome": before.nome, "email": before.email, "documento": before.documento, **changes}
        documento = after["documento"]
        valid = None if documento is None else valid_document(documento)
        if caller.strict and valid is False:
            raise bad_document()
        unicos = tables.unicos(after["email"], documento)
        try:
            values = (after["nome"], after["email"], documento, valid, *unicos, number, versao)
            row = connection.row(tables.CHANGE_CLIENTE, values)
        except Duplicate as error:
            raise in_use(error.constraint) from error
        if row is None:
            raise stale(self._cliente(connection, caller.principal, number))
        told = {name: [getattr(before, name), new] for name, new in after.items() if getattr(before, name) != new}
        text = json.dumps(told, ensure_ascii=False)
        note = (number, ALTERAR_CLIENTE, row["versao"], caller.usuario, text, caller.column)
        connection.rows(tables.INSERT_CLIENTE_HISTORY, note)
        return tables.cliente_of(row, unscoped(row["idempotencia_key"], caller.principal))

    def _changed(
        self, connection: Connection, caller: Caller, action: Acao, number: int, versao: int, motivo: str | None
    ) -> Proposta:
        current = self._current(connection, caller.principal, number)
        if current.versao != versao:
            raise stale(current)
        if current.estado not in action.de:
            raise not_allowed(current, f"não pode passar a {action.para.value}")
        if action.para in (Estado.ENVIADA, Estado.ACEITA) and current.validade and current.validade < hoje():
            raise not_allowed(current, f"venceu em {current.validade.isoformat()}")
        row = connection.row(tables.CHANGE_STATE, (action.para.value, number, versao, current.estado.value))
        if row is None:
            # Changed between the look and the update, by somebody who committed meanwhile.
            raise stale(self._current(connection, caller.principal, number))
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

    def sweep(self) -> int:
        """Remove the rows of idempotencia_operacoes whose time is over; returns how many."""
        total, gone = 0, tables.SOME
        while gone == tables.SOME:
            with self._database.transaction() as connection:
                gone = len(connection.rows(self._dialect.delete_expired))
            total += gone
        return total


def _refuse_unknown(connection: Connection, cliente_id: int) -> None:
    if tables.find_cliente(connection, cliente_id) is None:
        raise unknown_cliente(cliente_id)


def _refuse_other_content(known: dict[str, Any], caller: Caller, mark: str) -> None:
    """Raise a 422 problem when a strict caller's key was used with other content. What has no mark is not judged."""
    if caller.strict and known.get("impressao") not in (None, mark):
        raise reused()


def _documented(row: Row | None) -> Row:
    """The row that was there before; a new one is not made with a document whose digits are wrong."""
    if row is None:
        raise bad_document()
    return row


def _there(row: Row | None) -> Row:
    if row is None:
        raise moved()
    return row
