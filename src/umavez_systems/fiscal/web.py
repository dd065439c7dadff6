"""Routes of fiscal documents: thin. Bodies are read within limits, numbers stay exact, refusals are problems."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import httpx
from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.responses import JSONResponse, Response

from umavez.http import replay_marks
from umavez_systems.fiscal import views
from umavez_systems.fiscal.assembly import DEMO, DEMO_DATA, SENHA_DEMO, Sistema
from umavez_systems.fiscal.cases import Caller, Resultado
from umavez_systems.fiscal.domain import Estado, Tipo
from umavez_systems.fiscal.organizations import emitente_de
from umavez_systems.fiscal.rules.identifiers import invalid
from umavez_systems.fiscal.rules.orders import justificativa_de, lote_de, pedido_de, texto
from umavez_systems.fiscal.wire.certificate import refuse_endless
from umavez_systems.fiscal.wire.pdf import danfe
from umavez_systems.front.pages import add_page
from umavez_systems.money import exact_json
from umavez_systems.openapi import LATER, answers
from umavez_systems.principals import LONGEST_USUARIO, acting
from umavez_systems.problems import Problem
from umavez_systems.web import carrier_of, key_of

T = TypeVar("T")
API = "/api/v1/fiscal"
router = APIRouter(tags=["fiscal"])
PRIVATE = {"Cache-Control": "no-store"}
NAME = r"^[!-~ -ÿ]{1,60}$"
"""An organisation's name in an address: text without control characters."""
EXAMPLE: dict[str, Any] = {
    "tipo": "NFE",
    "organizacao": "demo",
    "serie": 1,
    "destinatario": {"nome": "Maria Souza", "cpf": "529.982.247-25", "endereco": DEMO_DATA["endereco"]},
    "itens": [
        {
            "codigo": "1",
            "descricao": "Caneta azul",
            "ncm": "96081000",
            "cfop": "5102",
            "unidade": "UN",
            "quantidade": "2",
            "valor_unitario": "1.50",
        }
    ],
    "pagamentos": [{"forma": "01", "valor": "3.00"}],
}
SERVICE = {"descricao": "Consultoria", "codigo": "02919", "valor": "100.00", "aliquota": "2"}
BATCH = {"transacao": False, "documentos": [{"tipo": "NFSE_SP", "organizacao": "demo", "serie": 1, "servico": SERVICE}]}
LONGEST_BATCH_KEY = 252
"""Characters: the place of a document in its batch is written behind it."""
Key = Annotated[str | None, Header(description="1 a 255 caracteres; repetir é seguro")]
Authorization = Annotated[str | None, Header()]
Limite = Annotated[int, Query(ge=1, le=500)]
Usuario = Annotated[str | None, Header(max_length=LONGEST_USUARIO)]


async def _caller(
    request: Request,
    authorization: Authorization = None,
    idempotency_key: Key = None,  # noqa: ARG001  # to be described; read by the contract's own rules
    x_usuario: Usuario = None,
) -> Caller:
    """Who calls and under which key. Raises 400 and 401 problems."""
    principal = carrier_of(request).principals.of(authorization)
    return Caller(principal, key_of(request), acting(principal, x_usuario))


Calling = Annotated[Caller, Depends(_caller)]


def _body(example: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"}, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


@router.get(f"{API}/ambiente")
async def environment(request: Request, caller: Calling) -> Response:
    """The environment, the authorities' addresses and, with the simulator, the address of its control API."""

    def look(system: Sistema) -> dict[str, Any]:
        system.demo(caller.principal)
        return system.onde()

    return JSONResponse(await _run(request, look), headers=PRIVATE)


@router.post(f"{API}/organizacoes", status_code=201, openapi_extra=_body({**DEMO_DATA, "id": "loja"}))
async def create_organisation(request: Request, caller: Calling) -> Response:
    """Register who emits. `certificado` is a PKCS#12 in base64 with its `senha`; kept sealed, never shown."""
    data = await _read(request)

    def create(system: Sistema) -> tuple[dict[str, Any], bool]:
        pfx, password = _certificate(system, data)
        row, made = system.organizacoes.criar(caller.principal, data, pfx, password, system.ambiente)
        return views.organizacao(row), made

    shown, made = await _run(request, create)
    return JSONResponse(shown, 201 if made else 200, headers=PRIVATE if made else _replayed())


def _certificate(system: Sistema, data: dict[str, Any]) -> tuple[bytes, str]:
    given = data.get("certificado")
    if given is None and system.ambiente == "simulador":
        emitter = emitente_de(data)
        return system.cartorio.a1(emitter.cnpj, emitter.nome, SENHA_DEMO), SENHA_DEMO
    if not isinstance(given, str) or not isinstance(data.get("senha"), str):
        raise invalid("certificado e senha: envie o PKCS#12 (A1) em base64 e a senha dele.")
    try:
        pfx = base64.b64decode(given, validate=True)
    except ValueError:
        raise invalid("certificado: não é base64.") from None
    refuse_endless(pfx, data["senha"])
    return pfx, data["senha"]


@router.get(f"{API}/organizacoes")
async def list_organisations(
    request: Request, caller: Calling, depois: str | None = Query(None, pattern=NAME), limite: Limite = 50
) -> Response:
    """A page of the caller's organisations, by id; `depois` is the last id of the page before."""

    def look(system: Sistema) -> list[dict[str, Any]]:
        system.demo(caller.principal)
        return [views.organizacao(row) for row in system.organizacoes.pagina(caller.principal, depois or "", limite)]

    return JSONResponse(views.pagina(await _run(request, look), limite), headers=PRIVATE)


@router.post(f"{API}/documentos", status_code=201, responses=LATER, openapi_extra=_body(EXAMPLE))
async def emit(request: Request, caller: Calling) -> Response:
    """Take a number, build, sign, store and emit, once per key. 202: nobody knows yet, and somebody will ask.

    A service invoice (NFSE_ADN, NFSE_SP) has `servico` in place of `itens` and `pagamentos`.
    """
    order = pedido_de(await _read(request))

    def run(system: Sistema) -> Resultado:
        if order.organizacao == DEMO:
            system.demo(caller.principal)
        return system.fiscal.emitir(caller, order)

    return _answer(await _run(request, run), 201)


@router.post(f"{API}/lotes", status_code=201, responses=LATER, openapi_extra=_body(BATCH))
async def emit_batch(request: Request, caller: Calling) -> Response:
    """Emit up to 50 NFSE_SP in one message. The key gets each document's place: pedido-1.0, pedido-1.1, …"""
    orders, together = lote_de(await _read(request))
    if caller.key is not None and len(caller.key) > LONGEST_BATCH_KEY:
        raise invalid(f"Idempotency-Key: até {LONGEST_BATCH_KEY} caracteres em um lote.")
    keys = [None if caller.key is None else f"{caller.key}.{place}" for place in range(len(orders))]
    callers = [replace(caller, key=key) for key in keys]

    def run(system: Sistema) -> list[Resultado]:
        if any(order.organizacao == DEMO for order in orders):
            system.demo(caller.principal)
        return system.lotes.emitir(list(zip(callers, orders, strict=True)), transacao=together)

    found = await _run(request, run)
    shown = {"itens": [views.documento(one.row, one.origem) for one in found]}
    waiting = [one.row["proximo_em"] or 0 for one in found if one.row["estado"] in views.WAITING]
    if waiting:
        return JSONResponse(shown, 202, headers=_later(max(waiting)))
    repeated = all(one.repetida for one in found)
    return JSONResponse(shown, 200 if repeated else 201, headers=_replayed() if repeated else PRIVATE)


@router.get(f"{API}/documentos")
async def list_documents(
    request: Request,
    caller: Calling,
    organizacao: str | None = Query(None, pattern=NAME),
    estado: Estado | None = None,
    antes: str | None = Query(None, pattern=r"^[0-9]{1,15}-[0-9a-f]{32}$"),
    limite: Limite = 50,
) -> Response:
    """Documents, newest first; `antes` continues after a page."""
    rows = await _run(
        request,
        lambda system: system.fiscal.documentos(
            caller.principal, organizacao=organizacao, estado=estado, antes=antes, limite=limite
        ),
    )
    following = f"{rows[-1]['criado_em']}-{rows[-1]['id']}" if len(rows) == limite else None
    return JSONResponse({"itens": [views.documento(row) for row in rows], "proximo": following}, headers=PRIVATE)


@router.get(f"{API}/documentos/{{number}}")
async def get_document(request: Request, number: str, caller: Calling) -> Response:
    """One document with its acts."""

    def look(system: Sistema) -> dict[str, Any]:
        row = system.fiscal.documento(caller.principal, number)
        return {**views.documento(row), "atos": [views.ato(act) for act in system.fiscal.atos_de(row["id"])]}

    shown = await _run(request, look)
    return JSONResponse(shown, headers={**PRIVATE, "ETag": f'"{shown["versao"]}"'})


@router.get(f"{API}/documentos/{{number}}/xml", **answers("application/xml"))
async def get_xml(request: Request, number: str, caller: Calling) -> Response:
    """The signed document, with its protocol once it is authorised."""
    row = await _run(request, lambda system: system.fiscal.documento(caller.principal, number))
    return Response(views.xml(row), media_type="application/xml", headers=PRIVATE)


@router.get(f"{API}/documentos/{{number}}/pdf", **answers("application/pdf"))
async def get_pdf(request: Request, number: str, caller: Calling) -> Response:
    """DANFE, DANFC-e or DANFSe: of what is authorised, or may be handed over before it is (offline, EPEC)."""

    def draw(system: Sistema) -> bytes:
        row = system.fiscal.documento(caller.principal, number)
        if not views.imprimivel(row):
            detail = f"Documento em estado {row['estado']} não se imprime: ainda não acompanha mercadoria nem serviço."
            raise Problem(409, "sem-autorizacao", "Documento não autorizado", detail, estado=row["estado"])
        return danfe(views.xml(row), row["modelo"], cancelada=row["estado"] == Estado.CANCELADO)

    return Response(await _run(request, draw), media_type="application/pdf", headers=PRIVATE)


@router.get(f"{API}/documentos/{{number}}/prova")
async def get_proof(request: Request, number: str, caller: Calling) -> Response:
    """Everything that brought a document to its state, hash-chained; `falhas` is empty when nothing was changed."""
    found = await _run(request, lambda system: system.livros.prova(caller.principal, number))
    return JSONResponse(found, headers=PRIVATE)


@router.post(
    f"{API}/documentos/{{number}}/cancelar",
    responses=LATER,
    openapi_extra=_body({"justificativa": "Pedido desfeito pelo cliente", "versao": 3}),
)
async def cancel(request: Request, number: str, caller: Calling) -> Response:
    """Cancel an authorised document, once. 202: pending until the authority proves one or the other."""
    data = await _read(request)
    why, version = justificativa_de(data), _version(data)
    other = None if data.get("substituta") is None else texto(data, "substituta", 44, 44)
    found = await _run(request, lambda system: system.fiscal.cancelar(caller, number, why, version, other))
    return _answer(found, 200)


@router.post(
    f"{API}/documentos/{{number}}/carta-correcao",
    status_code=201,
    responses=LATER,
    openapi_extra=_body({"texto": "O endereco correto e Rua Dois, 2"}),
)
async def correct(request: Request, number: str, caller: Calling) -> Response:
    """Send a correction letter; the same text is the same letter."""
    text = justificativa_de(await _read(request), "texto", 1000)
    act, there = await _run(request, lambda system: system.fiscal.corrigir(caller, number, text))
    return _act_answer(act, there)


@router.post(f"{API}/documentos/{{number}}/conciliar", responses=LATER)
async def reconcile(request: Request, number: str, caller: Calling) -> Response:
    """Ask the authority about a document now, and adopt what it says."""
    return _answer(await _run(request, lambda system: system.fiscal.conciliar(caller, number)), 200)


@router.get(f"{API}/numeracao")
async def numbering(request: Request, caller: Calling, organizacao: str | None = Query(None, pattern=NAME)) -> Response:
    """Every series with the fate of its numbers, and what may be voided."""
    found = await _run(request, lambda system: system.livros.numeracao(caller.principal, organizacao))
    return JSONResponse({"itens": [views.faixa(series) for series in found]}, headers=PRIVATE)


VOIDING = {"organizacao": "demo", "tipo": "NFE", "serie": 1, "primeiro": 5, "ultimo": 7}


@router.post(
    f"{API}/inutilizacoes",
    status_code=201,
    responses=LATER,
    openapi_extra=_body({**VOIDING, "justificativa": "Numeros pulados por erro do sistema"}),
)
async def void(request: Request, caller: Calling) -> Response:
    """Void numbers that were given and not used, once their absence at the authority is proven."""
    data = await _read(request)
    tipo, why = texto(data, "tipo", 1, 8), justificativa_de(data)
    if tipo not in ("NFE", "NFCE"):
        raise invalid("tipo: NFE ou NFCE.")
    where = texto(data, "organizacao", 1, 60)
    serie, first, last = (_integer(data, name) for name in ("serie", "primeiro", "ultimo"))
    act, there = await _run(
        request, lambda system: system.livros.inutilizar(caller, where, Tipo(tipo), serie, first, last, why)
    )
    return _act_answer(act, there)


@router.get(f"{API}/pendencias")
async def deadlines(request: Request, caller: Calling) -> Response:
    """What is open, the right that is lost first in front."""
    found, now = await _run(request, lambda system: system.livros.pendencias(caller.principal))
    return JSONResponse({"itens": [views.pendencia(one, now) for one in found]}, headers=PRIVATE)


@router.get(f"{API}/simulador/falhas")
async def list_faults(request: Request, _caller: Calling) -> Response:
    """The simulator's faults in line; the same as its control API shows."""
    return await _run(request, lambda system: _controlled(system, "GET", None))


@router.post(
    f"{API}/simulador/falhas",
    status_code=201,
    openapi_extra=_body({"servico": "autorizacao", "quando": "depois", "tipo": "queda"}),
)
async def order_fault(request: Request, _caller: Calling) -> Response:
    """Let the simulator fail; handed on to its control API."""
    data = await _read(request)
    return await _run(request, lambda system: _controlled(system, "POST", data))


@router.delete(f"{API}/simulador/falhas")
async def forget_faults(request: Request, _caller: Calling) -> Response:
    """Forget the simulator's faults."""
    return await _run(request, lambda system: _controlled(system, "DELETE", None))


def _controlled(system: Sistema, method: str, data: dict[str, Any] | None) -> Response:
    if system.ambiente != "simulador":
        raise Problem(404, "sem-simulador", "Sem simulador", "Este servidor fala com autoridades de verdade.")
    body = None if data is None else json.dumps(data, default=float)
    address = f"{system.simulador().controle}/_sim/falhas"
    try:
        answer = httpx.request(method, address, content=body, timeout=10.0, trust_env=False)
    except httpx.HTTPError as error:
        raise Problem(503, "sem-simulador", "Sem simulador", "O simulador não responde; tente de novo.") from error
    if answer.status_code >= 400:
        raise invalid(f"O simulador não aceita este pedido: {answer.text[:500]}")
    return Response(answer.content, answer.status_code, media_type="application/json", headers=PRIVATE)


async def _read(request: Request) -> dict[str, Any]:
    """The request's body as an object, its numbers exact. Raises 400, 413 and 422 problems."""
    data = exact_json(await carrier_of(request).body(request))
    if not isinstance(data, dict):
        raise invalid("corpo: informe um objeto.")
    return data


async def _run(request: Request, case: Callable[[Sistema], T]) -> T:
    carrier = carrier_of(request)
    return await carrier.run(case, carrier.fiscal)


def _integer(data: dict[str, Any], name: str) -> int:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 999_999_999:
        raise invalid(f"{name}: número inteiro de 0 a 999999999.")
    return value


def _version(data: dict[str, Any]) -> int:
    if "versao" not in data:
        raise invalid("versao: informe a versão lida.")
    return _integer(data, "versao")


def _answer(found: Resultado, status: int) -> Response:
    """201 or 200; 200 for a repeat; 202 while nobody knows, with when to come back."""
    shown = views.documento(found.row, found.origem)
    if found.row["estado"] not in views.WAITING:
        headers = _replayed() if found.repetida else PRIVATE
        return JSONResponse(shown, 200 if found.repetida else status, headers=headers)
    return JSONResponse(shown, 202, headers=_later(found.row["proximo_em"]))


def _later(planned: int | None) -> dict[str, str]:
    """When to come back: when somebody will have looked again."""
    seconds = 1 if planned is None else max(1, round(planned / 1000 - time.time()))
    return {**PRIVATE, "Retry-After": str(seconds)}


def _act_answer(act: Any, there: bool) -> Response:
    if act["estado"] == "RECUSADO":
        said = f"A autoridade recusou: {act['codigo']} {act['motivo']}"
        raise Problem(422, "ato-recusado", "Recusado pela autoridade", said[:500], codigo=act["codigo"])
    if act["estado"] != "FEITO":
        return JSONResponse(views.ato(act), 202, headers=_later(act["proximo_em"]))
    return JSONResponse(views.ato(act), 200 if there else 201, headers=_replayed() if there else PRIVATE)


def _replayed() -> dict[str, str]:
    return {**PRIVATE, **replay_marks(True)}


add_page(router, "/fiscal", "umavez_systems.fiscal.pagina")
