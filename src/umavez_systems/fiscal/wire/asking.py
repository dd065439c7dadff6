"""Questions of several calls: reading changes nothing, so that a call without an answer is made again (seed §10.2).

And what the authorities of services, which are asked so, have in common beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from umavez_systems.fiscal.domain import Tipo
from umavez_systems.fiscal.ports import Ato, NadaEnviado, SemResposta
from umavez_systems.fiscal.rules.identifiers import invalid
from umavez_systems.fiscal.rules.retrying import BACKOFF, TEMPO_DE_CONSULTA, TEMPO_DE_ENVIO
from umavez_systems.fiscal.wire.certificate import Certificado
from umavez_systems.fiscal.wire.nfe import Emitente
from umavez_systems.fiscal.wire.soap import Correio


class Pergunta:
    """The calls of one question, each with its answer for the proof log.

    Three tries each with the seed's pauses, as long as the time for one call has not passed since the question began.
    """

    def __init__(self, correio: Correio, timeout: float, sleep: Callable[[float], None] = time.sleep) -> None:
        self._correio = correio
        self._timeout = timeout
        self._sleep = sleep
        self._ends = time.monotonic() + timeout
        self.bruto = b""

    def recomecar(self) -> None:
        """Give the calls that follow the time of a question of their own: one page of many is about to be read."""
        self._ends = time.monotonic() + self._timeout

    def notar(self, words: str) -> None:
        """Add what was found without a call to what the proof log keeps."""
        self.bruto += words.encode() + b"\n"

    def chamar(
        self,
        method: str,
        address: str,
        body: bytes | None,
        headers: dict[str, str],
        answers: frozenset[int] = frozenset({200}),
    ) -> tuple[int, bytes]:
        """One call, perhaps repeated. Raises as the post does, when the last try failed."""
        for tries in range(1, BACKOFF.attempts):
            try:
                return self._kept(method, address, body, headers, answers)
            except (SemResposta, NadaEnviado):
                pause = BACKOFF.pause(tries)
                if time.monotonic() + pause >= self._ends:
                    raise
                self._sleep(pause)
        return self._kept(method, address, body, headers, answers)

    def _kept(
        self, method: str, address: str, body: bytes | None, headers: dict[str, str], answers: frozenset[int]
    ) -> tuple[int, bytes]:
        status, raw = self._correio.chamar(method, address, self._timeout, body, headers, answers)
        self.bruto += f"{method} {address.partition('://')[2].partition('/')[2]}: {status}\n".encode() + raw + b"\n"
        return status, raw


class DeServicos:
    """One taxpayer's access to an authority of services. `base`: where it is; a simulator may move."""

    def __init__(
        self,
        emitente: Emitente,
        certificado: Certificado,
        correio: Correio,
        *,
        base: Callable[[], str] | None = None,
        envio: float = TEMPO_DE_ENVIO,
        consulta: float = TEMPO_DE_CONSULTA,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.emitente = emitente
        self._certificado = certificado
        self._correio = correio
        self._base = base
        self._envio = envio
        self._consulta = consulta
        self._sleep = sleep

    def montar_epec(self, ato: Ato, quando: str) -> Ato:
        """There is none."""
        raise invalid("EPEC: a NFS-e não tem contingência.")

    def montar_inutilizacao(
        self, tipo: Tipo, ano: str, serie: int, primeiro: int, ultimo: int, justificativa: str
    ) -> Ato:
        """There is none."""
        raise invalid("inutilização: a NFS-e não tem; o número fica explicado no livro.")

    def _pergunta(self) -> Pergunta:
        return Pergunta(self._correio, self._consulta, self._sleep)

    def close(self) -> None:
        """Give the connections back."""
        self._correio.close()
