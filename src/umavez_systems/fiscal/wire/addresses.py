"""Addresses of the services: the official ones as nfelib lists them, or one base for a simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nfelib.nfe.client.v4_0.servers import Endpoint, servers

from umavez_systems.fiscal.rules.identifiers import invalid

SERVICES = {
    "autorizacao": (Endpoint.NFEAUTORIZACAO, "NFeAutorizacao4", "nfeAutorizacaoLote"),
    "consulta": (Endpoint.NFECONSULTAPROTOCOLO, "NFeConsultaProtocolo4", "nfeConsultaNF"),
    "evento": (Endpoint.RECEPCAOEVENTO, "NFeRecepcaoEvento4", "nfeRecepcaoEvento"),
    "inutilizacao": (Endpoint.NFEINUTILIZACAO, "NFeInutilizacao4", "nfeInutilizacaoNF"),
    "status": (Endpoint.NFESTATUSSERVICO, "NFeStatusServico4", "nfeStatusServicoNF"),
}
"""For each service: its place in nfelib's list, its WSDL, its verb."""
OWN = frozenset(["AM", "BA", "GO", "MG", "MS", "MT", "PE", "PR", "RS", "SP"])
SVAN = frozenset(["MA"])
"""PA has moved on to SVRS (national portal, list of authorisers)."""
SVC_RS = frozenset(["AM", "BA", "GO", "MA", "MS", "MT", "PE", "PR"])
"""States whose contingency is SVC-RS; the others' is SVC-AN."""
NFCE_SP = "https://{}nfce.fazenda.sp.gov.br/ws/{}.asmx"
NFCE_SVRS = {
    "autorizacao": "NfeAutorizacao/NFeAutorizacao4",
    "consulta": "NfeConsulta/NfeConsulta4",
    "evento": "recepcaoevento/recepcaoevento4",
    "inutilizacao": "nfeinutilizacao/nfeinutilizacao4",
    "status": "NfeStatusServico/NfeStatusServico4",
}


def modo_svc(uf: str) -> str:
    """The tpEmis of a state's contingency."""
    return "7" if uf in SVC_RS else "6"


def autorizador(uf: str, tp_emis: str) -> str:
    """Who authorises, and is asked afterwards: it follows the mode of emission inside the key."""
    if tp_emis in ("6", "7"):
        return "SVC-RS" if tp_emis == "7" else "SVC-AN"
    if uf in OWN:
        return uf
    return "SVAN" if uf in SVAN else "SVRS"


@dataclass(frozen=True, slots=True)
class Enderecos:
    """Where one taxpayer's services are. `base` tells a simulator's address; without it they are the official ones."""

    uf: str
    ambiente: str
    base: Callable[[], str] | None = None

    def servico(self, name: str, modelo: str, tp_emis: str, *, nacional: bool = False) -> str:
        """The address of a service. Raises a 422 problem where none is known."""
        who = "AN" if nacional else autorizador(self.uf, tp_emis)
        place, wsdl, _ = SERVICES[name]
        if self.base is not None:
            return f"{self.base()}/{who}/{modelo}/{wsdl}"
        if modelo == "65":
            return self._nfce(name, wsdl)
        group = servers[who]["prod_endpoints" if self.ambiente == "1" else "dev_endpoints"]
        if place not in group:
            raise invalid(f"O autorizador {who} não tem o serviço {name}.")
        return group[place]  # type: ignore[no-any-return]  # nfelib has no types

    def _nfce(self, name: str, wsdl: str) -> str:
        test = "" if self.ambiente == "1" else "homologacao."
        if self.uf == "SP":
            return NFCE_SP.format(test, wsdl)
        if self.uf in OWN:
            raise invalid(f"NFC-e em {self.uf}: o endereço não é conhecido; informe-o na organização.")
        return f"https://nfce{'' if self.ambiente == '1' else '-homologacao'}.svrs.rs.gov.br/ws/{NFCE_SVRS[name]}.asmx"
