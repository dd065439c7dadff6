"""PayerPortal over HTTP: JSON, one connection pool, and every failure sorted by how far the request came."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import httpx

from umavez import BoundedJson
from umavez.failures import Phase, of_status, trouble_of
from umavez_systems.outgoing.connections import BadStatus, Connections
from umavez_systems.processos.contas.domain import Recebido, Recurso, Tipo
from umavez_systems.processos.domain import Glosa, Lote, Pagamento, Protocolo, Remessa
from umavez_systems.processos.ports import Duplicado, PortalError, PortalInalcancavel, PortalOcupado, PortalSemResposta
from umavez_systems.processos.tiss.tables import JA_APRESENTADA, Situacao

LONGEST_WAIT = 86_400.0
"""Seconds that a portal may put us off at a time; who asks for more is asked again after a day."""
LONGEST = 300
"""Characters of a text that a portal answers with."""
_BOUNDED = BoundedJson(number=Decimal, nul=False)
_DECLARATION = re.compile(r"\A\ufeff?<\?xml\s[^>]{0,200}\?>")


class HttpPortal:
    """A payer's portal at `url`. `timeout` is in seconds; `token` goes as bearer and is never logged."""

    def __init__(self, url: str, *, timeout: float = 10.0, token: str = "") -> None:
        self._url = str(httpx.URL(url)).rstrip("/")
        self._timeout = timeout
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._connections = Connections()

    def eligible(self, operadora: str, carteira: str) -> bool:
        """See PayerPortal. The card number travels in the body: addresses end up in logs."""
        found = self._sent("/elegibilidade", {"operadora": operadora, "carteira": carteira}).get("elegivel")
        if not isinstance(found, bool):
            raise PortalSemResposta("O portal respondeu sem elegibilidade.")
        return found

    def submit(self, lote: Lote, referencia: str) -> Protocolo:
        """See PayerPortal."""
        return _protocolo(self._sent("/lotes", {**lote.sent(), "referencia": referencia}))

    def protocol_of(self, remessa: Remessa) -> Protocolo | None:
        """See PayerPortal."""
        name = {"operadora": remessa.operadora, "prestador": remessa.prestador, "numeroLote": remessa.numero}
        found = self._sent("/lotes/situacao", name)
        return None if found.get("situacao") == Situacao.NAO_LOCALIZADO else _protocolo(found)

    def situation_of(self, operadora: str, protocolo: str) -> Situacao:
        """See PayerPortal."""
        found = self._sent("/protocolos/situacao", {"operadora": operadora, "protocolo": protocolo})
        try:
            return Situacao(found["situacao"])
        except (KeyError, ValueError) as error:
            raise PortalSemResposta("O portal respondeu sem situação.") from error

    def pay(self, operadora: str, protocolo: str, valor: str, referencia: str) -> Pagamento:
        """See PayerPortal."""
        content = {"operadora": operadora, "protocolo": protocolo, "valor": valor, "referencia": referencia}
        return _pagamento(self._sent("/pagamentos", content))

    def payment_of(self, operadora: str, protocolo: str) -> Pagamento | None:
        """See PayerPortal."""
        found = self._sent("/pagamentos/situacao", {"operadora": operadora, "protocolo": protocolo})
        return None if _is_none(found, "pagamento") else _pagamento(found)

    def statement_of(self, operadora: str, protocolo: str, tipo: Tipo) -> bytes | None:
        """See PayerPortal. The message travels as text inside JSON, and declares an encoding that it has no more."""
        content = {"operadora": operadora, "protocolo": protocolo, "tipo": tipo.value}
        xml = self._sent("/demonstrativos", content).get("xml", False)
        if xml is not None and not isinstance(xml, str):
            raise PortalSemResposta("O portal respondeu sem demonstrativo.")
        # Without a declaration bytes are UTF-8, whatever those were that it spoke of.
        return None if xml is None else _DECLARATION.sub("", xml).encode("utf-8", "surrogatepass")

    def appeal(self, recurso: Recurso, referencia: str) -> Recebido:
        """See PayerPortal."""
        return _recebido(self._sent("/recursos", {**recurso.sent(), "referencia": referencia}))

    def appeal_of(self, operadora: str, protocolo: str, numero: str) -> Recebido | None:
        """See PayerPortal."""
        name = {"operadora": operadora, "protocolo": protocolo, "numeroRecurso": numero}
        found = self._sent("/recursos/situacao", name)
        return None if _is_none(found, "recurso") else _recebido(found)

    def close(self) -> None:
        """See PayerPortal."""
        self._connections.close()

    def _sent(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        """The answer to one POST. Raises Glosa and PortalError kinds."""
        try:
            body = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
            answer = self._connections.call("POST", f"{self._url}{path}", self._timeout, body, self._headers)
            if answer.status == 422:
                raise _refusal(answer.body)
            if answer.status == 409:
                raise Duplicado("O portal já tem este pedido.")
            told = _BOUNDED.parse(answer.successful().body)
        except (httpx.HTTPError, ValueError) as error:
            raise _failure(error) from error
        if not isinstance(told, dict):
            raise PortalSemResposta("O portal respondeu algo que não é um objeto JSON.")
        return told


def _failure(error: Exception) -> PortalError:
    if isinstance(error, ValueError):
        return PortalSemResposta("O portal respondeu algo que não é JSON.")
    bad = error.answer if isinstance(error, BadStatus) else None
    trouble = trouble_of(error) if bad is None else of_status(bad.status, bad.headers)
    name = f"HTTP {trouble.status}" if trouble.status else type(error).__name__
    if trouble.phase is Phase.NEVER_SENT and trouble.status:
        wait = min(trouble.retry_after or 1.0, LONGEST_WAIT)
        return PortalOcupado(f"O portal pediu para tentar mais tarde ({name}).", wait)
    if trouble.phase is Phase.NEVER_SENT:
        return PortalInalcancavel(f"O portal não pôde ser alcançado ({name}).")
    # A refusal that is neither a glosa nor a duplicate (401, 404) proves nothing about a request sent before it.
    return PortalSemResposta(f"O portal não deu resposta útil ({name}).")


def _refusal(body: bytes) -> Exception:
    try:
        glosa = _BOUNDED.parse(body)["glosa"]
        # The code refuses; why is for people, and the standard gives it 500 characters.
        why = glosa["descricao"].strip()[:LONGEST]
        codigo, descricao = _texts({**glosa, "descricao": why}, "codigo", "descricao")
    except (ValueError, KeyError, TypeError, AttributeError):
        return PortalSemResposta("O portal recusou sem dizer a glosa.")
    return Duplicado("Guia já apresentada.") if codigo == JA_APRESENTADA else Glosa(codigo, descricao)


def _protocolo(answer: dict[str, Any]) -> Protocolo:
    try:
        situacao = Situacao(answer["situacao"])
        numero, valor = _texts(answer, "protocolo", "valor")
        return Protocolo(numero, situacao, valor, _referencia(answer))
    except (KeyError, ValueError) as error:
        raise PortalSemResposta("O portal respondeu sem protocolo.") from error


def _pagamento(answer: dict[str, Any]) -> Pagamento:
    try:
        numero, protocolo, valor = _texts(answer, "pagamento", "protocolo", "valor")
        return Pagamento(numero, protocolo, valor, _referencia(answer))
    except (KeyError, ValueError) as error:
        raise PortalSemResposta("O portal respondeu sem pagamento.") from error


def _recebido(answer: dict[str, Any]) -> Recebido:
    try:
        numero, situacao, valor = _texts(answer, "recurso", "situacao", "valor")
        acatado = None if answer.get("acatado") is None else _texts(answer, "acatado")[0]
        return Recebido(numero, situacao[:20], valor, acatado, _referencia(answer))
    except (KeyError, ValueError) as error:
        raise PortalSemResposta("O portal respondeu sem recurso.") from error


def _is_none(answer: dict[str, Any], name: str) -> bool:
    """Whether the portal says that there is none. Half an answer says nothing: believed, it would be sent again."""
    return not answer or answer.get(name, False) is None


def _texts(answer: Any, *names: str) -> tuple[str, ...]:
    """What an answer says under these names, a number as it is written. Raises KeyError, ValueError."""
    found = tuple(answer[name] for name in names)
    if any(isinstance(value, bool) or not isinstance(value, str | int | Decimal) for value in found):
        raise ValueError("neither a text nor a number")
    written = tuple(f"{value:f}" if isinstance(value, Decimal) else str(value).strip() for value in found)
    if not all(1 <= len(value) <= LONGEST for value in written):
        raise ValueError("empty, or longer than any of them is")
    return written


def _referencia(answer: dict[str, Any]) -> str:
    """The reference that something came with; nobody's where it came without one."""
    return "" if answer["referencia"] is None else _texts(answer, "referencia")[0]
