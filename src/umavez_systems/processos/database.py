"""The tables of processos: every statement the system sends, on SQLite and PostgreSQL alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from umavez import Record
from umavez_systems.database import Connection, Database, Row

_PROCESSO = (
    "principal, id, definicao, nome, estado, versao, conteudo, vence_em, falhas, desfecho, motivo, criado_em, mudado_em"
)
_BRIEF = "id, nome, estado, versao, vence_em, falhas, desfecho, motivo, criado_em, mudado_em"

INSERT_DEFINITION = (
    "INSERT INTO processos_definicoes (digest, nome, xml) VALUES (?, ?, ?) ON CONFLICT (digest) DO NOTHING"
)
DEFINITION = "SELECT xml FROM processos_definicoes WHERE digest = ?"
INSERT = (
    f"INSERT INTO processos ({_PROCESSO}) VALUES (?, ?, ?, ?, ?, 1, ?, ?, 0, ?, NULL, ?, ?)"
    " ON CONFLICT (principal, id) DO NOTHING RETURNING versao"
)
ONE = f"SELECT {_PROCESSO} FROM processos WHERE principal = ? AND id = ?"
LIST = f"SELECT {_BRIEF} FROM processos WHERE principal = ? AND criado_em >= ? ORDER BY criado_em DESC, id LIMIT ?"
LIST_BY_STATE = (
    f"SELECT {_BRIEF} FROM processos WHERE principal = ? AND criado_em >= ? AND estado = ?"
    " ORDER BY criado_em DESC, id LIMIT ?"
)
DUE = (
    "SELECT principal, id FROM processos WHERE estado IN ('ativo', 'esperando') AND vence_em <= ?"
    " ORDER BY vence_em LIMIT ?"
)
# The version stands in the WHERE: a worker that was overtaken writes nothing.
CHANGE = (
    "UPDATE processos SET estado = ?, versao = versao + 1, conteudo = ?, vence_em = ?, falhas = ?, desfecho = ?,"
    " motivo = ?, mudado_em = ? WHERE principal = ? AND id = ? AND versao = ? RETURNING versao"
)
SET_ASIDE = (
    "UPDATE processos SET estado = 'incidente', versao = versao + 1, vence_em = NULL, motivo = ?, mudado_em = ?"
    " WHERE principal = ? AND id = ? AND versao = ? RETURNING versao"
)
INSERT_STEP = (
    "INSERT INTO processos_passos (principal, processo, versao, atividade, evento, detalhe, quando)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
STEPS = (
    "SELECT versao, atividade, evento, detalhe, quando FROM processos_passos"
    " WHERE principal = ? AND processo = ? ORDER BY id"
)


@dataclass(frozen=True, slots=True)
class Passo:
    """One line of an instance's timeline; `detalhe` never holds patient data."""

    atividade: str | None
    evento: str
    detalhe: str | None = None


@dataclass(frozen=True, slots=True)
class Mudanca:
    """What an instance becomes."""

    estado: str
    conteudo: str
    vence_em: int | None
    falhas: int = 0
    desfecho: str | None = None
    motivo: str | None = None


def insert(
    connection: Connection, principal: str, number: str, definition: tuple[str, str, str], change: Mudanca, now: int
) -> bool:
    """A new instance and its definition (digest, name, xml); False when one of that id is there already."""
    connection.rows(INSERT_DEFINITION, definition)
    values = (principal, number, definition[0], definition[1], change.estado, change.conteudo)
    made = connection.row(INSERT, (*values, change.vence_em, change.desfecho, now, now))
    return made is not None


def update(connection: Connection, principal: str, number: str, versao: int, change: Mudanca, now: int) -> int | None:
    """Put `change` where `versao` stands; returns the new version, or None when somebody else was faster."""
    values = (change.estado, change.conteudo, change.vence_em, change.falhas, change.desfecho, change.motivo, now)
    row = connection.row(CHANGE, (*values, principal, number, versao))
    return None if row is None else int(row["versao"])


def set_aside(connection: Connection, principal: str, number: str, versao: int, motivo: str, now: int) -> bool:
    """Make an instance an incident, its content untouched; False when somebody else was faster."""
    return connection.row(SET_ASIDE, (motivo, now, principal, number, versao)) is not None


def note(connection: Connection, principal: str, number: str, versao: int, steps: Sequence[Passo], now: int) -> None:
    """Write lines of the timeline, in the same transaction as the change they tell of."""
    for step in steps:
        connection.rows(INSERT_STEP, (principal, number, versao, step.atividade, step.evento, step.detalhe, now))


def find(connection: Connection, principal: str, number: str) -> Row | None:
    """One instance's row."""
    return connection.row(ONE, (principal, number))


INSERT_PAYMENT = (
    "INSERT INTO processos_pagamentos (operadora, protocolo, principal, chave, criado_em) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (operadora, protocolo) DO NOTHING"
)
OWNER = "SELECT principal, chave FROM processos_pagamentos WHERE operadora = ? AND protocolo = ?"
HAND_ON = (
    "UPDATE processos_pagamentos SET principal = ?, chave = ?"
    " WHERE operadora = ? AND protocolo = ? AND principal = ? AND chave = ?"
)

Owner = tuple[str, str]
"""A principal and an idempotency key."""


class Reservas:
    """Which key may pay a protocolo: the payer's name for a debt is one, whoever asks for its payment.

    A reservation is never given back by itself: that a record is gone or failed does not prove that nothing was paid.
    It passes on only from a key whose refusal is settled, which can no longer pay.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def owner(self, operadora: str, protocolo: str, asks: Owner) -> Owner:
        """Who may pay the protocolo: `asks`, where nobody was before."""
        with self._database.transaction() as connection:
            connection.rows(INSERT_PAYMENT, (operadora, protocolo, *asks, time.time_ns() // 1_000_000))
            row = connection.row(OWNER, (operadora, protocolo))
        return asks if row is None else (row["principal"], row["chave"])

    def take(self, operadora: str, protocolo: str, asks: Owner, may_pass: Callable[[Owner], bool]) -> bool:
        """Whether `asks` may pay; a reservation of another passes on where `may_pass` says so."""
        owner = self.owner(operadora, protocolo, asks)
        if owner != asks and may_pass(owner):
            with self._database.transaction() as connection:
                connection.rows(HAND_ON, (*asks, operadora, protocolo, *owner))
            owner = self.owner(operadora, protocolo, asks)
        return owner == asks


CHUNK = 50
IDS = f"SELECT id, digest FROM idempotency_records WHERE digest IN ({', '.join('?' * CHUNK)})"


class Registros:
    """The `id` of records, which seed 003 has and the engine does not need: it knows a record by its key."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ids(self, records: Sequence[Record]) -> dict[bytes, int]:
        """The id of each record that is in the table, by the digest of its key."""
        digests = [record.key.digest for record in records]
        found: dict[bytes, int] = {}
        with self._database.statements() as connection:
            for start in range(0, len(digests), CHUNK):
                part = digests[start : start + CHUNK]
                # Always as many values, so that there is one statement, prepared once.
                rows = connection.rows(IDS, (*part, *[part[-1]] * (CHUNK - len(part))))
                found.update((bytes(row["digest"]), int(row["id"])) for row in rows)
        return found
