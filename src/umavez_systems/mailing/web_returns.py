"""Routes for what comes back: a provider's reports, signed by it or sent by a caller, and bounces that came by mail."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from umavez_systems.mailing.domain import invalid, unknown
from umavez_systems.mailing.providers.bounces import bounce_of
from umavez_systems.mailing.providers.returns import EVENTS, entry_of, report_of, signed
from umavez_systems.mailing.web import Principal, read_json
from umavez_systems.money import exact_json
from umavez_systems.problems import Problem
from umavez_systems.web import body_schema, carrier_of

router = APIRouter(tags=["mailing"])
BOUNCE = "message/rfc822"
_MAIL = {
    "requestBody": {"required": True, "content": {BOUNCE: {"schema": {"type": "string"}}}},
}
_PRIVATE = {"Cache-Control": "no-store"}


class Retorno(BaseModel):
    """What a provider reports about mails: type, and what names the mail."""

    tipo: str = Field(max_length=40, json_schema_extra={"pattern": r"^(email\.)?(delivered|bounced|complained)$"})
    messageId: str | None = Field(None, max_length=998)  # noqa: N815  # the body's own name
    entrada: str | None = Field(None, max_length=64)
    detalhe: str = Field("", max_length=2000)


class Aviso(BaseModel):
    """An event as the provider sends it (Resend's public contract): more fields may stand beside these."""

    type: str = Field(max_length=60)
    data: dict[str, Any] = Field(default_factory=dict)


@router.post("/mailings/retornos", openapi_extra=body_schema(Retorno))
async def bounce_report(request: Request, principal: Principal) -> Response:
    """A provider's report: `delivered`, `bounced` or `complained`, also as email.delivered and so on."""
    wish: Retorno = await read_json(request, Retorno)
    event = wish.tipo.removeprefix("email.")
    if event not in EVENTS:
        raise invalid("tipo deve ser delivered, bounced ou complained.")
    entry = wish.entrada or entry_of(wish.messageId or "")
    return await _told(request, principal, entry, event, wish.detalhe or event)


@router.post("/mailings/retornos/dsn", openapi_extra=_MAIL)
async def bounce_mail(request: Request, principal: Principal) -> Response:
    """A bounce as it came by mail (RFC 3464)."""
    carrier = carrier_of(request)
    found = await carrier.run(bounce_of, await carrier.body(request, BOUNCE))
    if found is None:
        raise invalid("O corpo não é um aviso de falha permanente de um e-mail deste sistema.")
    return await _told(request, principal, found.entry, found.event, found.detail, hard=found.hard)


async def _told(
    request: Request, principal: str, entry: str | None, event: str, detail: str, *, hard: bool = True
) -> Response:
    carrier = carrier_of(request)
    told = partial(carrier.mailing.suppressions.told, principal, entry or "", event, detail, hard=hard)
    if not await carrier.run(told):
        raise unknown("entrada", entry or "")
    return JSONResponse({"entrada": entry, "tipo": event}, headers=_PRIVATE)


@router.post("/mailings/retornos/provedor", openapi_extra={**body_schema(Aviso), "security": []})
async def provider_report(request: Request) -> Response:
    """A report that the provider itself sends and signs: `UMAVEZ_MAILING_HTTP_SECRET` proves that it is its own.

    What is of no interest here, and mails that are not known, are taken too: a refusal would only be sent again.
    """
    carrier = carrier_of(request)
    body = await carrier.body(request)
    if not signed(carrier.settings.mailing_http_secret, request.headers, body, time.time()):
        detail = "A assinatura não confere com UMAVEZ_MAILING_HTTP_SECRET, ou é velha."
        raise Problem(401, "assinatura", "Assinatura inválida", detail)
    report = report_of(exact_json(body))
    known = report is not None and await carrier.run(
        partial(carrier.mailing.suppressions.reported, report.entry, report.event, report.detail, hard=report.hard)
    )
    return JSONResponse({"conhecido": known}, headers=_PRIVATE)
