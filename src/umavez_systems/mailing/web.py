"""Routes of mailing: thin. They read the request, call a use case and show its result."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import JSONResponse, Response, StreamingResponse

from umavez.http import replay_marks
from umavez_systems.complaints import complaint
from umavez_systems.database import Row
from umavez_systems.mailing.domain import Entry, invalid
from umavez_systems.mailing.ingest.uploads import receive, spooled
from umavez_systems.mailing.operations import Mailings, Upload
from umavez_systems.mailing.views import entry_shown, mailing_shown, report_lines, uploaded
from umavez_systems.money import exact_json
from umavez_systems.openapi import KEY, answers
from umavez_systems.principals import LONGEST_USUARIO
from umavez_systems.problems import Problem
from umavez_systems.web import Carrier, body_schema, carrier_of, key_of

router = APIRouter(tags=["mailing"])
PAGE = 1000
_PRIVATE = {"Cache-Control": "no-store"}


def principal_of(request: Request) -> str:
    """Who calls. Raises a 401 problem, and a 403 one for a form that another site's page sends from a browser."""
    origin, host = request.headers.get("origin"), request.headers.get("host")
    if request.method != "GET" and origin and origin not in (f"http://{host}", f"https://{host}"):
        raise Problem(403, "outra-origem", "Outra origem", "Esta página não pode enviar por aqui.")
    return carrier_of(request).principals.of(request.headers.get("authorization"))


Principal = Annotated[str, Depends(principal_of)]


class Reenvio(BaseModel):
    """Which entries to send again; none named: every FAILED one."""

    entradas: list[str] | None = Field(None, max_length=1000)


class Decisao(BaseModel):
    """What somebody decided about a mail of which nobody knows."""

    resultado: str = Field(max_length=20, json_schema_extra={"enum": ["enviado", "reenviar", "falhou"]})
    por: str = Field(min_length=1, max_length=LONGEST_USUARIO)
    motivo: str = Field(min_length=1, max_length=1000)


FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "string", "format": "binary", "description": "CSV com uma coluna de e-mails"},
                        **{name: {"type": "string"} for name in ("assunto", "texto", "html", "template", "remetente")},
                        "identidade": {"type": "string", "enum": ["nome", "conteudo"]},
                        "reingestao": {"type": "string", "enum": ["manter", "repor"]},
                        "duvida": {"type": "string", "enum": ["segurar", "reenviar", "perguntar"]},
                    },
                }
            }
        },
    }
}


@router.post("/mailings", openapi_extra={**FORM, "parameters": [KEY]}, status_code=201)
async def upload(request: Request, principal: Principal) -> Response:
    """Upload a list: 201 for a new mailing, 200 with the same one for the same file again."""
    carrier = carrier_of(request)
    with spooled(carrier.settings.spool) as spool:
        name, fields = await receive(
            request.headers.get("content-type"), request.stream(), spool, carrier.settings.mailing_max_bytes
        )
        wish = Upload(name, fields, key_of(request))
        row, made = await carrier.run(carrier.mailing.cases.upload, principal, wish, spool)
        body = uploaded(row, made, spool.content_hash)
    headers = {**_PRIVATE, "Location": f"/mailings/{row['id']}"}
    return JSONResponse(body, 201 if made else 200, {**headers, **replay_marks(not made)})


@router.get("/mailings")
async def list_mailings(
    request: Request,
    principal: Principal,
    depois: str = Query("", max_length=64),
    limite: int = Query(50, ge=1, le=500),
) -> Response:
    """A page of mailings, newest first."""
    rows = await _run(request, lambda case: case.mailings(principal, depois, limite))
    return _listed([_shown(request, row) for row in rows], rows, limite)


@router.get("/mailings/{number}")
async def show(request: Request, number: str, principal: Principal) -> Response:
    """One mailing: status, counters, line report, and what was done to it."""
    row = await _run(request, lambda case: case.mailing(principal, number))
    history = await _run(request, lambda case: case.history(principal, number))
    return JSONResponse({**_shown(request, row), "historico": history}, headers=_PRIVATE)


@router.get("/mailings/{number}/entries")
async def list_entries(
    request: Request,
    number: str,
    principal: Principal,
    status: Entry | Literal[""] = "",
    depois: str = Query("", max_length=64),
    limite: int = Query(100, ge=1, le=PAGE),
) -> Response:
    """A page of entries, in the order of the lines."""
    rows = await _run(request, lambda case: case.entries(principal, number, status or None, depois, limite))
    return _listed([entry_shown(row) for row in rows], rows, limite)


@router.get("/mailings/{number}/relatorio.csv", **answers("text/csv"))
async def report(request: Request, number: str, principal: Principal) -> Response:
    """The ledger of a mailing as CSV, streamed."""
    carrier = carrier_of(request)
    row = await _run(request, lambda case: case.mailing(principal, number))

    def pages() -> Iterator[list[Row]]:
        after = ""
        while page := carrier.mailing.cases.entries(principal, number, None, after, PAGE):
            yield page
            after = page[-1]["id"]

    name = json.dumps(f"relatorio-{row['id']}.csv")
    headers = {**_PRIVATE, "Content-Disposition": f"attachment; filename={name}"}
    return StreamingResponse(
        threaded(carrier, report_lines(pages())), media_type="text/csv; charset=utf-8", headers=headers
    )


def blocks(lines: Iterator[str], many: int = PAGE) -> Iterator[bytes]:
    """Lines, so many at a time."""
    while found := "".join(islice(lines, many)):
        yield found.encode()


async def threaded(carrier: Carrier, lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The same, each made in a thread, when the reader is ready for it."""
    while (block := await carrier.run(lambda: next(lines, None))) is not None:
        yield block


@router.get("/mailings/{number}/progresso", **answers("text/event-stream"))
async def progress(request: Request, number: str, principal: Principal) -> Response:
    """Server-sent events: the mailing as it is, whenever it changed, until it ends."""

    async def look() -> dict[str, Any]:
        return _shown(request, await _run(request, lambda case: case.mailing(principal, number)))

    await look()
    watchers = carrier_of(request).mailing.watchers
    watchers.refuse_crowd(principal)
    events = watchers.follow(principal, look, request.is_disconnected)
    return StreamingResponse(events, media_type="text/event-stream", headers={**_PRIVATE, "X-Accel-Buffering": "no"})


@router.post("/mailings/{number}/pausar")
async def pause(request: Request, number: str, principal: Principal) -> Response:
    """Stop between two groups of mails."""
    return _answer(request, await _run(request, lambda case: case.pause(principal, number, principal)))


@router.post("/mailings/{number}/retomar")
async def resume(request: Request, number: str, principal: Principal) -> Response:
    """Go on after a pause or a failure."""
    row = await _run(request, lambda case: case.resume(principal, number, principal))
    return _answer(request, row)


@router.post("/mailings/{number}/cancelar")
async def cancel(request: Request, number: str, principal: Principal) -> Response:
    """Send nothing more, for good."""
    return _answer(request, await _run(request, lambda case: case.cancel(principal, number, principal)))


@router.post("/mailings/{number}/reenviar", openapi_extra=body_schema(Reenvio, required=False))
async def resend(request: Request, number: str, principal: Principal) -> Response:
    """Send FAILED entries again: all, or those named in `entradas`."""
    wish = await read_json(request, Reenvio)
    row, many = await _run(request, lambda case: case.resend(principal, number, principal, wish.entradas))
    return JSONResponse({**_shown(request, row), "reenviadas": many}, headers=_PRIVATE)


@router.post("/mailings/{number}/entries/{entry}/resolver", openapi_extra=body_schema(Decisao))
async def resolve(request: Request, number: str, entry: str, principal: Principal) -> Response:
    """Decide about an UNKNOWN entry: `enviado`, `reenviar` or `falhou`, with who and why."""
    wish = await read_json(request, Decisao)
    by = f"{principal}: {wish.por}"
    row = await _run(request, lambda case: case.resolve(principal, number, entry, wish.resultado, by, wish.motivo))
    return JSONResponse(entry_shown(row), headers=_PRIVATE)


def _shown(request: Request, row: Row) -> dict[str, Any]:
    return mailing_shown(row, carrier_of(request).settings.mailing_group)


def _answer(request: Request, row: Row) -> Response:
    return JSONResponse(_shown(request, row), headers=_PRIVATE)


def _listed(items: list[dict[str, Any]], rows: list[Row], limit: int) -> Response:
    return JSONResponse({"itens": items, "proximo": rows[-1]["id"] if len(rows) == limit else None}, headers=_PRIVATE)


async def read_json(request: Request, model: type[BaseModel]) -> Any:
    """The request's JSON as `model`; an empty body is an empty object. Raises 400, 413 and 422 problems."""
    body = await carrier_of(request).body(request)
    try:
        return model.model_validate(exact_json(body) if body.strip() else {})
    except ValidationError as error:
        raise invalid(complaint(error.errors())) from error


async def _run(request: Request, case: Callable[[Mailings], Any]) -> Any:
    carrier = carrier_of(request)
    return await carrier.run(case, carrier.mailing.cases)
