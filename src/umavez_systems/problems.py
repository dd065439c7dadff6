"""Problems: every refusal as problem+json (RFC 9457), in the words of the systems."""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from umavez import (
    ConfigurationError,
    InvalidKey,
    NotStorable,
    OutcomeUnreadable,
    SchemaOutdated,
    StoreError,
    UmavezError,
)
from umavez import http as contract
from umavez.http import Kind, problem_of
from umavez_systems.complaints import complaint
from umavez_systems.gates.answers import PROBLEM
from umavez_systems.openapi import Documented
from umavez_systems.words import CATALOGUE

LOG = logging.getLogger("umavez.systems")
ROUTING = {
    400: "A requisição não pode ser lida; confira o endereço, os cabeçalhos e o corpo.",
    404: "Não há nada neste endereço.",
    405: "Este endereço não aceita este método.",
    406: "Este endereço não tem o formato pedido em Accept.",
    413: "A requisição é maior do que este endereço aceita.",
    415: "Este endereço não aceita este tipo de conteúdo.",
}
"""What the framework itself says in English."""
REFUSED = "A requisição não pode ser atendida como está."
KEY_WORDS = "A chave e os nomes do que se repete são textos de 1 a 255 caracteres, sem o caractere NUL."
NOT_KEPT = "Algo do que foi enviado não pode ser guardado; encurte ou corrija os textos e envie de novo."
CONFLICT = "O que está registrado não permite isto agora; consulte o estado atual antes de repetir."
"""What the engine says in English, to people who program."""


class Problem(contract.Problem):
    """A refusal of a system's own, with its HTTP status, a stable type, a title, and what to do."""

    def __init__(self, status: int, kind: str, title: str, detail: str, **extra: Any) -> None:
        retryable = status in (409, 429, 503) and bool(extra.pop("retryable", status != 409))
        super().__init__(Kind(kind, status, title, detail, retryable), **extra)
        self.args = (detail,)

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.kind.status

    @property
    def name(self) -> str:
        """The last part of the type, which does not change."""
        return self.kind.name

    def response(self) -> Response:
        """The problem document."""
        return answer(self)

    def called(self, status: int) -> Problem:
        """The same refusal under another status."""
        self.kind = self.kind._replace(status=status)
        return self

    def retryable_after(self, seconds: float) -> Problem:
        """The same refusal, of which time may make something else."""
        self.kind = self.kind._replace(retryable=True)
        self.retry_after = seconds
        return self


def answer(problem: contract.Problem) -> Response:
    """The response that tells `problem`."""
    told = CATALOGUE.answer(problem)
    response = Response(told.body, told.status)
    response.raw_headers = list(told.headers)
    return response


def translate(error: UmavezError) -> contract.Problem:
    """The problem that an engine's error is; 409 for one that has no kind of its own."""
    if isinstance(error, InvalidKey):
        return Problem(400, "chave-invalida", "Chave de idempotência inválida", KEY_WORDS)
    if isinstance(error, NotStorable) and not isinstance(error, OutcomeUnreadable):
        return Problem(422, "dados-invalidos", "Dados inválidos", NOT_KEPT)
    if isinstance(error, ConfigurationError):
        raise error
    try:
        return problem_of(error, retry_after=1.0)
    except UmavezError:
        return Problem(409, "conflito", "Conflito", CONFLICT)


def unknown_method(known: list[str]) -> Problem:
    """The 405 of an address that takes the methods in `known`."""
    problem = Problem(405, "http", "Requisição recusada", ROUTING[405])
    if known:
        problem.headers["Allow"] = ", ".join(known)
    return problem


def install(app: Documented) -> None:
    """Make every error of `app` a problem document; never a traceback to a user."""

    @app.exception_handler(contract.Problem)
    async def _problem(request: Request, problem: contract.Problem) -> Response:
        _log_store_failure(request, problem.__cause__)
        request.scope[PROBLEM] = problem.kind.name
        return answer(problem)

    @app.exception_handler(UmavezError)
    async def _engine(request: Request, error: UmavezError) -> Response:
        _log_store_failure(request, error)
        problem = translate(error)
        request.scope[PROBLEM] = problem.kind.name
        return answer(problem)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            return unknown_method(app.methods_at(request.url.path)).response()
        detail = ROUTING.get(error.status_code, REFUSED)
        problem = Problem(error.status_code, "http", "Requisição recusada", detail)
        problem.headers.update(error.headers or {})
        return problem.response()

    @app.exception_handler(RequestValidationError)
    async def _validation(_: Request, error: RequestValidationError) -> Response:
        return Problem(422, "dados-invalidos", "Dados inválidos", complaint(error.errors())).response()

    @app.exception_handler(ClientDisconnect)
    async def _gone(_: Request, __: ClientDisconnect) -> Response:
        return answer(contract.Problem(contract.problems.BODY_INCOMPLETE))

    @app.exception_handler(Exception)
    async def _unexpected(request: Request, error: Exception) -> Response:
        LOG.error("Unexpected error at %s %s", request.method, _place(request), exc_info=error)
        return Problem(500, "erro-interno", "Erro interno", "Algo falhou aqui; o erro foi registrado.").response()


def _log_store_failure(request: Request, error: BaseException | None) -> None:
    """One line for each failure of the store, with the digest of the request's key, never the key."""
    if not isinstance(error, StoreError):
        return
    level = logging.ERROR if isinstance(error, SchemaOutdated) else logging.WARNING
    key = request.headers.get("idempotency-key")
    digest = "none" if key is None else sha256(key.encode()).hexdigest()[:16]
    where = _place(request)
    cause = "" if error.__cause__ is None else f" ({type(error.__cause__).__name__})"
    LOG.log(level, "%s %s failed at the store, key sha256:%s: %s%s", request.method, where, digest, error, cause)


def _place(request: Request) -> str:
    """The pattern of the path, not the path: what a stranger wrote there is no text for a log."""
    return getattr(request.scope.get("route"), "path", "an unknown path")
