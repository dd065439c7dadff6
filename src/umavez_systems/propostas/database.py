"""The tables of clientes and propostas: every statement the system sends, on SQLite and PostgreSQL alike."""

from __future__ import annotations

from decimal import Decimal

from umavez_systems.database import Connection, Row
from umavez_systems.propostas.domain import Cliente, Estado, Proposta

_CLIENTE = "id, nome, email, documento, idempotencia_key, impressao"
_PROPOSTA = "id, cliente_id, valor, estado, versao, idempotencia_key, impressao"

CLIENTE_BY_KEY = f"SELECT {_CLIENTE} FROM clientes WHERE idempotencia_key = ?"
CLIENTE_BY_ID = f"SELECT {_CLIENTE} FROM clientes WHERE id = ?"
CLIENTES = f"SELECT {_CLIENTE} FROM clientes WHERE id > ? ORDER BY id LIMIT ?"
INSERT_CLIENTE = (
    "INSERT INTO clientes (nome, email, documento, documento_valido, idempotencia_key, impressao)"
    f" VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (idempotencia_key) DO NOTHING RETURNING {_CLIENTE}"
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
