"""The tables of clientes and propostas: every statement the system sends, on SQLite and PostgreSQL alike."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from umavez_systems.database import Connection, Database, Row
from umavez_systems.propostas.domain import Cliente, Estado, Proposta

_CLIENTE = "id, nome, email, documento, idempotencia_key, impressao"
_PROPOSTA = "id, cliente_id, valor, estado, versao, idempotencia_key, impressao"

CLIENTE_BY_KEY = f"SELECT {_CLIENTE} FROM clientes WHERE idempotencia_key = ?"
CLIENTE_BY_ID = f"SELECT {_CLIENTE} FROM clientes WHERE id = ?"
CLIENTES = f"SELECT {_CLIENTE} FROM clientes WHERE id > ? ORDER BY id LIMIT ?"
_NEW_CLIENTE = "INSERT INTO clientes (nome, email, documento, documento_valido, idempotencia_key, impressao)"
INSERT_CLIENTE = (
    f"{_NEW_CLIENTE} VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (idempotencia_key) DO NOTHING RETURNING {_CLIENTE}"
)
# Looks for the key first and inserts only when nobody has it: a replay takes no number from the ids' sequence.
FIND_OR_INSERT_CLIENTE = (
    f"WITH found AS (SELECT {_CLIENTE} FROM clientes WHERE idempotencia_key = ?),"
    f" made AS ({_NEW_CLIENTE} SELECT ?, ?, ?, ?, ?, ? WHERE NOT EXISTS (SELECT FROM found)"
    f" ON CONFLICT (idempotencia_key) DO NOTHING RETURNING {_CLIENTE})"
    f" SELECT {_CLIENTE}, false AS made FROM found UNION ALL SELECT {_CLIENTE}, true AS made FROM made"
)
PROPOSTA_BY_KEY = f"SELECT {_PROPOSTA} FROM propostas WHERE idempotencia_key = ?"
PROPOSTA_BY_ID = f"SELECT {_PROPOSTA} FROM propostas WHERE id = ?"
PROPOSTAS = f"SELECT {_PROPOSTA} FROM propostas WHERE id > ? ORDER BY id LIMIT ?"
INSERT_PROPOSTA = (
    "INSERT INTO propostas (cliente_id, valor, estado, versao, idempotencia_key, impressao)"
    f" VALUES (?, ?, 'rascunho', 1, ?, ?) ON CONFLICT (idempotencia_key) DO NOTHING RETURNING {_PROPOSTA}"
)
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
        self._at_once = not database.url.startswith("sqlite")

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
    return Cliente(row["id"], row["nome"], row["email"], row["documento"], key)


def proposta_of(row: Row, key: str | None) -> Proposta:
    """The proposta in `row`; SQLite keeps the value as exact text."""
    return Proposta(row["id"], row["cliente_id"], Decimal(row["valor"]), Estado(row["estado"]), row["versao"], key)


def find_cliente(connection: Connection, number: int) -> Row | None:
    """One cliente's row."""
    return connection.row(CLIENTE_BY_ID, (number,))


def find_proposta(connection: Connection, number: int) -> Row | None:
    """One proposta's row."""
    return connection.row(PROPOSTA_BY_ID, (number,))
