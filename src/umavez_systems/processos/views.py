"""How records and process instances are shown: seed 003's names, no results in lists, no patient anywhere."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from umavez import Record
from umavez_systems.database import Row


def instant(millis: int | None) -> str | None:
    """A time as ISO 8601 in UTC."""
    return None if millis is None else datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")


def record_shown(record: Record, number: int | None) -> dict[str, Any]:
    """A record and its `id` in the words of the seed. The result is not part of it; whether there is one is."""
    return {
        "id": number,
        "idempotencyKey": record.key.value,
        "processInstanceId": record.process_instance,
        "activityId": record.activity,
        "operationName": record.key.operation,
        "status": record.status.value,
        "hasResult": record.settled is not None and record.settled.ok and record.settled.body is not None,
        "errorMessage": record.error,
        "retryCount": record.retry_count,
        "createdAt": instant(record.created_at),
        "updatedAt": instant(record.updated_at),
        "expiresAt": instant(record.expires_at),
        "leaseUntil": instant(record.lease_until),
        "evidence": json.loads(record.evidence) if record.evidence else [],
    }


def process_shown(row: Row) -> dict[str, Any]:
    """A process instance without its content."""
    return {
        "id": row["id"],
        "processo": row["nome"],
        "estado": row["estado"],
        "versao": row["versao"],
        "desfecho": row["desfecho"],
        "motivo": row["motivo"],
        "falhas": row["falhas"],
        "venceEm": instant(row["vence_em"]),
        "criadoEm": instant(row["criado_em"]),
        "mudadoEm": instant(row["mudado_em"]),
    }


def step_shown(row: Row) -> dict[str, Any]:
    """One line of a timeline."""
    return {
        "quando": instant(row["quando"]),
        "versao": row["versao"],
        "atividade": row["atividade"],
        "evento": row["evento"],
        "detalhe": row["detalhe"],
    }
