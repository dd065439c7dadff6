"""Routes around mailings: templates, previews, suppression, unsubscribing, the development mailbox."""

from __future__ import annotations

import html
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse

from umavez_systems.complaints import Numbered
from umavez_systems.front.pages import HEADERS, add_page
from umavez_systems.mailing.domain import shown_moment, unknown
from umavez_systems.mailing.ingest.uploads import receive, spooled
from umavez_systems.mailing.providers.sink import inbox, letter
from umavez_systems.mailing.suppression import REASONS
from umavez_systems.mailing.web import FORM, Principal, blocks, read_json, threaded
from umavez_systems.openapi import answers
from umavez_systems.web import body_schema, carrier_of

router = APIRouter(tags=["mailing"])
PREVIEW_LONGEST = 4_000_000
_PRIVATE = {"Cache-Control": "no-store"}
_PAGE = {
    **HEADERS,
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
        " frame-src 'self'; form-action 'self'; frame-ancestors 'self'"
    ),
}
# A mail is a stranger's page: it may show itself, and nothing else.
_LETTER = {
    **_PAGE,
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'self'"
    ),
}


class Modelo(BaseModel):
    """A kept template."""

    assunto: str = Field(min_length=1, max_length=998)
    texto: str | None = Field(None, max_length=500_000)
    html: str | None = Field(None, max_length=500_000)


class Supressao(BaseModel):
    """Addresses that are never to be written to."""

    emails: list[str] = Field(min_length=1, max_length=10_000)
    motivo: str = Field("manual", max_length=20, json_schema_extra={"enum": list(REASONS)})
    detalhe: str | None = Field(None, max_length=500)


@router.put("/mailings/modelos/{name}", openapi_extra=body_schema(Modelo))
async def put_template(request: Request, name: str, principal: Principal) -> Response:
    """Keep a template under a name."""
    wish: Modelo = await read_json(request, Modelo)
    carrier = carrier_of(request)
    await carrier.run(carrier.mailing.letters.put, principal, name, wish.assunto, wish.texto, wish.html)
    return JSONResponse({"nome": name}, headers=_PRIVATE)


@router.delete("/mailings/modelos/{name}")
async def forget_template(request: Request, name: str, principal: Principal) -> Response:
    """Forget a template."""
    carrier = carrier_of(request)
    if not await carrier.run(carrier.mailing.letters.remove, principal, name):
        raise unknown("modelo", name)
    return JSONResponse({"nome": name}, headers=_PRIVATE)


@router.get("/mailings/modelos")
async def list_templates(request: Request, principal: Principal) -> Response:
    """Every template."""
    carrier = carrier_of(request)
    rows = await carrier.run(carrier.mailing.letters.all, principal)
    return JSONResponse(
        {"itens": [{**row, "updated_at": shown_moment(row["updated_at"])} for row in rows]}, headers=_PRIVATE
    )


@router.post("/mailings/previa", openapi_extra=FORM)
async def preview_first(request: Request, principal: Principal) -> Response:
    """What the first people of a list would get; nothing is kept. The beginning of the file is enough."""
    carrier = carrier_of(request)
    with spooled() as spool:
        name, fields = await receive(request.headers.get("content-type"), request.stream(), spool, PREVIEW_LONGEST)
        shown = await carrier.run(carrier.mailing.letters.preview_of, principal, name, fields, spool)
    return JSONResponse(shown, headers=_PRIVATE)


@router.get("/mailings/{number}/previa")
async def preview(request: Request, number: str, principal: Principal, limite: int = Query(5, ge=1, le=20)) -> Response:
    """What the first people of a mailing get, without sending anything."""
    carrier = carrier_of(request)
    return JSONResponse(
        {"itens": await carrier.run(carrier.mailing.letters.preview, principal, number, limite)}, headers=_PRIVATE
    )


@router.get("/mailings/supressao")
async def suppressed(
    request: Request,
    principal: Principal,
    depois: str = Query("", max_length=255),
    limite: int = Query(100, ge=1, le=1000),
) -> Response:
    """A page of addresses that are never written to."""
    carrier = carrier_of(request)
    rows = await carrier.run(carrier.mailing.suppressions.page, principal, depois, limite)
    items = [{**row, "created_at": shown_moment(row["created_at"])} for row in rows]
    return JSONResponse(
        {"itens": items, "proximo": rows[-1]["email"] if len(rows) == limite else None}, headers=_PRIVATE
    )


@router.get("/mailings/supressao.csv", **answers("text/csv"))
async def suppressed_csv(request: Request, principal: Principal) -> Response:
    """Every address that is never written to, streamed; `umavez mailing suppress import` takes it."""
    carrier = carrier_of(request)
    lines = carrier.mailing.suppressions.export_lines(principal)
    headers = {**_PRIVATE, "Content-Disposition": 'attachment; filename="supressao.csv"'}
    return StreamingResponse(threaded(carrier, blocks(lines)), media_type="text/csv; charset=utf-8", headers=headers)


@router.post("/mailings/supressao", openapi_extra=body_schema(Supressao))
async def suppress(request: Request, principal: Principal) -> Response:
    """Never write to these addresses again."""
    wish: Supressao = await read_json(request, Supressao)
    carrier = carrier_of(request)
    many = await carrier.run(carrier.mailing.suppressions.add, principal, wish.emails, wish.motivo, wish.detalhe)
    return JSONResponse({"novas": many}, headers=_PRIVATE)


@router.delete("/mailings/supressao/{email:path}")
async def allow(request: Request, email: str, principal: Principal) -> Response:
    """Allow an address again."""
    carrier = carrier_of(request)
    if not await carrier.run(carrier.mailing.suppressions.remove, principal, email):
        raise unknown("endereco", email)
    return JSONResponse({"email": email}, headers=_PRIVATE)


@router.get("/descadastrar/{token}", **answers("text/html", public=True))
async def unsubscribe_page(request: Request, token: str) -> Response:
    """Ask before unsubscribing: machines follow links, people press buttons."""
    carrier = carrier_of(request)
    entry = await carrier.run(carrier.mailing.suppressions.of_token, token)
    asked = f"Não enviar mais mensagens a <b>{html.escape(entry['email'])}</b>?"
    return _plain(f'<p>{asked}</p><form method="post"><button>Descadastrar</button></form>')


@router.post("/descadastrar/{token}", **answers("text/html", public=True))
async def unsubscribe(request: Request, token: str) -> Response:
    """Unsubscribe: from the page, or with one click by RFC 8058. Safe to repeat."""
    carrier = carrier_of(request)
    email = await carrier.run(carrier.mailing.suppressions.unsubscribe, token)
    return _plain(f"<p><b>{html.escape(email)}</b> não receberá mais mensagens.</p>")


def _plain(body: str) -> Response:
    head = '<!doctype html><html lang="pt-BR"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    return HTMLResponse(f"{head}<title>Descadastro</title><main>{body}</main>", headers={**_PAGE, **_PRIVATE})


@router.get("/mailings/caixa")
async def mailbox(
    request: Request, principal: Principal, antes: int = Query(0, ge=0, le=2**62), limite: int = Query(50, ge=1, le=200)
) -> Response:
    """What the development sink holds, newest first."""
    carrier = carrier_of(request)
    rows = await carrier.run(inbox, carrier.database, principal, antes, limite)
    items = [{**row, "created_at": shown_moment(row["created_at"])} for row in rows]
    return JSONResponse({"itens": items, "proximo": rows[-1]["id"] if len(rows) == limite else None}, headers=_PRIVATE)


@router.get("/mailings/caixa/{number}")
async def letter_shown(request: Request, number: Numbered, principal: Principal) -> Response:
    """One mail of the mailbox: its headers and texts."""
    message = await _letter(request, principal, number)
    parts = {kind: _text(message, kind) for kind in ("plain", "html")}
    headers = [[name, str(value)] for name, value in message.items()]
    return JSONResponse({"cabecalhos": headers, "texto": parts["plain"], "html": parts["html"]}, headers=_PRIVATE)


@router.get("/mailings/caixa/{number}/html", **answers("text/html"))
async def letter_page(request: Request, number: Numbered, principal: Principal) -> Response:
    """The HTML of one mail, shut in."""
    text = _text(await _letter(request, principal, number), "html")
    return HTMLResponse(text or "", headers=_LETTER)


async def _letter(request: Request, principal: str, number: int) -> EmailMessage:
    carrier = carrier_of(request)
    content = await carrier.run(letter, carrier.database, principal, number) if 0 < number < 2**62 else None
    if content is None:
        raise unknown("carta", str(number))
    message: Any = message_from_bytes(content, policy=policy.default)
    found: EmailMessage = message
    return found


def _text(message: EmailMessage, kind: str) -> str | None:
    part = message.get_body((kind,))
    return None if part is None else str(part.get_content())


add_page(router, "/mailing", "umavez_systems.mailing.pagina", _PAGE)
