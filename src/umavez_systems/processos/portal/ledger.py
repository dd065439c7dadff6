"""The simulated payer's ledger: what it accepted and paid, in SQLite, without a unique constraint."""

from __future__ import annotations

import sqlite3
import threading
from decimal import Decimal
from typing import Any

from umavez_systems.processos.contas.simulator import Contas
from umavez_systems.processos.tiss.tables import JA_APRESENTADA, Situacao

TABLES = """
CREATE TABLE IF NOT EXISTS submissions (
    id INTEGER PRIMARY KEY, operadora TEXT, prestador TEXT, lote TEXT, referencia TEXT, valor TEXT,
    situacao INTEGER NOT NULL DEFAULT 3);
CREATE TABLE IF NOT EXISTS guias (submission INTEGER, operadora TEXT, prestador TEXT, numero TEXT);
CREATE TABLE IF NOT EXISTS payments (
    id INTEGER PRIMARY KEY, operadora TEXT, protocolo TEXT, referencia TEXT, valor TEXT);
CREATE INDEX IF NOT EXISTS by_lote ON submissions (prestador, lote);
CREATE INDEX IF NOT EXISTS by_guia ON guias (prestador, numero);
CREATE INDEX IF NOT EXISTS by_protocolo ON payments (protocolo);
"""
INELIGIBLE = "9"
"""A card number that begins so is not covered."""
UNPAYABLE = "00000000"
"""This procedure is always refused, with glosa 1801."""


class Refusal(Exception):
    """The portal's no: a status and a body."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(str(status))
        self.status = status
        self.body = body


class Ledger:
    """Accepts lotes and payments, one at a time; survives the end of its process."""

    def __init__(self, path: str, *, refuse_duplicates: bool) -> None:
        self._refuses = refuse_duplicates
        self._lock = threading.Lock()
        self._link = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._link.execute("PRAGMA journal_mode = WAL")
        self._link.execute("PRAGMA synchronous = OFF")
        self._link.executescript(TABLES)
        self._contas = Contas(self._link)
        self._verbs = {
            "/elegibilidade": self._eligible,
            "/lotes": self._submit,
            "/lotes/situacao": self._protocol,
            "/protocolos/situacao": self._situation,
            "/pagamentos": self._pay,
            "/pagamentos/situacao": self._payment,
            "/demonstrativos": self._statement,
            "/recursos": self._appeal,
            "/recursos/situacao": self._contas.appealed,
        }

    def act(self, path: str, content: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Do what `path` names. Raises Refusal."""
        verb = self._verbs.get(path)
        if verb is None:
            raise Refusal(404, {})
        with self._lock:
            return verb(content)

    def contents(self) -> dict[str, Any]:
        """Everything accepted and paid, in order; no patient in it."""
        with self._lock:
            return {
                "submissions": self._rows("SELECT id, prestador, lote, referencia, valor FROM submissions ORDER BY id"),
                "payments": self._rows("SELECT id, protocolo, referencia, valor FROM payments ORDER BY id"),
                "appeals": self._contas.appeals(),
            }

    def _eligible(self, content: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return 200, {"elegivel": not content["carteira"].startswith(INELIGIBLE)}

    def _submit(self, content: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        guias = content["guias"]
        if any(guia["procedimento"] == UNPAYABLE for guia in guias):
            raise _glosa("1801", "Procedimento inválido")
        known = "SELECT 1 FROM guias WHERE operadora = ? AND prestador = ? AND numero = ?"
        whose = (content["operadora"], content["prestador"])
        if self._refuses and any(self._rows(known, (*whose, guia["numeroGuiaPrestador"])) for guia in guias):
            raise _glosa(JA_APRESENTADA, "Guia já apresentada")
        valor = str(sum((Decimal(guia["valor"]) for guia in guias), Decimal("0.00")))
        self._link.execute("BEGIN")
        made = self._link.execute(
            "INSERT INTO submissions (operadora, prestador, lote, referencia, valor) VALUES (?, ?, ?, ?, ?)",
            (*whose, content["numeroLote"], content["referencia"], valor),
        ).lastrowid
        self._link.executemany(
            "INSERT INTO guias VALUES (?, ?, ?, ?)", [(made, *whose, guia["numeroGuiaPrestador"]) for guia in guias]
        )
        self._contas.keep(made or 0, guias)
        self._link.execute("COMMIT")
        return 201, _receipt({"id": made, "referencia": content["referencia"], "valor": valor}, Situacao.RECEBIDO)

    def _protocol(self, content: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        found = self._rows(
            "SELECT id, referencia, valor FROM submissions WHERE operadora = ? AND prestador = ? AND lote = ?"
            " ORDER BY id LIMIT 1",
            (content["operadora"], content["prestador"], content["numeroLote"]),
        )
        if not found:
            return 200, {"situacao": Situacao.NAO_LOCALIZADO}
        return 200, _receipt(found[0], Situacao.RECEBIDO)

    def _situation(self, content: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        found = self._rows(
            "SELECT situacao FROM submissions WHERE operadora = ? AND 'CLM-' || printf('%06d', id) = ?",
            (content["operadora"], content["protocolo"]),
        )
        if not found:
            return 200, {"situacao": Situacao.NAO_LOCALIZADO}
        return 200, {"situacao": Situacao.PAGO if self._paid(content) else found[0]["situacao"]}

    def place(self, protocolo: str, situacao: int) -> None:
        """Let a protocolo stand at `situacao`, as the payer's analysis would."""
        with self._lock:
            words = "UPDATE submissions SET situacao = ? WHERE 'CLM-' || printf('%06d', id) = ?"
            self._link.execute(words, (situacao, protocolo))

    def refuse(self, duplicates: bool) -> None:
        """Refuse from now on what was handed in before, or accept it."""
        with self._lock:
            self._refuses = duplicates

    def deny(self, protocolo: str, guia: str, codigo: str, valor: str) -> None:
        """See Contas.deny."""
        with self._lock:
            self._contas.deny(protocolo, guia, codigo, valor)

    def decide(self, recurso: str, situacao: str, acatado: str) -> None:
        """See Contas.decide."""
        with self._lock:
            self._contas.decide(recurso, situacao, acatado)

    def _statement(self, content: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        words = "SELECT id, prestador, lote FROM submissions WHERE operadora = ? AND 'CLM-' || printf('%06d', id) = ?"
        found = self._rows(words, (content["operadora"], content["protocolo"]))
        if not found:
            return 200, {"xml": None}
        return self._contas.statement(content, found[0], self._situation(content)[1]["situacao"])

    def _appeal(self, content: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self._refuses and self._contas.appealed(content)[1]:
            raise Refusal(409, {})
        return self._contas.appeal(content)

    def _pay(self, content: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self._refuses and self._paid(content):
            raise Refusal(409, {})
        values = tuple(content[name] for name in ("operadora", "protocolo", "referencia", "valor"))
        made = self._link.execute(
            "INSERT INTO payments (operadora, protocolo, referencia, valor) VALUES (?, ?, ?, ?)", values
        ).lastrowid
        return 201, {**content, "pagamento": f"PAG-{made}"}

    def _payment(self, content: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        found = self._paid(content)
        return 200, {**found[0], "pagamento": f"PAG-{found[0]['id']}"} if found else {}

    def _paid(self, content: dict[str, Any]) -> list[dict[str, Any]]:
        return self._rows(
            "SELECT id, protocolo, referencia, valor FROM payments WHERE operadora = ? AND protocolo = ?"
            " ORDER BY id LIMIT 1",
            (content["operadora"], content["protocolo"]),
        )

    def _rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
        cursor = self._link.execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _receipt(row: dict[str, Any], situacao: Situacao) -> dict[str, Any]:
    return {
        "protocolo": f"CLM-{row['id']:06d}",
        "situacao": situacao,
        "valor": row["valor"],
        "referencia": row["referencia"],
    }


def _glosa(codigo: str, descricao: str) -> Refusal:
    return Refusal(422, {"glosa": {"codigo": codigo, "descricao": descricao}})
