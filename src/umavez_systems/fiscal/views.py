"""What callers see of documents, acts, series and deadlines. Times as ISO 8601, amounts as exact text."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from umavez_systems.database import Row
from umavez_systems.fiscal.domain import ABERTOS, Estado, Tipo
from umavez_systems.fiscal.ledgers import Faixa
from umavez_systems.fiscal.rules.deadlines import Pendencia
from umavez_systems.fiscal.wire.nfe import NS

WAITING = (*ABERTOS, Estado.CANCELAMENTO_PENDENTE)
MOST_SHOWN = 500
"""Open numbers that a series' view lists."""


def iso(millis: int | None) -> str | None:
    """A moment in UTC."""
    if millis is None:
        return None
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def documento(row: Row, origem: str | None = None) -> dict[str, Any]:
    """A document, with when it will be looked at again while it is open."""
    shown = {
        "id": row["id"],
        "id_idempotencia": row["id_idempotencia"],
        "chave_acesso": row["chave_acesso"],
        "estado": row["estado"],
        "protocolo": row["protocolo"],
        "origem": row["origem"] if origem is None else str(origem),
        "versao": row["versao"],
        "tipo": row["tipo"],
        "organizacao": row["org_id"].partition("/")[2],
        "serie": row["serie"],
        "numero": row["numero"],
        "tp_emis": row["tp_emis"],
        "total": row["total"],
        "codigo": row["codigo"],
        "motivo": row["motivo"],
        "tentativas": row["tentativas"],
        "emitido_em": iso(row["emitido_em"]),
        "autorizado_em": iso(row["autorizado_em"]),
        "incidente": None if row["incidente"] is None else json.loads(row["incidente"]),
    }
    if row["estado"] in WAITING:
        shown["proxima_consulta_em"] = iso(row["proximo_em"])
    return shown


def ato(row: Row) -> dict[str, Any]:
    """An act."""
    names = ("nome", "acao", "estado", "texto", "sequencia", "codigo", "motivo", "protocolo")
    shown = {name: row[name] for name in names}
    if row["primeiro"] is not None:
        shown |= {"tipo": row["tipo"], "serie": row["serie"], "primeiro": row["primeiro"], "ultimo": row["ultimo"]}
    return shown


def faixa(series: Faixa) -> dict[str, Any]:
    """A series with its ledger."""
    book = series.livro
    return {
        "organizacao": series.organizacao,
        "modelo": series.modelo,
        "serie": series.serie,
        "primeiro_numero": series.primeiro,
        "ultimo_numero": series.ultimo,
        "bloqueado": series.bloqueado,
        "fechada": not book.abertos,
        "contagem": dict(book.contagem),
        "abertos": [{"numero": number, "destino": book.destinos[number]} for number in book.abertos[:MOST_SHOWN]],
        "inutilizaveis": [{"primeiro": first, "ultimo": last} for first, last in book.inutilizaveis],
    }


def pendencia(pending: Pendencia, now: int) -> dict[str, Any]:
    """A right that may be lost."""
    return {
        "documento": pending.documento,
        "estado": pending.estado,
        "direito": pending.direito,
        "acao": pending.acao,
        "vence_em": iso(pending.vence_em),
        "segundos": (pending.vence_em - now) // 1000,
        "vencida": pending.vencida(now),
    }


def organizacao(row: Row) -> dict[str, Any]:
    """An organisation, without its certificate."""
    data = json.loads(row["emitente"])
    return {
        "id": row["nome"],
        "nome": data["nome"],
        "cnpj": row["cnpj"],
        "uf": row["uf"],
        "ambiente": row["ambiente"],
        "certificado_vence_em": iso(row["certificado_vence_em"]),
    }


def pagina(itens: list[dict[str, Any]], limite: int) -> dict[str, Any]:
    """A page of what has an id, with the last one where more may follow."""
    return {"itens": itens, "proximo": itens[-1]["id"] if len(itens) == limite else None}


def imprimivel(row: Row) -> bool:
    """Whether a printed form may be handed out: the note is authorised, or its mode is printed before that is known."""
    early = row["tp_emis"] == "9" or (row["tp_emis"] == "4" and row["epec_em"] is not None)
    authorised = (Estado.AUTORIZADO, Estado.CANCELAMENTO_PENDENTE, Estado.CANCELADO)
    return row["estado"] in authorised or (early and row["estado"] in ABERTOS)


def xml(row: Row) -> bytes:
    """The document to keep and hand over: with its protocol once it has one."""
    signed = bytes(row["xml_assinado"])
    if not row["protocolo_xml"]:
        return signed
    if Tipo(row["tipo"]).de_servico:
        return str(row["protocolo_xml"]).encode()  # the invoice itself, which repeats what was sent
    head = f'<?xml version="1.0" encoding="UTF-8"?><nfeProc xmlns="{NS}" versao="4.00">'.encode()
    return head + signed + str(row["protocolo_xml"]).encode() + b"</nfeProc>"
