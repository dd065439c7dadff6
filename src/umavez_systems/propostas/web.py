"""Routes of clientes and propostas: thin. They read the request, call a use case and show its result."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from umavez.http import replay_marks
from umavez_systems.complaints import Numbered, complaint
from umavez_systems.database import shown_instant
from umavez_systems.money import ExactJson, exact_json
from umavez_systems.principals import LONGEST_USUARIO, acting
from umavez_systems.problems import Problem
from umavez_systems.propostas.bodies import (
    LARGEST_ID,
    ClienteInteiro,
    Mudanca,
    MudancaDeCliente,
    MudancaDeProposta,
    NovaProposta,
    NovoCliente,
    PropostaInteira,
)
from umavez_systems.propostas.domain import ACOES, ALTERAR_PROPOSTA, Cliente, Estado, IdempotenciaKey, Proposta
from umavez_systems.propostas.operations import Propostas
from umavez_systems.propostas.reading import Caller
from umavez_systems.web import Carrier, body_schema, carrier_of, key_of, strict_of

IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "description": "A versão lida, em vez de `versao` no corpo; 412 se não for a atual, 400 se não for uma marca",
    "schema": {"type": "string", "pattern": r'^"[!#-~]{1,60}"$'},
}
_TAG = re.compile(r'(?:W/)?"([!#-~]{1,60})"|([0-9]{1,10})')
"""An entity tag (RFC 9110); the bare number is taken, too."""
_VERSION = re.compile(r"[0-9]{1,10}")


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

Key = Annotated[str | None, Header(description="1 a 255 caracteres; repetir é seguro")]
Prefer = Annotated[str | None, Header(description="handling=strict: recusa corpo diferente (422)")]
Usuario = Annotated[str | None, Header(max_length=LONGEST_USUARIO, description="em nome de quem; só anotado")]


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
    usuario = acting(principal, headers.get("x-usuario"))
    sent = key_of(request)
    key = None if sent is None else IdempotenciaKey(sent)
    return Caller(principal, key, usuario, strict_of(request))


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
    return _created(cliente, replayed)


@router.post("/propostas", status_code=201, openapi_extra=body_schema(NovaProposta))
async def create_proposta(request: Request, caller: Calling) -> Response:
    """Create a proposta in rascunho; the same key again gives the same one, with its current state."""
    try:
        data = await _read(request, NovaProposta)
    except Problem as problem:
        return await _replayed_anyway(request, caller, lambda case: case.proposta_of_key(caller), problem)
    said = (data.cliente_id, data.valor, data.validade)
    proposta, replayed = await _run(request, lambda case: case.create_proposta(caller, *said))
    return _created(proposta, replayed)


@router.get("/clientes/{number}")
async def get_cliente(request: Request, number: Numbered, caller: Calling) -> Response:
    """One cliente, with its version as ETag."""
    cliente = await _run(request, lambda case: case.cliente(caller.principal, _bounded(number)))
    return ExactJson(cliente.shown(), headers=_etag(cliente))


@router.get("/clientes")
async def list_clientes(
    request: Request,
    caller: Calling,
    depois: int = Query(0, ge=0, le=LARGEST_ID),
    limite: int = Query(50, ge=1, le=500),
    email: str | None = Query(None, max_length=250),
    documento: str | None = Query(None, max_length=20),
) -> Response:
    """A page of clientes; `depois` is the last id of the page before."""
    _refuse_unknown_filters(request, "email", "documento")
    found = await _run(request, lambda case: case.clientes(caller.principal, depois, limite, email, documento))
    return _page(found, limite)


@router.get("/propostas/{number}")
async def get_proposta(request: Request, number: Numbered, caller: Calling) -> Response:
    """One proposta, with its version as ETag."""
    proposta = await _run(request, lambda case: case.proposta(caller.principal, _bounded(number)))
    return ExactJson(proposta.shown(), headers=_etag(proposta))


@router.get("/propostas")
async def list_propostas(
    request: Request,
    caller: Calling,
    depois: int = Query(0, ge=0, le=LARGEST_ID),
    limite: int = Query(50, ge=1, le=500),
    estado: Estado | None = None,
    cliente_id: int | None = Query(None, ge=1, le=LARGEST_ID),
) -> Response:
    """A page of propostas; `depois` is the last id of the page before."""
    _refuse_unknown_filters(request, "estado", "cliente_id")
    where = (None if estado is None else estado.value, cliente_id)
    return _page(await _run(request, lambda case: case.propostas(caller.principal, depois, limite, *where)), limite)


@router.get("/propostas/{number}/historico")
async def get_history(request: Request, number: Numbered, _caller: Calling) -> Response:
    """Who changed a proposta, when and how."""
    rows = await _run(request, lambda case: case.history(_bounded(number)))
    return ExactJson({"itens": [{**row, "created_at": shown_instant(row["created_at"])} for row in rows]})


@router.get("/clientes/{number}/historico")
async def get_cliente_history(request: Request, number: Numbered, _caller: Calling) -> Response:
    """Who changed a cliente, when and what: each field with what it was and what it became."""
    rows = await _run(request, lambda case: case.cliente_history(_bounded(number)))
    shown = [
        {**row, "mudancas": exact_json(row["mudancas"]), "created_at": shown_instant(row["created_at"])} for row in rows
    ]
    return ExactJson({"itens": shown})


def _edit_cliente_route(method: str, model: type[BaseModel]) -> None:
    @router.api_route("/clientes/{number}", methods=[method], name="alterar", openapi_extra=body_schema(model))
    async def edit(request: Request, number: Numbered, caller: Calling) -> Response:
        try:
            changes, versao = await _said(request, model)
        except Problem as problem:
            return await _replayed_anyway(
                request, caller, lambda case: case.cliente_of_operation(caller, _bounded(number)), problem
            )
        return await _changed(request, lambda case: case.edit_cliente(caller, _bounded(number), versao, changes))

    edit.__doc__ = "Change a cliente; the same key again does not run again and shows it as it is now."


def _edit_proposta_route(method: str, model: type[BaseModel]) -> None:
    @router.api_route("/propostas/{number}", methods=[method], name="alterar", openapi_extra=body_schema(model))
    async def edit(request: Request, number: Numbered, caller: Calling) -> Response:
        try:
            changes, versao = await _said(request, model)
        except Problem as problem:
            return await _replayed_anyway(request, caller, _operation(caller, ALTERAR_PROPOSTA, number), problem)
        motivo = changes.pop("motivo", None)
        return await _changed(
            request, lambda case: case.edit_proposta(caller, _bounded(number), versao, changes, motivo)
        )

    edit.__doc__ = "Change a rascunho; the same key again does not run again and shows it as it is now."


_edit_cliente_route("PATCH", MudancaDeCliente)
_edit_cliente_route("PUT", ClienteInteiro)
_edit_proposta_route("PATCH", MudancaDeProposta)
_edit_proposta_route("PUT", PropostaInteira)


async def _said(request: Request, model: type[BaseModel]) -> tuple[dict[str, Any], int]:
    """What shall change, and from which version. A whole entity says everything; a part only what stands in it."""
    data = await _read(request, model)
    changes = data.model_dump(exclude_unset=model in (MudancaDeCliente, MudancaDeProposta), exclude={"versao"})
    if not changes:
        raise _invalid("Nada a alterar: informe ao menos um campo.")
    return changes, _version(request, data)


async def _changed(request: Request, case: Callable[[Propostas], Any]) -> Response:
    try:
        entity, replayed = await _run(request, case)
    except Problem as problem:
        raise _precondition(request, problem) from None
    return ExactJson(entity.shown(), headers={**_etag(entity), **replay_marks(replayed)})


def _operation(caller: Caller, operacao: str, number: int) -> Callable[[Propostas], Any]:
    return lambda case: case.proposta_of_operation(caller, operacao, _bounded(number))


def _change_route(name: str) -> None:
    @router.post(
        f"/propostas/{{number}}/{name}", name=name, openapi_extra={**body_schema(Mudanca), "parameters": [IF_MATCH]}
    )
    async def change(request: Request, number: Numbered, caller: Calling) -> Response:
        try:
            data = await _read(request, Mudanca)
            versao = _version(request, data)
        except Problem as problem:
            look = _operation(caller, ACOES[name].operacao, number)
            return await _replayed_anyway(request, caller, look, problem, state=True)
        try:
            proposta, replayed = await _run(
                request, lambda case: case.change(caller, name, _bounded(number), versao, data.motivo)
            )
        except Problem as problem:
            raise _precondition(request, problem) from None
        return ExactJson(proposta.state(), headers={**_etag(proposta), **replay_marks(replayed)})

    change.__doc__ = f"{name.capitalize()} a proposta; the same key again does not run again and shows it as it is now."


for _name in ACOES:
    _change_route(_name)


def _refuse_unknown_filters(request: Request, *known: str) -> None:
    """A filter that nobody knows would else give everything, as if it all matched. Raises a 422 problem."""
    wrong = set(request.query_params) - {*known, "depois", "limite"}
    if wrong:
        raise _invalid(f"Filtro desconhecido: {min(wrong)[:60]}. Os filtros são {', '.join(known)}, depois e limite.")


async def _read(request: Request, model: type[Any]) -> Any:
    """The request's body as `model`, its numbers exact. Raises 400, 413 or 422 problems."""
    data = exact_json(await carrier_of(request).body(request))
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _invalid(complaint(error.errors())) from error


def _invalid(detail: str) -> Problem:
    return Problem(422, "dados-invalidos", "Dados inválidos", detail)


async def _replayed_anyway(
    request: Request, caller: Caller, look: Callable[[Propostas], Any], problem: Problem, *, state: bool = False
) -> Response:
    """The key comes before every rule (seed 000 §3): one that was used answers, whatever body it comes with now."""
    if caller.key is None or caller.strict or problem.status in (408, 413, 415):
        raise problem
    entity = await _run(request, look)
    if entity is None:
        raise problem
    return _created(entity, True, state=state)


async def _run(request: Request, case: Callable[[Propostas], Any]) -> Any:
    carrier: Carrier = carrier_of(request)
    return await carrier.run(case, carrier.propostas)


def _version(request: Request, data: Any) -> int:
    """The version the caller saw: from If-Match, or from the body."""
    match = request.headers.get("if-match")
    if match is not None:
        tag = _TAG.fullmatch(match.strip())
        if tag is None:
            raise Problem(400, "if-match-invalido", "If-Match inválido", 'Envie If-Match: "<versao>".')
        text = tag[1] or tag[2]
        if not _VERSION.fullmatch(text) or int(text) > LARGEST_ID:
            raise Problem(412, "if-match", "If-Match não confere", 'Envie If-Match: "<versao>".')
        return int(text)
    if data.versao is None:
        raise _invalid("versao: informe a versão lida, ou envie If-Match.")
    return int(data.versao)


def _precondition(request: Request, problem: Problem) -> Problem:
    """A stale version is 409 when it came in the body and 412 when it came as If-Match."""
    stale = problem.name == "versao-desatualizada" and "if-match" in request.headers
    return problem.called(412) if stale else problem


def _bounded(number: int) -> int:
    """An id that the database can hold; a larger one is unknown, not an error of ours."""
    return number if 0 < number <= LARGEST_ID else 0


def _created(entity: Cliente | Proposta, replayed: bool, *, state: bool = False) -> Response:
    body = entity.state() if state and isinstance(entity, Proposta) else entity.shown()
    return ExactJson(body, 200 if replayed else 201, headers={**replay_marks(replayed), **_etag(entity)})


def _etag(entity: Cliente | Proposta) -> dict[str, str]:
    return {"ETag": f'"{entity.versao}"'}


def _page(items: list[Any], limit: int) -> Response:
    shown = [item.shown() for item in items]
    return ExactJson({"itens": shown, "proximo": shown[-1]["id"] if len(shown) == limit else None})
