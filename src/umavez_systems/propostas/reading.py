"""Reading clientes and propostas: who asks, and what is shown to whom."""

from __future__ import annotations

from dataclasses import dataclass

from umavez_systems.database import Connection, Database, Row
from umavez_systems.principals import LOCAL, scoped_key
from umavez_systems.propostas import database as tables
from umavez_systems.propostas.domain import Cliente, IdempotenciaKey, Proposta, documento_unico, email_unico
from umavez_systems.propostas.refusals import not_found


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


class Reading:
    """The use cases that change nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def _current(self, connection: Connection, principal: str, number: int) -> Proposta:
        row = tables.find_proposta(connection, number)
        if row is None:
            raise not_found("proposta", number)
        return tables.proposta_of(row, unscoped(row["idempotencia_key"], principal))

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
            return self._cliente(connection, principal, number)

    def _cliente(self, connection: Connection, principal: str, number: int) -> Cliente:
        row = tables.find_cliente(connection, number)
        if row is None:
            raise not_found("cliente", number)
        return tables.cliente_of(row, unscoped(row["idempotencia_key"], principal))

    def clientes(
        self, principal: str, after: int, limit: int, email: str | None = None, documento: str | None = None
    ) -> list[Cliente]:
        """A page of clientes, by id; with an e-mail or a document only who has it, however it is written."""
        filters = {
            "email_unico": None if email is None else email_unico(email),
            "documento_unico": None if documento is None else documento_unico(documento) or "",
        }
        with self._database.statements() as connection:
            rows = tables.page(connection, "clientes", filters, after, limit)
        return [tables.cliente_of(row, unscoped(row["idempotencia_key"], principal)) for row in rows]

    def proposta(self, principal: str, number: int) -> Proposta:
        """One proposta. Raises a 404 problem."""
        with self._database.statements() as connection:
            return self._current(connection, principal, number)

    def propostas(
        self, principal: str, after: int, limit: int, estado: str | None = None, cliente_id: int | None = None
    ) -> list[Proposta]:
        """A page of propostas, by id; only those in `estado` and of `cliente_id`, where they are given."""
        filters = {"estado": estado, "cliente_id": cliente_id}
        with self._database.statements() as connection:
            rows = tables.page(connection, "propostas", filters, after, limit)
        return [tables.proposta_of(row, unscoped(row["idempotencia_key"], principal)) for row in rows]

    def history(self, number: int) -> list[Row]:
        """Who changed a proposta, when, and how. Raises a 404 problem."""
        with self._database.statements() as connection:
            if tables.find_proposta(connection, number) is None:
                raise not_found("proposta", number)
            return connection.rows(tables.HISTORY, (number,))

    def cliente_history(self, number: int) -> list[Row]:
        """Who changed a cliente, when, and what. Raises a 404 problem."""
        with self._database.statements() as connection:
            if tables.find_cliente(connection, number) is None:
                raise not_found("cliente", number)
            return connection.rows(tables.CLIENTE_HISTORY, (number,))


def unscoped(column: str | None, principal: str) -> str | None:
    """A stored key as `principal` may see it: its own as it was sent, another's not at all."""
    if column is None or principal == LOCAL:
        return column
    return column.removeprefix(f"{principal}:") if column.startswith(f"{principal}:") else None
