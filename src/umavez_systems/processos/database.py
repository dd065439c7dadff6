"""The tables of processos: every statement the system sends, on SQLite and PostgreSQL alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from umavez_systems.database import Connection, Row

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
