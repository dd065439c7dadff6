"""Routes after the payer's analysis: demonstrativos, glosas, recursos, and messages of TISS. Thin."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import HTMLResponse, JSONResponse, Response

from umavez_systems.front.navigation import framed
from umavez_systems.openapi import answers
from umavez_systems.processos import views
from umavez_systems.processos.assembly import Processos
from umavez_systems.processos.attempts import Step
from umavez_systems.processos.contas.database import reais
from umavez_systems.processos.contas.domain import MOST_APPEALED, Tipo, recurso_of
from umavez_systems.processos.domain import lote_of
from umavez_systems.processos.pagina import pages
from umavez_systems.processos.tiss.lote import lote_message
from umavez_systems.processos.web import API, CLAIM, INSTANCE, Place, Principal, answered, read, run
from umavez_systems.web import body_schema, carrier_of

router = APIRouter(tags=["processos"])
XML = ("application/xml", "text/xml")
FILE = {"requestBody": {"required": True, "content": {kind: {"schema": {"type": "string"}} for kind in XML}}}
Operadora = Annotated[str, Query(pattern=r"^[0-9]{6}$")]
Protocolo = Annotated[str, Path(max_length=64)]
Numero = Annotated[str, Path(max_length=20)]
Situacao = Literal["aberta", "recorrida", "vencida"]


class RequestStatement(Place):
    """request_statement's parameters."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "processInstanceId": INSTANCE,
                    "activityId": "Task_Demonstrativo",
                    "operadora": "326305",
                    "claimId": "CLM-000001",
                    "tipo": "analise",
                }
            ]
        }
    )
    operadora: str = Field(pattern=r"^[0-9]{6}$")
    claimId: str = Field(min_length=1, max_length=64)  # noqa: N815  # the seed's name
    tipo: Tipo = Tipo.ANALISE


class SubmitAppeal(Place):
    """submit_appeal's parameters: which glosas, for how much, and why."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "processInstanceId": INSTANCE,
                    "activityId": "Task_Recurso",
                    "operadora": "326305",
                    "claimId": "CLM-000001",
                    "numeroRecurso": "R-001",
                    "itens": [
                        {
                            "numeroGuiaPrestador": "G-001",
                            "sequencialItem": 1,
                            "codigoGlosa": "1801",
                            "valorRecursado": "50.00",
                            "justificativa": "Procedimento autorizado, senha em anexo.",
                        }
                    ],
                }
            ]
        }
    )
    operadora: str = Field(pattern=r"^[0-9]{6}$")
    claimId: str = Field(min_length=1, max_length=64)  # noqa: N815  # the seed's name
    numeroRecurso: str = Field(min_length=1, max_length=20)  # noqa: N815  # TISS's way of writing
    itens: list[dict[str, Any]] = Field(min_length=1, max_length=MOST_APPEALED)


class LoteTiss(BaseModel):
    """A lote that is to be written as a TISS message."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"claimData": CLAIM}]})
    claimData: dict[str, Any]  # noqa: N815  # the seed's name


@router.post(f"{API}/request_statement", status_code=201, openapi_extra=body_schema(RequestStatement))
async def request_statement(request: Request, principal: Principal) -> Response:
    """Ask the payer for a demonstrativo and keep its glosas, once per process instance, activity and protocolo."""
    data = await read(request, RequestStatement)
    step = Step(principal, data.processInstanceId, data.activityId)
    return answered(
        await run(
            request,
            lambda system: system.recursos.request_statement(step, data.operadora, data.claimId, data.tipo),
        )
    )


@router.post(f"{API}/import_statement", status_code=201, openapi_extra=FILE)
async def import_statement(
    request: Request,
    principal: Principal,
    processInstanceId: Annotated[str, Query(min_length=1, max_length=64)],  # noqa: N803  # the seed's name
    activityId: Annotated[str, Query(min_length=1, max_length=255)],  # noqa: N803  # the seed's name
) -> Response:
    """Keep a demonstrativo that was received as a file: a TISS message whose hash and sums are right."""
    data = await carrier_of(request).body(request, *XML)
    step = Step(principal, processInstanceId, activityId)
    return answered(await run(request, lambda system: system.recursos.import_statement(step, data)))


@router.post(f"{API}/submit_appeal", status_code=201, openapi_extra=body_schema(SubmitAppeal))
async def submit_appeal(request: Request, principal: Principal) -> Response:
    """Appeal against glosas in time, once per process instance, activity and content; each glosa in one recurso."""
    data = await read(request, SubmitAppeal)
    recurso = recurso_of(data.operadora, data.claimId, data.numeroRecurso, data.itens)
    step = Step(principal, data.processInstanceId, data.activityId)
    return answered(await run(request, lambda system: system.recursos.submit_appeal(step, recurso)))


@router.get(f"{API}/recursos/{{numero:path}}")
async def get_appeal(
    request: Request,
    numero: Numero,
    principal: Principal,
    operadora: Operadora,
    claimId: Annotated[str, Query(min_length=1, max_length=64)],  # noqa: N803  # the seed's name
) -> Response:
    """Where a recurso stands, asked from the payer now."""
    return JSONResponse(
        await run(request, lambda system: system.recursos.appeal(principal, operadora, claimId, numero))
    )


@router.get(f"{API}/glosas")
async def list_glosas(
    request: Request,
    principal: Principal,
    protocolo: str | None = Query(None, min_length=1, max_length=64),
    situacao: Situacao | None = None,
    depois: int = Query(0, ge=0, le=2**31 - 1, description="o id da última glosa já vista"),
    limite: int = Query(100, ge=1, le=1000),
) -> Response:
    """Glosas by item, with the day until which each can be appealed against and what became of its recurso."""
    found = await run(
        request, lambda system: system.recursos.glosas.glosas(principal, protocolo, situacao, depois, limite)
    )
    return JSONResponse({"itens": found})


@router.get(f"{API}/contas/{{protocolo:path}}")
async def get_account(request: Request, protocolo: Protocolo, principal: Principal, operadora: Operadora) -> Response:
    """A protocolo's demonstrativos, and what happened to it."""

    def look(system: Processos) -> dict[str, Any]:
        statements, events = system.recursos.glosas.account(principal, operadora, protocolo)
        return {
            "demonstrativos": [
                {
                    "statementId": row["numero"],
                    "tipo": row["tipo"],
                    "emissao": row["emissao"],
                    "dataPagamento": row["pagamento"],
                    "valorInformado": reais(row["informado_centavos"]),
                    "valorLiberado": reais(row["liberado_centavos"]),
                    "valorGlosado": reais(row["informado_centavos"] - row["liberado_centavos"]),
                    "recebidoEm": views.instant(row["recebido_em"]),
                }
                for row in statements
            ],
            "historico": [
                {"quando": views.instant(row["quando"]), "evento": row["evento"], "detalhe": row["detalhe"]}
                for row in events
            ],
        }

    return JSONResponse(await run(request, look))


@router.post(f"{API}/tiss/lote", **{**answers("application/xml"), "openapi_extra": body_schema(LoteTiss)})
async def tiss_lote(request: Request, principal: Principal) -> Response:  # noqa: ARG001  # who may ask is checked
    """A lote as a TISS message with its hash. Nothing is sent and nothing is kept."""
    data = await read(request, LoteTiss)
    lote = lote_of(data.claimData)
    return Response(lote_message(lote, datetime.now(UTC)), media_type="application/xml", headers=pages.PRIVATE)


@router.get("/glosas", **answers("text/html"))
async def glosas_page(request: Request, principal: Principal, situacao: Situacao | None = None) -> HTMLResponse:
    """The glosas as a page, with the terms of their recursos."""
    found = await run(request, lambda system: system.recursos.glosas.glosas(principal, None, situacao, limit=1000))
    return framed(request, pages.glosas_page(found), pages.HEADERS)
