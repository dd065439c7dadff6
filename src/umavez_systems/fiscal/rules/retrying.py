"""Retry as the seed has it (§5): three attempts, 1 s, doubled, at most 30 s; which answers may be tried again."""

from __future__ import annotations

from dataclasses import dataclass

from umavez.failures import Phase, Trouble
from umavez.retry import Backoff
from umavez_systems.fiscal.ports import NadaEnviado, Ocupada, Recusada, SemResposta

BACKOFF = Backoff(attempts=3, first=1.0, factor=2.0, cap=30.0, jitter=False)
TEMPO_DE_ENVIO = 60.0
TEMPO_DE_CONSULTA = 30.0


@dataclass(frozen=True, slots=True)
class Categoria:
    """A row of the seed's table (§5.2)."""

    nome: str
    repete: bool
    acao: str


TIMEOUT = Categoria("Timeout", True, "Verificar + retry")
REDE = Categoria("Rede", True, "Backoff + retry")
SERVIDOR = Categoria("5xx (Server Error)", True, "Backoff + retry")
LIMITE = Categoria("429 (Rate Limit)", True, "Respeitar Retry-After")
VALIDACAO = Categoria("4xx Validacao", False, "Corrigir payload")
AUTENTICACAO = Categoria("4xx Auth", False, "Verificar certificado")
INEXISTENTE = Categoria("404 Not Found", False, "Recurso inexistente")
CONFLITO = Categoria("409 Conflict", False, "Ja processado (idempotente)")
_STATUS = {401: AUTENTICACAO, 403: AUTENTICACAO, 404: INEXISTENTE, 409: CONFLITO, 429: LIMITE}


def categoria_http(status: int) -> Categoria:
    """The row that an HTTP status falls into."""
    if 500 <= status <= 599:
        return SERVIDOR
    return _STATUS.get(status, VALIDACAO)


def espera(tentativa: int) -> float:
    """Seconds after attempt number `tentativa`, counted from 0 as the seed does."""
    return BACKOFF.pause(tentativa + 1)


def trouble_of(error: BaseException) -> Trouble:
    """How far a request to an authority came, for the engine's retry: every later silence is unknown."""
    match error:
        case NadaEnviado():
            return Trouble(Phase.NEVER_SENT)
        case Ocupada():
            return Trouble(Phase.NEVER_SENT, 429, error.retry_after)
        case SemResposta():
            return Trouble(Phase.MAYBE_SENT, retry_after=error.retry_after)
        case Recusada():
            return Trouble(Phase.REFUSED, error.status)
        case _:
            return Trouble(Phase.REFUSED)
