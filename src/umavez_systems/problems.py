"""Problems: every refusal as problem+json (RFC 9457), in the language of the systems."""

from __future__ import annotations

import json
import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from umavez import InvalidKey, KeyReused, NotStorable, OperationInProgress, StoreError, UmavezError

LOG = logging.getLogger("umavez.systems")
TYPES = "https://umavez.dev/problemas/"


class Problem(Exception):
    """A refusal with its HTTP status, a stable type, a title, and what to do."""

    def __init__(self, status: int, kind: str, title: str, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.title = title
        self.detail = detail
        self.extra = extra
        self.headers: dict[str, str] = {}

    def response(self) -> Response:
        """The problem document. `retryable` says whether the same request may succeed later."""
        retryable = self.status in (409, 429, 503) and self.extra.get("retryable", self.status != 409)
        body = {
            "type": f"{TYPES}{self.kind}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            **self.extra,
            "retryable": retryable,
        }
        return Response(
            json.dumps(body, ensure_ascii=False),
            self.status,
            headers={"Cache-Control": "no-store", **self.headers},
            media_type="application/problem+json",
        )


def translate(error: UmavezError) -> Problem:
    """The problem that an engine's error is."""
    match error:
        case InvalidKey():
            return Problem(400, "chave-invalida", "Chave de idempotência inválida", str(error))
        case KeyReused():
            return Problem(
                422,
                "chave-reutilizada",
                "Chave de idempotência já usada",
                "Esta chave foi usada antes com outro conteúdo; repita o conteúdo original ou use uma chave nova.",
            )
        case OperationInProgress():
            problem = Problem(
                409,
                "em-andamento",
                "Operação em andamento",
                "Outra requisição com esta chave está em andamento; tente de novo em instantes.",
                retryable=True,
            )
            problem.headers["Retry-After"] = str(max(1, round(error.retry_after)))
            return problem
        case NotStorable():
            return Problem(422, "dados-invalidos", "Dados inválidos", str(error))
        case StoreError():
            problem = Problem(503, "indisponivel", "Banco de dados indisponível", "Tente de novo em instantes.")
            problem.headers["Retry-After"] = "1"
            return problem
        case _:
            return Problem(409, "conflito", "Conflito", str(error))


def install(app: FastAPI) -> None:
    """Make every error of `app` a problem document; never a traceback to a user."""

    @app.exception_handler(Problem)
    async def _problem(_: Request, problem: Problem) -> Response:
        return problem.response()

    @app.exception_handler(UmavezError)
    async def _engine(_: Request, error: UmavezError) -> Response:
        return translate(error).response()

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> Response:
        problem = Problem(error.status_code, "http", "Requisição recusada", str(error.detail))
        problem.headers.update(error.headers or {})
        return problem.response()

    @app.exception_handler(RequestValidationError)
    async def _validation(_: Request, error: RequestValidationError) -> Response:
        where = error.errors()[0]
        detail = f"{'.'.join(str(part) for part in where['loc'])}: {where['msg']}"
        return Problem(422, "dados-invalidos", "Dados inválidos", detail).response()

    @app.exception_handler(Exception)
    async def _unexpected(request: Request, error: Exception) -> Response:
        LOG.error("Unexpected error at %s %s", request.method, request.url.path, exc_info=error)
        return Problem(500, "erro-interno", "Erro interno", "Algo falhou aqui; o erro foi registrado.").response()
