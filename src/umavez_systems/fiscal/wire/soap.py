"""Calls over HTTPS with the taxpayer's certificate, SOAP 1.2 or plain. A failure is told by how far a request came."""

from __future__ import annotations

import ssl
from typing import Any

import httpx

from umavez.failures import Phase, of_status, trouble_of
from umavez_systems.fiscal.ports import AutoridadeError, NadaEnviado, Ocupada, Recusada, SemResposta
from umavez_systems.fiscal.wire.answers import LARGEST
from umavez_systems.outgoing.connections import Answer, Connections, TooLarge

WSDL = "http://www.portalfiscal.inf.br/nfe/wsdl/"
_OPEN = b'<soap12:Envelope xmlns:soap12="http://www.w3.org/2003/05/soap-envelope"><soap12:Body>'
_CLOSE = b"</soap12:Body></soap12:Envelope>"
PATIENCE_WITHOUT_WISH = 5.0


class Correio:
    """Carries requests to the services of one authority. Safe for threads; `close` gives the connections back."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._conexoes = Connections(context)

    def levar(self, address: str, service: str, verb: str, xml: bytes, timeout: float) -> bytes:
        """The reply's bytes to one call. Raises NadaEnviado, Ocupada, SemResposta or Recusada."""
        body = b'%s<nfeDadosMsg xmlns="%s">%s</nfeDadosMsg>%s' % (_OPEN, f"{WSDL}{service}".encode(), xml, _CLOSE)
        headers = {"Content-Type": f'application/soap+xml; charset=utf-8; action="{WSDL}{service}/{verb}"'}
        return self.chamar("POST", address, timeout, body, headers)[1]

    def chamar(
        self,
        method: str,
        address: str,
        timeout: float,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        answers: frozenset[int] = frozenset({200}),
    ) -> tuple[int, bytes]:
        """Status and bytes of a reply whose status is one of `answers`. Raises as `levar` does for every other."""
        try:
            answer = self._conexoes.call(method, address, timeout, body, headers, LARGEST)
        except TooLarge as error:
            raise SemResposta(f"A resposta passa de {LARGEST} bytes.", error.begun) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise told(error) from error
        if answer.status not in answers:
            _refuse_status(answer)
        return answer.status, answer.body

    def close(self) -> None:
        """Close the connections."""
        self._conexoes.close()


def _refuse_status(answer: Answer) -> None:
    status, headers, raw = answer
    trouble = of_status(status, headers)
    said = f"A autoridade respondeu HTTP {status}."
    if trouble.phase is Phase.NEVER_SENT:
        raise Ocupada(said, PATIENCE_WITHOUT_WISH if trouble.retry_after is None else trouble.retry_after, raw)
    if trouble.phase is Phase.MAYBE_SENT or 200 < status < 300:
        raise SemResposta(said, raw)
    raise Recusada(said, status, raw)


def told(error: Exception) -> AutoridadeError:
    """What a failed call means: only what certainly never left may be sent again without asking."""
    said: Any = type(error).__name__
    phase = trouble_of(error).phase
    if phase is Phase.NEVER_SENT:
        return NadaEnviado(f"A autoridade não foi alcançada ({said}).")
    if phase is Phase.MAYBE_SENT:
        return SemResposta(f"A autoridade não respondeu ({said}).")
    return Recusada(f"A chamada não pôde ser feita ({said}).", 0)
