"""The tables of demonstrativos, glosas and what happened to them; no patient in any."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from umavez_systems.database import Connection, Database, Row
from umavez_systems.processos.contas.domain import Demonstrativo, ItemRecurso, Recebido, Recurso
from umavez_systems.processos.ports import DemonstrativoInvalido, ForaDoPrazo, GlosaDesconhecida, JaRecorrida

DAYS = 30
"""Days after a demonstrativo's issue in which its glosas can be appealed against, where no contract says more."""
INSERT_STATEMENT = (
    "INSERT INTO processos_demonstrativos (principal, operadora, protocolo, tipo, numero, sha256, emissao, pagamento,"
    " informado_centavos, liberado_centavos, recebido_em) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (principal, operadora, protocolo, tipo, numero) DO NOTHING RETURNING id"
)
STATEMENT = (
    "SELECT sha256 FROM processos_demonstrativos"
    " WHERE principal = ? AND operadora = ? AND protocolo = ? AND tipo = ? AND numero = ?"
)
STATEMENTS = (
    "SELECT operadora, protocolo, tipo, numero, emissao, pagamento, informado_centavos, liberado_centavos, recebido_em"
    " FROM processos_demonstrativos WHERE principal = ? AND operadora = ? AND protocolo = ? ORDER BY id LIMIT ?"
)
# A glosa that an earlier demonstrativo told already keeps its term and its recurso.
INSERT_GLOSA = (
    "INSERT INTO processos_glosas (demonstrativo, principal, operadora, protocolo, guia, item, codigo, glosa_centavos,"
    " prazo) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (principal, operadora, protocolo, guia, item, codigo) DO NOTHING"
)
GLOSA = (
    "SELECT id, glosa_centavos, prazo, recurso_chave FROM processos_glosas"
    " WHERE principal = ? AND operadora = ? AND protocolo = ? AND guia = ? AND item = ? AND codigo = ?"
)
# Whose it was stands in the WHERE: of two who want it the database chooses one.
TAKE = (
    "UPDATE processos_glosas SET recurso_chave = ?, recurso_numero = ?, recursado_centavos = ?,"
    " recurso_protocolo = NULL, recurso_situacao = NULL WHERE id = ? AND coalesce(recurso_chave, '') = ? RETURNING id"
)
TOLD = (
    "UPDATE processos_glosas SET recurso_protocolo = ?, recurso_situacao = ? WHERE principal = ? AND operadora = ?"
    " AND protocolo = ? AND recurso_chave = ? AND (recurso_protocolo IS NULL OR recurso_situacao <> ?) RETURNING id"
)
OWNER = (
    "SELECT recurso_chave FROM processos_glosas WHERE principal = ? AND operadora = ? AND protocolo = ?"
    " AND recurso_numero = ? AND recurso_protocolo = ? LIMIT 1"
)
LIST = (
    "SELECT id, operadora, protocolo, guia, item, codigo, glosa_centavos, prazo, recurso_numero, recurso_protocolo,"
    " recurso_situacao, recursado_centavos, CASE WHEN recurso_chave IS NOT NULL THEN 'recorrida' WHEN prazo < ?"
    " THEN 'vencida' ELSE 'aberta' END AS situacao FROM processos_glosas WHERE principal = ? AND id > ?"
    " AND (CAST(? AS TEXT) IS NULL OR protocolo = ?)"
)
OF_STATE = {
    None: "",
    "aberta": " AND recurso_chave IS NULL AND prazo >= ?",
    "vencida": " AND recurso_chave IS NULL AND prazo < ?",
    "recorrida": " AND recurso_chave IS NOT NULL",
}
INSERT_EVENT = (
    "INSERT INTO processos_eventos (principal, operadora, protocolo, evento, detalhe, quando) VALUES (?, ?, ?, ?, ?, ?)"
)
EVENTS = (
    "SELECT evento, detalhe, quando FROM processos_eventos WHERE principal = ? AND operadora = ? AND protocolo = ?"
    " ORDER BY id LIMIT ?"
)


def today() -> date:
    """The day that is not over yet somewhere in Brazil: nobody is too late because of this host's zone."""
    return (datetime.now(UTC) - timedelta(hours=5)).date()


class Glosas:
    """What payers said about accounts, and whose recurso each glosa is."""

    def __init__(self, database: Database, days: int = DAYS, day: Callable[[], date] = today) -> None:
        self._database = database
        self._days = timedelta(days=days)
        self._day = day

    def keep(self, principal: str, found: Demonstrativo) -> None:
        """Keep a demonstrativo and its glosas, once. Raises DemonstrativoInvalido where it said other things."""
        name = (principal, found.operadora, found.protocolo, found.tipo.value, found.numero)
        values = (_digest(found), found.emissao, found.pagamento, _cents(found.informado), _cents(found.liberado))
        prazo = (date.fromisoformat(found.emissao) + self._days).isoformat()
        with self._database.transaction() as connection:
            made = connection.row(INSERT_STATEMENT, (*name, *values, _now()))
            if made is None:
                before = connection.row(STATEMENT, name)
                if before is None or before["sha256"] != values[0]:
                    raise DemonstrativoInvalido("A operadora já emitiu este demonstrativo com outros valores.")
                return
            for glosa in found.glosas:
                item = (glosa.guia, glosa.item, glosa.codigo, _cents(glosa.valor), prazo)
                connection.rows(INSERT_GLOSA, (made["id"], *name[:3], *item))
            told = f"{found.tipo.value} {found.numero}: liberado {found.liberado:.2f}, glosado {found.glosado:.2f}"
            _note(connection, name[:3], "demonstrativo recebido", told)

    def owners(self, principal: str, recurso: Recurso) -> set[str]:
        """The keys of other recursos, or of this one, that have glosas of it."""
        with self._database.statements() as connection:
            rows = [_glosa(connection, principal, recurso, item) for item in recurso.itens]
        return {row["recurso_chave"] for row in rows if row["recurso_chave"] is not None}

    def reserve(self, principal: str, recurso: Recurso, key: str, passing: Collection[str] = ()) -> None:
        """Make all glosas of a recurso its own, or none; those of the keys `passing` may be taken over.

        Raises GlosaDesconhecida, ForaDoPrazo, JaRecorrida.
        """
        with self._database.transaction() as connection:
            # In one order, so that two who want the same glosas do not wait for each other.
            for item in sorted(recurso.itens, key=lambda item: (item.guia, item.item, item.codigo)):
                row = _glosa(connection, principal, recurso, item)
                if row["prazo"] < self._day().isoformat():
                    raise ForaDoPrazo(f"O prazo de recurso da guia {item.guia} terminou em {row['prazo']}.")
                owner = row["recurso_chave"] or ""
                if owner == key:
                    continue
                taken = (key, recurso.numero, _cents(item.valor), row["id"], owner)
                if (owner and owner not in passing) or connection.row(TAKE, taken) is None:
                    raise JaRecorrida(f"A glosa {item.codigo} da guia {item.guia} já é de outro recurso.")

    def told(self, principal: str, operadora: str, protocolo: str, key: str, found: Recebido) -> None:
        """Keep what the payer says about the recurso of a key; an event where that is new."""
        name = (principal, operadora, protocolo)
        with self._database.transaction() as connection:
            if connection.rows(TOLD, (found.numero, found.situacao, *name, key, found.situacao)):
                _note(connection, name, f"recurso {found.situacao}"[:40], f"{found.numero}: {found.valor}")

    def key_of(self, principal: str, operadora: str, protocolo: str, numero: str, recebido: str) -> str | None:
        """The key of a recurso that was received under both numbers."""
        with self._database.statements() as connection:
            row = connection.row(OWNER, (principal, operadora, protocolo, numero, recebido))
        return None if row is None else str(row["recurso_chave"])

    def glosas(
        self, principal: str, protocolo: str | None, situacao: str | None, after: int = 0, limit: int = 100
    ) -> list[dict[str, Any]]:
        """Glosas in the order in which they were told, from the one after `after` on."""
        day = self._day().isoformat()
        dated = (day,) if situacao in ("aberta", "vencida") else ()
        sql = LIST + OF_STATE[situacao] + " ORDER BY id LIMIT ?"
        with self._database.statements() as connection:
            rows = connection.rows(sql, (day, principal, after, protocolo, protocolo, *dated, limit))
        return [_shown(row) for row in rows]

    def account(self, principal: str, operadora: str, protocolo: str, limit: int = 1000) -> tuple[list[Row], list[Row]]:
        """The demonstrativos of a protocolo and what happened to it, oldest first."""
        name = (principal, operadora, protocolo, limit)
        with self._database.statements() as connection:
            return connection.rows(STATEMENTS, name), connection.rows(EVENTS, name)


def _glosa(connection: Connection, principal: str, recurso: Recurso, item: ItemRecurso) -> Row:
    name = (principal, recurso.operadora, recurso.protocolo, item.guia, item.item, item.codigo)
    row = connection.row(GLOSA, name)
    if row is None:
        raise GlosaDesconhecida(f"Nenhum demonstrativo recebido tem a glosa {item.codigo} da guia {item.guia}.")
    if row["glosa_centavos"] < _cents(item.valor):
        raise GlosaDesconhecida(f"O recurso da guia {item.guia} pede mais do que foi glosado.")
    return row


def _note(connection: Connection, name: tuple[str, ...], event: str, detail: str) -> None:
    connection.rows(INSERT_EVENT, (*name, event, detail, _now()))


def _digest(found: Demonstrativo) -> str:
    """Of what a demonstrativo says about money; the hour at which its file was made is no part of it."""
    glosas = sorted((glosa.guia, glosa.item, glosa.codigo, str(glosa.valor)) for glosa in found.glosas)
    return hashlib.sha256(json.dumps([str(found.informado), str(found.liberado), glosas]).encode()).hexdigest()


def _shown(row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "operadora": row["operadora"],
        "claimId": row["protocolo"],
        "numeroGuiaPrestador": row["guia"],
        "sequencialItem": row["item"],
        "codigoGlosa": row["codigo"],
        "valorGlosado": reais(row["glosa_centavos"]),
        "prazo": row["prazo"],
        "situacao": row["situacao"],
        "numeroRecurso": row["recurso_numero"],
        "appealId": row["recurso_protocolo"],
        "situacaoRecurso": row["recurso_situacao"],
        "valorRecursado": None if row["recursado_centavos"] is None else reais(row["recursado_centavos"]),
    }


def reais(cents: int) -> str:
    """Centavos as an amount with two places."""
    return f"{Decimal(cents).scaleb(-2):.2f}"


def _cents(valor: Decimal) -> int:
    return int(valor.scaleb(2))


def _now() -> int:
    return time.time_ns() // 1_000_000
