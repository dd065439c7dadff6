"""The simulated authorities' books, in SQLite: notes, events, voidings, and every call with what it was answered."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

TABLES = """
CREATE TABLE IF NOT EXISTS documentos (
    id INTEGER PRIMARY KEY, autoridade TEXT, autorizador TEXT, chave TEXT, natural_key TEXT, cnpj TEXT, modelo TEXT,
    serie INTEGER, numero INTEGER, situacao TEXT, codigo TEXT, protocolo TEXT, dig_val TEXT, recebido_em INTEGER,
    xml BLOB);
CREATE INDEX IF NOT EXISTS por_chave ON documentos (chave);
CREATE INDEX IF NOT EXISTS por_numero ON documentos (natural_key);
CREATE TABLE IF NOT EXISTS eventos (
    id INTEGER PRIMARY KEY, chave TEXT, tipo TEXT, sequencia INTEGER, codigo TEXT, protocolo TEXT, texto TEXT,
    registrado_em INTEGER, xml BLOB);
CREATE INDEX IF NOT EXISTS eventos_por_chave ON eventos (chave);
CREATE TABLE IF NOT EXISTS inutilizacoes (
    id INTEGER PRIMARY KEY, identidade TEXT, cnpj TEXT, modelo TEXT, serie INTEGER, primeiro INTEGER, ultimo INTEGER,
    protocolo TEXT);
CREATE TABLE IF NOT EXISTS chamadas (
    id INTEGER PRIMARY KEY, servico TEXT, alvo TEXT, codigo TEXT, quando INTEGER);
CREATE TABLE IF NOT EXISTS marcas (natural_key TEXT PRIMARY KEY, marca TEXT);
CREATE INDEX IF NOT EXISTS chamadas_por_alvo ON chamadas (servico, alvo, quando);
"""
HOUR = 3_600_000
HOUR_NAME = "/hora"
"""Among the marks; no document is called so."""


class Livros:
    """What the authorities know. One call at a time; survives the end of its process."""

    def __init__(self, path: Path) -> None:
        self.lock = threading.RLock()
        self._link = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._link.execute("PRAGMA journal_mode = WAL")
        self._link.execute("PRAGMA synchronous = OFF")
        self._link.executescript(TABLES)

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
        """Every row of a statement."""
        with self.lock:
            cursor = self._link.execute(sql, values)
            if cursor.description is None:
                return []
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def insert(self, table: str, **values: Any) -> int:
        """A new row; its number."""
        marks = ", ".join("?" * len(values))
        with self.lock:
            sql = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"  # noqa: S608  # names are this module's
            return self._link.execute(sql, tuple(values.values())).lastrowid or 0

    def note(self, servico: str, alvo: str, codigo: str) -> None:
        """A call was answered."""
        self.insert("chamadas", servico=servico, alvo=alvo, codigo=codigo, quando=now())

    def calls(self, servico: str, alvo: str, since: int) -> int:
        """How often a service was called about something since a moment."""
        sql = "SELECT count(*) AS n FROM chamadas WHERE servico = ? AND alvo = ? AND quando > ?"
        return int(self.rows(sql, (servico, alvo, since))[0]["n"])

    def mark(self, order: dict[str, Any], known: Mapping[str, Iterable[str]]) -> dict[str, str]:
        """Say of something, by its kind and name, what the authority shall hold against it. Raises ValueError."""
        kind = next((kind for kind in known if kind in order), "")
        name, marca = str(order.get(kind, ""))[:80], str(order.get("marca", ""))
        if not name or marca not in known[kind]:
            told = "; ".join(f"{kind}: {', '.join(marks)}" for kind, marks in known.items())
            raise ValueError(f"informe de que se fala e a marca ({told}).")
        self.rows("INSERT OR REPLACE INTO marcas (natural_key, marca) VALUES (?, ?)", (name, marca))
        return {kind: name, "marca": marca}

    def marked(self, name: str) -> str | None:
        """What was said of it."""
        found = self.rows("SELECT marca FROM marcas WHERE natural_key = ?", (name,))
        return found[0]["marca"] if found else None

    @property
    def hour(self) -> int:
        """How long the authority's hour is, in milliseconds: shorter where somebody cannot wait for a real one."""
        return int(self.marked(HOUR_NAME) or HOUR)

    def shorten(self, order: dict[str, Any]) -> dict[str, int]:
        """Set the length of the hour in which calls are counted, kept over restarts. Raises ValueError."""
        seconds = order.get("segundos")
        if isinstance(seconds, bool) or not isinstance(seconds, int) or not 1 <= seconds <= HOUR // 1000:
            raise ValueError("segundos é um número inteiro de 1 a 3600.")
        self.rows("INSERT OR REPLACE INTO marcas (natural_key, marca) VALUES (?, ?)", (HOUR_NAME, str(seconds * 1000)))
        return {"segundos": seconds}

    def contents(self) -> dict[str, Any]:
        """Everything, for whoever compares; without the documents themselves."""
        shown = "autoridade, autorizador, chave, cnpj, modelo, serie, numero, situacao, codigo, protocolo, dig_val"
        return {
            "documentos": self.rows(f"SELECT {shown}, recebido_em FROM documentos ORDER BY id"),  # noqa: S608  # constants
            "destruidas": self.rows("SELECT chave, natural_key FROM documentos WHERE codigo = '217' ORDER BY id"),
            "eventos": self.rows("SELECT chave, tipo, sequencia, codigo, protocolo, texto FROM eventos ORDER BY id"),
            "inutilizacoes": self.rows(
                "SELECT identidade, cnpj, modelo, serie, primeiro, ultimo, protocolo FROM inutilizacoes ORDER BY id"
            ),
            "chamadas": self.rows(
                "SELECT servico, codigo, count(*) AS vezes FROM chamadas GROUP BY servico, codigo ORDER BY 1, 2"
            ),
        }

    def close(self) -> None:
        """Close the file."""
        self._link.close()


def now() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
