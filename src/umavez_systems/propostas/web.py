"""Routes of clientes and propostas: thin. They read the request, call a use case and show its result."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from umavez_systems.money import ExactJson, exact_json
from umavez_systems.problems import Problem
from umavez_systems.propostas.domain import ACOES, IdempotenciaKey, Proposta
from umavez_systems.propostas.operations import Caller, Propostas
from umavez_systems.web import Carrier, body_schema, carrier_of

_EMAIL = r"^[^@\s]{1,64}@[^@\s]{1,185}$"
LONGEST_USUARIO = 255


class _Route(APIRoute):
    """A route that asks for nothing but its caller is called with it straight away.

    FastAPI still documents the headers from the signature. Letting it solve them too, for each request, takes a fifth
    of the processor time of a replay.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's own handler where there are parameters of the path or the query to read."""
        if self.dependant.path_params or self.dependant.query_params:
            return super().get_route_handler()
        endpoint = self.endpoint

        async def handle(request: Request) -> Response:
            answer: Response = await endpoint(request, _caller_of(request))
            return answer

        return handle


router = APIRouter(prefix="/api/v1", tags=["propostas"], route_class=_Route)


class NovoCliente(BaseModel):
    """What a new cliente needs."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"nome": "João Silva", "email": "joao@example.com", "documento": "123.456.789-00"}]
        }
    )
    nome: str = Field(min_length=1, max_length=255)
    email: str = Field(min_length=3, max_length=250, pattern=_EMAIL)
    documento: str | None = Field(None, max_length=20)


class NovaProposta(BaseModel):
    """What a new proposta needs. `valor` is exact: it is read from the JSON text, never through a float."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"cliente_id": 1, "valor": 1500.00}]})
    cliente_id: int = Field(ge=1, le=2**31 - 1)
    valor: Any = Field(json_schema_extra={"type": "number"})


class Mudanca(BaseModel):
    """A change of state: the version it starts from, and why."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"versao": 1}]})
    versao: int | None = Field(None, ge=1, le=2**31 - 1)
    motivo: str | None = Field(None, max_length=2000)


Key = Annotated[str | None, Header(description="1 a 255 caracteres; repetir é seguro")]
Prefer = Annotated[str | None, Header(description="handling=strict: recusa corpo diferente (422)")]
Usuario = Annotated[str | None, Header(max_length=LONGEST_USUARIO)]


async def _caller(
    request: Request,
    idempotency_key: Key = None,  # noqa: ARG001  # to be described, as are its neighbours
    prefer: Prefer = None,  # noqa: ARG001  # the same
    x_usuario: Usuario = None,  # noqa: ARG001  # the same
) -> Caller:
    """The caller, with the headers that say who it is, for FastAPI to document."""
    return _caller_of(request)


def _caller_of(request: Request) -> Caller:
    """Who calls and under which key. Raises 400, 401 and 422 problems."""
    headers = request.headers
    principal = carrier_of(request).principals.of(headers.get("authorization"))
    keys = headers.getlist("idempotency-key")
    if len(keys) > 1:
        raise Problem(400, "chave-invalida", "Chave de idempotência inválida", "Envie um só cabeçalho Idempotency-Key.")
    usuario = headers.get("x-usuario")
    if usuario is not None and len(usuario) > LONGEST_USUARIO:
        raise _invalid(f"x-usuario: no máximo {LONGEST_USUARIO} caracteres.")
    key = IdempotenciaKey(_unquoted(keys[0])) if keys else None
    return Caller(principal, key, usuario or principal, "handling=strict" in headers.get("prefer", ""))


def _unquoted(key: str) -> str:
    """The draft standard writes keys in quotes, most clients do not; both are one key."""
    return key[1:-1] if len(key) > 1 and key[0] == key[-1] == '"' else key


Calling = Annotated[Caller, Depends(_caller)]


@router.post("/clientes", status_code=201, openapi_extra=body_schema(NovoCliente))
async def create_cliente(request: Request, caller: Calling) -> Response:
    """Create a cliente; the same key again gives the same cliente, as it is now."""
    try:
        data = await _read(request, NovoCliente)
    except Problem as problem:
        return await _replayed_anyway(request, caller, lambda case: case.cliente_of_key(caller), problem)
    cliente, replayed = await _run(
        request, lambda case: case.create_cliente(caller, data.nome, data.email, data.documento)
    )
    return _created(cliente.shown(), replayed)


@router.post("/propostas", status_code=201, openapi_extra=body_schema(NovaProposta))
async def create_proposta(request: Request, caller: Calling) -> Response:
    """Create a proposta in rascunho; the same key again gives the same one, with its current state."""
    try:
        data = await _read(request, NovaProposta)
    except Problem as problem:
        return await _replayed_anyway(request, caller, lambda case: case.proposta_of_key(caller), problem)
    proposta, replayed = await _run(request, lambda case: case.create_proposta(caller, data.cliente_id, data.valor))
    return _created(proposta.shown(), replayed, proposta)


@router.get("/clientes/{number}")
async def get_cliente(request: Request, number: int, caller: Calling) -> Response:
    """One cliente."""
    return ExactJson((await _run(request, lambda case: case.cliente(caller.principal, _bounded(number)))).shown())


@router.get("/clientes")
async def list_clientes(
    request: Request, caller: Calling, depois: int = Query(0, ge=0), limite: int = Query(50, ge=1, le=500)
) -> Response:
    """A page of clientes; `depois` is the last id of the page before."""
    return _page(await _run(request, lambda case: case.clientes(caller.principal, depois, limite)), limite)


@router.get("/propostas/{number}")
async def get_proposta(request: Request, number: int, caller: Calling) -> Response:
    """One proposta, with its version as ETag."""
    proposta = await _run(request, lambda case: case.proposta(caller.principal, _bounded(number)))
    return ExactJson(proposta.shown(), headers=_etag(proposta))


@router.get("/propostas")
async def list_propostas(
    request: Request, caller: Calling, depois: int = Query(0, ge=0), limite: int = Query(50, ge=1, le=500)
) -> Response:
    """A page of propostas; `depois` is the last id of the page before."""
    return _page(await _run(request, lambda case: case.propostas(caller.principal, depois, limite)), limite)


@router.get("/propostas/{number}/historico")
async def get_history(request: Request, number: int, _caller: Calling) -> Response:
    """Who changed a proposta, when and how."""
    rows = await _run(request, lambda case: case.history(_bounded(number)))
    return ExactJson({"itens": [{**row, "created_at": str(row["created_at"])} for row in rows]})


def _change_route(name: str) -> None:
    @router.post(f"/propostas/{{number}}/{name}", name=name, openapi_extra=body_schema(Mudanca))
    async def change(request: Request, number: int, caller: Calling) -> Response:
        data = await _read(request, Mudanca)
        versao = _version(request, data)
        try:
            proposta, replayed = await _run(
                request, lambda case: case.change(caller, name, _bounded(number), versao, data.motivo)
            )
        except Problem as problem:
            raise _precondition(request, problem) from None
        return ExactJson(proposta.state(), headers={**_etag(proposta), **_marks(replayed)})

    change.__doc__ = f"{name.capitalize()} a proposta; the same key again does not run again and shows it as it is now."


for _name in ACOES:
    _change_route(_name)


async def _read(request: Request, model: type[Any]) -> Any:
    """The request's body as `model`, its numbers exact. Raises 400, 413 or 422 problems."""
    data = exact_json(await carrier_of(request).body(request))
    try:
        found = model.model_validate(data)
    except ValidationError as error:
        where = error.errors()[0]
        detail = f"{'.'.join(str(part) for part in where['loc']) or 'corpo'}: {where['msg']}"
        raise _invalid(detail) from error
    if any("\x00" in text for text in vars(found).values() if isinstance(text, str)):
        raise _invalid("Textos não podem conter o caractere NUL.")
    return found


def _invalid(detail: str) -> Problem:
    return Problem(422, "dados-invalidos", "Dados inválidos", detail)


async def _replayed_anyway(
    request: Request, caller: Caller, look: Callable[[Propostas], Any], problem: Problem
) -> Response:
    """The key comes before every rule (seed 000 §3): one that was used answers, whatever body it comes with now."""
    if caller.key is None or caller.strict or problem.status == 413:
        raise problem
    entity = await _run(request, look)
    if entity is None:
        raise problem
    return _created(entity.shown(), True, entity if isinstance(entity, Proposta) else None)


async def _run(request: Request, case: Callable[[Propostas], Any]) -> Any:
    carrier: Carrier = carrier_of(request)
    return await carrier.run(case, carrier.propostas)


def _version(request: Request, data: Mudanca) -> int:
    """The version the caller saw: from If-Match, or from the body."""
    match = request.headers.get("if-match")
    if match is not None:
        text = match.strip().removeprefix("W/").strip('"')
        if not text.isdigit():
            raise Problem(412, "if-match", "If-Match não confere", 'Envie If-Match: "<versao>".')
        return int(text[:10])
    if data.versao is None:
        raise _invalid("versao: informe a versão lida, ou envie If-Match.")
    return data.versao


def _precondition(request: Request, problem: Problem) -> Problem:
    """A stale version is 409 when it came in the body and 412 when it came as If-Match."""
    if problem.kind == "versao-desatualizada" and "if-match" in request.headers:
        problem.status = 412
    return problem


def _bounded(number: int) -> int:
    """An id that the database can hold; a larger one is unknown, not an error of ours."""
    return number if 0 < number < 2**31 else 0


def _created(body: dict[str, Any], replayed: bool, proposta: Proposta | None = None) -> Response:
    headers = {**_marks(replayed), **({} if proposta is None else _etag(proposta))}
    return ExactJson(body, 200 if replayed else 201, headers=headers)


def _marks(replayed: bool) -> dict[str, str]:
    marks = {"Cache-Control": "no-store"}
    if replayed:
        marks["Idempotent-Replayed"] = "true"
    return marks


def _etag(proposta: Proposta) -> dict[str, str]:
    return {"ETag": f'"{proposta.versao}"'}


def _page(items: list[Any], limit: int) -> Response:
    shown = [item.shown() for item in items]
    return ExactJson({"itens": shown, "proximo": shown[-1]["id"] if len(shown) == limit else None})
