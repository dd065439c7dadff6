"""Routes of processos: thin. Operations and records in the words of seed 003; process instances; their pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Header, Query, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import HTMLResponse, JSONResponse, Response

from umavez import Happened, NotHappened, Outcome, Status, UmavezError
from umavez.http import replay_marks
from umavez_systems.complaints import Flag, complaint
from umavez_systems.front.navigation import framed
from umavez_systems.money import ExactJson, exact_json
from umavez_systems.openapi import answers
from umavez_systems.principals import LONGEST_USUARIO, acting
from umavez_systems.problems import Problem
from umavez_systems.processos import troubles, views
from umavez_systems.processos.assembly import Processos
from umavez_systems.processos.attempts import Step
from umavez_systems.processos.domain import Glosa, lote_of, valor_of
from umavez_systems.processos.pagina import pages
from umavez_systems.processos.ports import PortalError
from umavez_systems.web import body_schema, carrier_of

T = TypeVar("T")
router = APIRouter(tags=["processos"])
API = "/api/v1"
LONGEST_AGE = 100 * 366 * 86_400
"""Seconds. Beyond a century is a mistake, and beyond some ages no instant is left to compare with."""
CLAIM: dict[str, Any] = {
    "operadora": "326305",
    "prestador": "2077469",
    "numeroLote": "L-001",
    "tipoGuia": "sp_sadt",
    "guias": [
        {
            "numeroGuiaPrestador": "G-001",
            "carteira": "00123456789",
            "beneficiario": "Maria Souza",
            "procedimento": "10101012",
            "valor": "150.00",
            "dataAtendimento": "2026-07-01",
        }
    ],
}
INSTANCE = "a3f2e1d4-5c6b-7a8b-9c0d-1e2f3a4b5c6d"


class Place(BaseModel):
    """Where an operation belongs."""

    processInstanceId: str = Field(min_length=1, max_length=64)  # noqa: N815  # the seed's name
    activityId: str = Field(min_length=1, max_length=255)  # noqa: N815  # the seed's name


class SubmitClaim(Place):
    """submit_claim's parameters (seed 003)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"processInstanceId": INSTANCE, "activityId": "Task_SubmitClaim", "claimData": CLAIM}]
        }
    )
    claimData: dict[str, Any]  # noqa: N815  # the seed's name


class ProcessPayment(Place):
    """process_payment's parameters."""

    operadora: str = Field(pattern=r"^[0-9]{6}$")
    claimId: str = Field(min_length=1, max_length=64)  # noqa: N815  # the seed's name
    valor: str = Field(json_schema_extra={"pattern": r"^[0-9]{1,8}(\.[0-9]{1,2})?$"})


class NovoProcesso(BaseModel):
    """What a process instance starts from. The id may be the caller's own: repeating is then safe."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": "atendimento-42", "claimData": CLAIM}]})
    id: str | None = None
    claimData: dict[str, Any]  # noqa: N815  # the seed's name
    prazo: str = "P1D"


class Resolucao(BaseModel):
    """What somebody found out about an operation of unknown outcome."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"happened": False, "reason": "Operadora confirma por telefone"}]}
    )
    happened: Flag
    result: dict[str, Any] | None = None
    reason: str = Field(min_length=1, max_length=1000)


async def _principal(request: Request, authorization: Annotated[str | None, Header()] = None) -> str:
    return carrier_of(request).principals.of(authorization)


Principal = Annotated[str, Depends(_principal)]
Usuario = Annotated[str | None, Header(max_length=LONGEST_USUARIO)]


@router.post(f"{API}/submit_claim", status_code=201, openapi_extra=body_schema(SubmitClaim))
async def submit_claim(request: Request, principal: Principal) -> Response:
    """Hand a lote of guias in to the payer, once per process instance, activity and content."""
    data = await read(request, SubmitClaim)
    lote = lote_of(data.claimData)
    step = Step(principal, data.processInstanceId, data.activityId)
    return answered(await run(request, lambda system: system.faturamento.submit_claim(step, lote)))


@router.post(f"{API}/process_payment", status_code=201, openapi_extra=body_schema(ProcessPayment))
async def process_payment(request: Request, principal: Principal) -> Response:
    """Ask for the payment of a protocolo, once per process instance, activity and content."""
    data = await read(request, ProcessPayment)
    valor = f"{valor_of(data.valor):.2f}"
    step = Step(principal, data.processInstanceId, data.activityId)
    return answered(
        await run(request, lambda system: system.faturamento.process_payment(step, data.operadora, data.claimId, valor))
    )


@router.get(f"{API}/idempotency_records")
async def list_records(
    request: Request,
    principal: Principal,
    process_instance_id: str | None = Query(None, max_length=64),
    status: Status | None = None,
    older_than: float | None = Query(None, ge=0, le=LONGEST_AGE, description="segundos desde a criação"),
    limit: int = Query(100, ge=1, le=1000),
) -> Response:
    """Records by process instance, or by status and age: what is stuck. Results are not shown here."""

    def look(system: Processos) -> list[dict[str, Any]]:
        found = system.faturamento.records(
            principal, process_instance=process_instance_id, status=status, older_than=older_than, limit=limit
        )
        return system.shown(found)

    return JSONResponse({"records": await run(request, look)})


@router.get(f"{API}/idempotency_records/{{key:path}}")
async def get_record(request: Request, key: str, principal: Principal, result: bool = False) -> Response:
    """One record; `result=true` opens its result too."""

    def look(system: Processos) -> dict[str, Any]:
        record = system.faturamento.record(principal, key)
        (shown,) = system.shown([record])
        if result:
            shown["resultData"] = system.faturamento.result(principal, record) if shown["hasResult"] else None
        return shown

    return ExactJson(await run(request, look), headers={"Cache-Control": "no-store"})


@router.post(f"{API}/idempotency_records/{{key:path}}/resolve", openapi_extra=body_schema(Resolucao))
async def resolve_record(request: Request, key: str, principal: Principal, x_usuario: Usuario = None) -> Response:
    """Close a record of unknown outcome by decision; who decided and why is kept with it."""
    by = acting(principal, x_usuario)
    data = await read(request, Resolucao)
    answer = Happened(data.result) if data.happened else NotHappened()

    def decide(system: Processos) -> dict[str, Any]:
        (shown,) = system.shown([system.faturamento.resolve(principal, key, answer, by=by, reason=data.reason)])
        return shown

    return JSONResponse(await run(request, decide))


@router.post(f"{API}/processos", status_code=201, openapi_extra=body_schema(NovoProcesso))
async def start_process(request: Request, principal: Principal) -> Response:
    """Start an instance of the billing process and move it on as far as it goes."""
    data = await read(request, NovoProcesso)
    lote = lote_of(data.claimData)

    def start(system: Processos) -> tuple[dict[str, Any], bool]:
        row, there = system.runner.start(principal, data.id, lote, data.prazo)
        return views.process_shown(system.runner.advance(principal, row["id"])), there

    shown, there = await run(request, start)
    headers = {**replay_marks(there), **({} if there else {"Location": f"{API}/processos/{shown['id']}"})}
    return JSONResponse(shown, 200 if there else 201, headers=headers)


@router.post(f"{API}/processos/{{number}}/retomar")
async def resume_process(request: Request, number: str, principal: Principal) -> Response:
    """Move an instance on: after a failure, a timer, or an incident that was dealt with. Safe to repeat."""
    row = await run(request, lambda system: system.runner.advance(principal, number, force=True))
    return JSONResponse(views.process_shown(row))


@router.get(f"{API}/processos")
async def list_processes(
    request: Request,
    principal: Principal,
    estado: str | None = Query(None, pattern="^(ativo|esperando|incidente|encerrado)$"),
    limite: int = Query(50, ge=1, le=500),
) -> Response:
    """Instances, newest first."""
    rows = await run(request, lambda system: system.runner.instances(principal, estado, limit=limite))
    return JSONResponse({"itens": [views.process_shown(row) for row in rows]})


@router.get(f"{API}/processos/{{number}}")
async def get_process(request: Request, number: str, principal: Principal) -> Response:
    """One instance with its timeline, the state of each task, and its records."""
    return JSONResponse(await run(request, lambda system: pages.detail(system, principal, number)))


@router.get("/processos", **answers("text/html"))
async def list_page(request: Request, principal: Principal) -> HTMLResponse:
    """The instances as a page."""
    rows = await run(request, lambda system: system.runner.instances(principal, limit=200))
    return framed(request, pages.list_page([views.process_shown(row) for row in rows]), pages.HEADERS)


@router.get("/processos/{number}", **answers("text/html"))
async def process_page(request: Request, number: str, principal: Principal) -> HTMLResponse:
    """One instance as a page: the process drawn with the state of each task, its records and its timeline."""
    page = await run(request, lambda system: pages.process_page(system, principal, number))
    return framed(request, page, pages.HEADERS)


async def read(request: Request, model: type[Any]) -> Any:
    """The request's body as `model`. The problem names the field, never its content: it may be a patient's."""
    data = exact_json(await carrier_of(request).body(request))
    try:
        return model.model_validate(data)
    except ValidationError as error:
        detail = complaint(error.errors(include_input=False))
        raise Problem(422, "dados-invalidos", "Dados inválidos", detail) from None


async def run(request: Request, case: Callable[[Processos], T]) -> T:
    """Run a use case in a thread; its errors become problems."""
    carrier = carrier_of(request)
    try:
        return await carrier.run(case, carrier.processos)
    except (UmavezError, PortalError, Glosa) as error:
        raise troubles.problem_of(error) from error


def answered(outcome: Outcome[dict[str, Any]]) -> Response:
    """What an operation gave: 201 the first time, 200 when it is repeated."""
    body = {"idempotencyKey": outcome.key.value, **outcome.value}
    return ExactJson(body, 200 if outcome.replayed else 201, headers=replay_marks(outcome.replayed))
