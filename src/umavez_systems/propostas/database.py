"""The tables of clientes and propostas: every statement the system sends, on SQLite and PostgreSQL alike."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from umavez_systems.database import Connection, Database, Row
from umavez_systems.propostas.domain import Cliente, Estado, Proposta, documento_unico, email_unico

_CLIENTE = "id, nome, email, documento, versao, idempotencia_key, impressao"
_PROPOSTA = "id, cliente_id, valor_centavos, estado, versao, validade, idempotencia_key, impressao"
SOME = 500
"""Rows that one transaction of a clean-up takes."""

CLIENTE_BY_KEY = f"SELECT {_CLIENTE} FROM clientes WHERE idempotencia_key = ?"
CLIENTE_BY_EMAIL = "SELECT id FROM clientes WHERE email_unico = ?"
CLIENTE_BY_ID = f"SELECT {_CLIENTE} FROM clientes WHERE id = ?"
_NEW_CLIENTE = (
    "INSERT INTO clientes (nome, email, documento, documento_valido, idempotencia_key, impressao, email_unico,"
    " documento_unico)"
)
INSERT_CLIENTE = (
    f"{_NEW_CLIENTE} VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (idempotencia_key) DO NOTHING RETURNING {_CLIENTE}"
)
# Looks for the key first and inserts only when nobody has it: a replay takes no number from the ids' sequence.
FIND_OR_INSERT_CLIENTE = (
    f"WITH found AS (SELECT {_CLIENTE} FROM clientes WHERE idempotencia_key = ?),"
    f" made AS ({_NEW_CLIENTE} SELECT ?, ?, ?, ?, ?, ?, ?, ? WHERE NOT EXISTS (SELECT FROM found)"
    f" ON CONFLICT (idempotencia_key) DO NOTHING RETURNING {_CLIENTE})"
    f" SELECT {_CLIENTE}, false AS made FROM found UNION ALL SELECT {_CLIENTE}, true AS made FROM made"
)
PROPOSTA_BY_KEY = f"SELECT {_PROPOSTA} FROM propostas WHERE idempotencia_key = ?"
PROPOSTA_BY_ID = f"SELECT {_PROPOSTA} FROM propostas WHERE id = ?"
# The version stands in the WHERE: the database decides, not what was read before.
CHANGE_CLIENTE = (
    "UPDATE clientes SET nome = ?, email = ?, documento = ?, documento_valido = ?, email_unico = ?,"
    f" documento_unico = ?, versao = versao + 1 WHERE id = ? AND versao = ? RETURNING {_CLIENTE}"
)
INSERT_CLIENTE_HISTORY = (
    "INSERT INTO clientes_historico (cliente_id, operacao, versao, usuario, mudancas, idempotencia_key)"
    " VALUES (?, ?, ?, ?, ?, ?)"
)
CLIENTE_HISTORY = (
    "SELECT operacao, versao, usuario, mudancas, created_at FROM clientes_historico WHERE cliente_id = ? ORDER BY id"
)
OPERATION = "SELECT entidade_id, impressao FROM idempotencia_operacoes WHERE idempotencia_key = ? AND tipo_operacao = ?"
# The version and the state stand in the WHERE: the database decides, not what was read before.
CHANGE_STATE = (
    "UPDATE propostas SET estado = ?, versao = versao + 1 WHERE id = ? AND versao = ? AND estado = ?"
    f" RETURNING {_PROPOSTA}"
)
INSERT_HISTORY = (
    "INSERT INTO propostas_historico (proposta_id, operacao, de, para, versao, usuario, motivo, idempotencia_key)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
HISTORY = (
    "SELECT operacao, de, para, versao, usuario, motivo, created_at FROM propostas_historico"
    " WHERE proposta_id = ? ORDER BY id"
)


class Dialect:
    """What differs: PostgreSQL looks for a key and inserts in one round trip, SQLite has none to save."""

    def __init__(self, database: Database) -> None:
        sqlite = database.url.startswith("sqlite")
        self._at_once = not sqlite

        valor = "valor_centavos" if sqlite else "valor"
        cents = "?" if sqlite else "CAST(? AS NUMERIC) / 100"
        self.insert_proposta = (
            f"INSERT INTO propostas (cliente_id, {valor}, validade, estado, versao, idempotencia_key, impressao)"
            f" VALUES (?, {cents}, ?, 'rascunho', 1, ?, ?) ON CONFLICT (idempotencia_key) DO NOTHING"
            f" RETURNING {_PROPOSTA}"
        )
        self.change_draft = (
            f"UPDATE propostas SET cliente_id = ?, {valor} = {cents}, validade = ?, versao = versao + 1"
            f" WHERE id = ? AND versao = ? AND estado = 'rascunho' RETURNING {_PROPOSTA}"
        )
        later = "datetime('now', ? || ' seconds')" if sqlite else "CURRENT_TIMESTAMP + ? * interval '1 second'"
        self.insert_operation = (
            "INSERT INTO idempotencia_operacoes (idempotencia_key, tipo_operacao, entidade_id, resultado, impressao,"
            f" expires_at) VALUES (?, ?, ?, ?, ?, {later})"
        )
        some = f"ORDER BY id LIMIT {SOME}{'' if sqlite else ' FOR UPDATE SKIP LOCKED'}"
        expired = f"SELECT id FROM idempotencia_operacoes WHERE expires_at <= CURRENT_TIMESTAMP {some}"
        self.delete_expired = f"DELETE FROM idempotencia_operacoes WHERE id IN ({expired}) RETURNING id"

    def find_or_insert_cliente(
        self, connection: Connection, key: str | None, values: tuple[Any, ...]
    ) -> tuple[Row | None, bool]:
        """The row of `key`, and whether it was made just now. No row: a rival with the same key was faster."""
        if key is None:
            return connection.row(INSERT_CLIENTE, values), True
        if self._at_once:
            row = connection.row(FIND_OR_INSERT_CLIENTE, (key, *values))
            return row, row is not None and row["made"]
        found = connection.row(CLIENTE_BY_KEY, (key,))
        return (found, False) if found is not None else (connection.row(INSERT_CLIENTE, values), True)


def cliente_of(row: Row, key: str | None) -> Cliente:
    """The cliente in `row`; `key` is the client's own key, without what scopes it."""
    return Cliente(row["id"], row["nome"], row["email"], row["documento"], row["versao"], key)


def proposta_of(row: Row, key: str | None) -> Proposta:
    """The proposta in `row`; its value is counted in centavos on both databases."""
    valor = Decimal(row["valor_centavos"]).scaleb(-2)
    day = row["validade"]
    validade = date.fromisoformat(day) if isinstance(day, str) else day
    return Proposta(row["id"], row["cliente_id"], valor, Estado(row["estado"]), row["versao"], validade, key)


def centavos(valor: Decimal) -> int:
    """A value as SQL counts it."""
    return int(valor.scaleb(2))


def unicos(email: str, documento: str | None) -> tuple[str, str | None]:
    """What the UNIQUE columns hold."""
    return email_unico(email), documento_unico(documento)


def page(connection: Connection, table: str, filters: dict[str, Any], after: int, limit: int) -> list[Row]:
    """A page by id of the rows that have all these values. Names of columns are the program's own words."""
    columns = {"clientes": _CLIENTE, "propostas": _PROPOSTA}[table]
    given = {name: value for name, value in filters.items() if value is not None}
    where = "".join(f" AND {name} = ?" for name in given)
    sql = f"SELECT {columns} FROM {table} WHERE id > ?{where} ORDER BY id LIMIT ?"  # as said
    return connection.rows(sql, (after, *given.values(), limit))


def find_cliente(connection: Connection, number: int) -> Row | None:
    """One cliente's row."""
    return connection.row(CLIENTE_BY_ID, (number,))


def find_proposta(connection: Connection, number: int) -> Row | None:
    """One proposta's row."""
    return connection.row(PROPOSTA_BY_ID, (number,))
