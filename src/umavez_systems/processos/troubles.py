"""What an operation's error is over HTTP: in progress, used up, unknown and refused are four different things."""

from __future__ import annotations

from umavez import AlreadySettled, MaxRetriesExceeded, NoSuchRecord, OutcomeUnknown, Refused, UmavezError
from umavez import http as contract
from umavez_systems import problems
from umavez_systems.problems import Problem
from umavez_systems.processos.domain import Glosa
from umavez_systems.processos.ports import (
    DemonstrativoInvalido,
    EmAnalise,
    ForaDoPrazo,
    GlosaDesconhecida,
    JaRecorrida,
    NaoPagavel,
    PortalError,
    PortalOcupado,
    PortalSemResposta,
    Recusado,
    SemDemonstrativo,
)

UNKNOWN = "Não se sabe se a operadora recebeu; repita mais tarde: a operadora é consultada antes de qualquer reenvio."


def problem_of(error: UmavezError | PortalError | Glosa) -> contract.Problem:
    """The problem document of an operation's error."""
    if isinstance(error, Glosa):
        return Problem(422, "glosa", "Glosa da operadora", str(error), codigo=error.codigo, descricao=error.descricao)
    if isinstance(error, OutcomeUnknown | PortalSemResposta):
        return _later(Problem(503, "resultado-desconhecido", "Resultado desconhecido", UNKNOWN), 5.0)
    return _of_portal(error) if isinstance(error, PortalError) else _of_engine(error)


OURS = {
    GlosaDesconhecida: (422, "glosa-desconhecida", "Glosa desconhecida"),
    ForaDoPrazo: (409, "fora-do-prazo", "Prazo de recurso terminado"),
    JaRecorrida: (409, "glosa-recorrida", "Glosa já recorrida"),
}
"""What is refused here, before the payer is asked."""


def _of_portal(error: PortalError) -> Problem:
    if isinstance(error, Recusado):
        return Problem(*OURS[type(error)], str(error))
    if isinstance(error, SemDemonstrativo):
        return _later(Problem(409, "sem-demonstrativo", "Demonstrativo não emitido", str(error)), error.retry_after)
    if isinstance(error, DemonstrativoInvalido):
        return _later(Problem(503, "demonstrativo-invalido", "Demonstrativo inválido", str(error)), 60.0)
    if isinstance(error, EmAnalise):
        return _later(Problem(409, "protocolo-em-analise", "Protocolo em análise", str(error)), error.retry_after)
    if isinstance(error, NaoPagavel):
        return Problem(409, "nao-pagavel", "Protocolo não pode ser pago", str(error))
    if isinstance(error, PortalOcupado):
        return _later(Problem(503, "portal-ocupado", "Portal ocupado", str(error)), error.retry_after)
    return _later(Problem(503, "portal-inalcancavel", "Portal fora do alcance", str(error)), 5.0)


def _of_engine(error: UmavezError) -> contract.Problem:
    match error:
        case MaxRetriesExceeded():
            detail = "As tentativas se esgotaram; confira e resolva o registro para tentar de novo."
            kind, title = "tentativas-esgotadas", "Tentativas esgotadas"
            return Problem(409, kind, title, detail, idempotencyKey=error.key.value, ultimoErro=error.last_error)
        case NoSuchRecord():
            return Problem(404, "nao-encontrado", "Registro não encontrado", "Não há registro com esta chave.")
        case AlreadySettled():
            return Problem(409, "ja-resolvido", "Registro já resolvido", "Este registro já tem um resultado.")
        case Refused():
            return Problem(422, "recusado", "Operação recusada", str(error))
        case _:
            return problems.translate(error)


def _later(problem: Problem, seconds: float) -> Problem:
    return problem.retryable_after(seconds)
