"""What answers show of mailings and entries."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from umavez_systems.database import Row
from umavez_systems.mailing.domain import COUNTER, LINE_COUNTERS, finished, leaks, shown_cell, shown_moment

REPORT = (
    "email",
    "status",
    "tentativas",
    "external_id",
    "resposta",
    "linha",
    "ultima_tentativa",
    "criado_em",
    "atualizado_em",
    "message_id",
)


def uploaded(row: Row, made: bool, content_hash: str) -> dict[str, Any]:
    """The seed's body, and beside it what the caller should know."""
    return {
        "mailingId": row["id"],
        "status": row["status"],
        "created": made,
        "filename": row["nome"],
        "contentHash": f"sha256:{row['content_hash']}",
        "conteudoDiferente": row["content_hash"] != content_hash,
    }


def mailing_shown(row: Row, group: int) -> dict[str, Any]:
    """One mailing: its state, its counters, and the report of its lines."""
    dialect = json.loads(row["dialeto"]) if row["dialeto"] else {}
    return {
        "mailingId": row["id"],
        "filename": row["nome"],
        "status": row["status"],
        "pedido": row["pedido"],
        "motivo": row["motivo"],
        "assunto": row["assunto"],
        "remetente": row["remetente"],
        "identidade": row["identidade"],
        "reingestao": row["reingestao"],
        "duvida": row["duvida"],
        "grupo": group,
        "contentHash": f"sha256:{row['content_hash']}",
        "linhas": {"total": row["linhas"], **{name: row[name] for name in LINE_COUNTERS[1:]}},
        "entradas": {"total": row["entradas"], **{str(state): row[name] for state, name in COUNTER.items()}},
        "conservacao": {"confere": not leaks(row), "faltas": leaks(row)},
        "leitura": {
            "concluida": bool(row["ingerido"]),
            "bytes": row["posicao"],
            "de": row["tamanho"],
            "codificacao": dialect.get("encoding"),
            "delimitador": dialect.get("delimiter"),
            "colunas": dialect.get("columns", []),
        },
        "concluido": finished(row),
        "tentativa": row["epoch"],
        "lastAttempt": shown_moment(row["last_attempt"]),
        "createdAt": shown_moment(row["created_at"]),
        "updatedAt": shown_moment(row["updated_at"]),
    }


def entry_shown(row: Row) -> dict[str, Any]:
    """One entry, with the evidence of what was tried."""
    return {
        "id": row["id"],
        "email": row["email"],
        "status": row["status"],
        "linha": row["linha"],
        "attempts": row["attempts"],
        "externalId": row["external_id"],
        "messageId": row["message_id"],
        "provedor": row["provedor"],
        "resposta": row["resposta"],
        "lastAttempt": shown_moment(row["last_attempt"]),
        "createdAt": shown_moment(row["created_at"]),
        "updatedAt": shown_moment(row["updated_at"]),
    }


def report_lines(pages: Iterable[list[Row]]) -> Iterator[bytes]:
    """The ledger as CSV, page by page. A cell that a spreadsheet would run is made plain text."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(REPORT)
    for page in pages:
        writer.writerows([shown_cell(value) for value in _line(row)] for row in page)
        yield buffer.getvalue().encode()
        buffer.seek(0)
        buffer.truncate()
    if rest := buffer.getvalue():
        yield rest.encode()


def _line(row: Row) -> list[Any]:
    return [
        *(row["email"], row["status"], row["attempts"], row["external_id"], row["resposta"], row["linha"]),
        *(shown_moment(row["last_attempt"]), shown_moment(row["created_at"])),
        *(shown_moment(row["updated_at"]), row["message_id"]),
    ]
