"""Calls over HTTPS with the taxpayer's certificate, SOAP 1.2 or plain. A failure is told by how far a request came."""

from __future__ import annotations

import contextlib
import ssl
import time
from functools import lru_cache
from typing import Any

import httpx

from umavez.failures import Phase, of_status, trouble_of
from umavez_systems.fiscal.ports import AutoridadeError, NadaEnviado, Ocupada, Recusada, SemResposta
from umavez_systems.fiscal.wire.answers import LARGEST

CONNECT = 10.0
WSDL = "http://www.portalfiscal.inf.br/nfe/wsdl/"
_OPEN = b'<soap12:Envelope xmlns:soap12="http://www.w3.org/2003/05/soap-envelope"><soap12:Body>'
_CLOSE = b"</soap12:Body></soap12:Envelope>"
PATIENCE_WITHOUT_WISH = 5.0
PLAIN = {"Accept": "*/*", "User-Agent": "umavez"}
"""Nothing packed is asked for: an answer is bounded by what it is when read."""


class Correio:
    """Carries requests to the services of one authority. Safe for threads; `close` gives the connections back."""

    def __init__(self, context: ssl.SSLContext) -> None:
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=16, keepalive_expiry=5.0)
        # The transport without its client: cookies, redirects and logins, which no authority has, take half as long
        # again as the call itself.
        self._transport = httpx.HTTPTransport(verify=context, limits=limits, trust_env=False)

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
        limits = httpx.Timeout(timeout, connect=min(CONNECT, timeout), pool=min(CONNECT, timeout)).as_dict()
        ends = time.monotonic() + timeout
        try:
            sent = {**PLAIN, **(headers or {})}
            asked = httpx.Request(method, _url(address), headers=sent, content=body, extensions={"timeout": limits})
            with contextlib.closing(self._transport.handle_request(asked)) as response:
                raw = _read(response, ends)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise told(error) from error
        if response.status_code not in answers:
            _refuse_status(response, raw)
        return response.status_code, raw

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()


@lru_cache(maxsize=200)
def _url(address: str) -> httpx.URL:
    """Parsed once: services are few, and questions by a key in the address are rare."""
    return httpx.URL(address)


def _read(response: httpx.Response, ends: float) -> bytes:
    """The body, at most LARGEST bytes and at most until `ends`."""
    parts: list[bytes] = []
    size = 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > LARGEST:
            raise SemResposta(f"A resposta passa de {LARGEST} bytes.", b"".join(parts)[:1000])
        if time.monotonic() > ends:
            raise SemResposta("A resposta demorou demais para chegar inteira.", b"".join(parts)[:1000])
    return b"".join(parts)


def _refuse_status(response: httpx.Response, raw: bytes) -> None:
    status = response.status_code
    trouble = of_status(status, response.headers)
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
