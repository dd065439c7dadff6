"""Retry as the seed has it (§5): three attempts, 1 s, doubled, at most 30 s; which failures may be tried again."""

from __future__ import annotations

from umavez.failures import Phase, Trouble
from umavez.retry import Backoff
from umavez_systems.fiscal.ports import NadaEnviado, Ocupada, Recusada, SemResposta

BACKOFF = Backoff(attempts=3, first=1.0, factor=2.0, cap=30.0, jitter=False)
TEMPO_DE_ENVIO = 60.0
TEMPO_DE_CONSULTA = 30.0


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
