"""Doors: how a call over HTTP reaches a simulated authority, and in which form it answers or pretends to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from umavez_systems.fiscal.simulador.sefaz import Chamada, Sefaz

SERVICES = {
    "NFeAutorizacao4": "autorizacao",
    "NFeConsultaProtocolo4": "consulta",
    "NFeRecepcaoEvento4": "evento",
    "NFeInutilizacao4": "inutilizacao",
    "NFeStatusServico4": "status",
}
SOAP = "application/soap+xml; charset=utf-8"
PROXY = b"<html><body><h1>502 Bad Gateway</h1><p>proxy</p></body></html>"


@dataclass(frozen=True)
class Requisicao:
    """One call: method, path in parts, the SOAP action where there is one, the body, and whose certificate came."""

    metodo: str
    caminho: tuple[str, ...]
    acao: str
    corpo: bytes
    cnpj: str | None


@dataclass(frozen=True)
class Saida:
    """What goes back."""

    status: int
    corpo: bytes
    tipo: str


class Porta(Protocol):
    """One authority's way in. `proxy` is what a machine in between answers in its name."""

    proxy: Saida

    def servico(self, call: Requisicao) -> str | None:
        """The service, as faults name it; None where there is none."""
        ...

    def atender(self, call: Requisicao) -> Saida:
        """Process and answer."""
        ...


class PortaSefaz:
    """SOAP 1.2: /{authoriser}/{model}/{service}."""

    proxy = Saida(200, PROXY, "text/html")

    def __init__(self, sefaz: Sefaz) -> None:
        self._sefaz = sefaz

    def servico(self, call: Requisicao) -> str | None:
        """By the last part of the path."""
        return SERVICES.get(call.caminho[-1]) if call.metodo == "POST" and len(call.caminho) == 3 else None

    def atender(self, call: Requisicao) -> Saida:
        """The layout's answer in an envelope."""
        asked = Chamada(call.caminho[0], self.servico(call) or "", _message(call.corpo), call.cnpj)
        return Saida(200, _envelope(self._sefaz.atender(asked)), SOAP)


def _message(body: bytes) -> bytes:
    """What stands inside nfeDadosMsg, byte for byte."""
    found = re.search(rb"<nfeDadosMsg[^>]*>(.*)</nfeDadosMsg>", body, re.DOTALL)
    return found.group(1) if found else b"<vazio/>"


def _envelope(content: bytes) -> bytes:
    return (
        b'<?xml version="1.0" encoding="utf-8"?><soap:Envelope xmlns:soap="http://www.w3.org/2003/05/soap-envelope">'
        b'<soap:Body><nfeResultMsg xmlns="http://www.portalfiscal.inf.br/nfe/wsdl">'
        + content
        + b"</nfeResultMsg></soap:Body></soap:Envelope>"
    )
