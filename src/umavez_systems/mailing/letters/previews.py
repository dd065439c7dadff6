"""Letters: kept templates, and previews of what people would get."""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any

from umavez_systems.database import Row
from umavez_systems.mailing import database as tables
from umavez_systems.mailing.domain import header_text, invalid
from umavez_systems.mailing.ingest.dialect import Dialect, dialect_of
from umavez_systems.mailing.ingest.reading import runs
from umavez_systems.mailing.ingest.uploads import Spool
from umavez_systems.mailing.letters.composing import values_of
from umavez_systems.mailing.letters.templates import Letter, Unrenderable, checked_syntax
from umavez_systems.mailing.operations import Mailings

PREVIEW = 5
MOST_KEPT = 500
"""Templates of one principal."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,60}")
SAMPLE = 65_536


class Letters:
    """Templates and previews."""

    def __init__(self, mailings: Mailings) -> None:
        self._mailings = mailings
        self._database = mailings.database

    def put(self, principal: str, name: str, subject: str, text: str | None, html: str | None) -> None:
        """Keep a template; mailings that used an earlier one keep theirs. Raises 422 problems."""
        if not _NAME.fullmatch(name):
            raise invalid("O nome de um modelo tem de 1 a 60 letras, números, pontos ou traços.")
        header_text(subject, "O assunto")
        if text is None and html is None:
            raise invalid("Um modelo precisa de texto ou html.")
        for field, part in (("assunto", subject), ("texto", text), ("html", html)):
            if part is not None:
                checked_syntax(field, part)
        statement = (
            "INSERT INTO mailing_templates (principal, nome, assunto, texto, html) SELECT ?, ?, ?, ?, ?"
            " WHERE (SELECT count(*) FROM mailing_templates WHERE principal = ? AND nome <> ?) < ?"
            " ON CONFLICT (principal, nome) DO UPDATE SET assunto = excluded.assunto, texto = excluded.texto,"
            " html = excluded.html, updated_at = CURRENT_TIMESTAMP RETURNING nome"
        )
        with self._database.statements() as connection:
            kept = connection.rows(statement, (principal, name, subject, text, html, principal, name, MOST_KEPT))
        if not kept:
            raise invalid(f"Já há {MOST_KEPT} modelos; remova um com DELETE /mailings/modelos/{{nome}}.")

    def remove(self, principal: str, name: str) -> bool:
        """Forget a template, and say whether there was one; mailings that used it keep theirs."""
        with self._database.statements() as connection:
            sql = "DELETE FROM mailing_templates WHERE principal = ? AND nome = ? RETURNING nome"
            return bool(connection.rows(sql, (principal, name)))

    def all(self, principal: str) -> list[Row]:
        """Every template of a principal."""
        text = "SELECT nome, assunto, texto, html, updated_at FROM mailing_templates WHERE principal = ? ORDER BY nome"
        with self._database.statements() as connection:
            return connection.rows(f"{text} LIMIT {MOST_KEPT}", (principal,))

    def preview(self, principal: str, number: str, limit: int) -> list[dict[str, Any]]:
        """What the first people on the list get; an error stands where a mail cannot be made."""
        row = self._mailings.mailing(principal, number)
        with self._database.statements() as connection:
            content = connection.rows(tables.CONTENT, (number, principal))[0]
        letter = Letter(content["assunto"], content["texto"], content["html"])
        dialect = Dialect.of(content["dialeto"])
        with self._mailings.storage.read(row["storage_url"], dialect.start) as stream:
            sample = stream.read(SAMPLE)
        return [_shown(letter, dialect, entry) for entry in _first(sample, dialect, limit)]

    def preview_of(self, principal: str, filename: str, fields: dict[str, str], spool: Spool) -> dict[str, Any]:
        """The same for a list that is not here yet, of which the beginning was sent."""
        dialect = dialect_of(spool.sample, whole=True)
        letter = self._mailings.letter(principal, filename, fields).checked(dialect.variables)
        items = [_shown(letter, dialect, entry) for entry in _first(spool.sample[dialect.start :], dialect, PREVIEW)]
        return {"itens": items, "colunas": list(dialect.columns), "codificacao": dialect.encoding}


def _first(sample: bytes, dialect: Dialect, limit: int) -> list[Row]:
    run = next(runs(BytesIO(sample), dialect, dialect.line), None)
    rows: list[Row] = [] if run is None else run.rows.sort_by("linha").to_pylist()
    return [row for row in rows if row["motivo"] is None][:limit]


def _shown(letter: Letter, dialect: Dialect, row: Row) -> dict[str, Any]:
    values = values_of(dialect.variables, row["variaveis"]) | {"email": row["email"], "descadastro": "(link)"}
    try:
        subject, text, page = letter.rendered(values)
    except Unrenderable as error:
        return {"email": row["email"], "erro": str(error)}
    return {"email": row["email"], "assunto": subject, "texto": text, "html": page}
