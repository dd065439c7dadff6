"""Fiscal, put together: organisations, acts and use cases over one database, one engine and the chosen environment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from umavez import Once
from umavez_systems.database import Database
from umavez_systems.fiscal.atos.batches import Lotes
from umavez_systems.fiscal.atos.governor import Limites
from umavez_systems.fiscal.cases import Fiscal
from umavez_systems.fiscal.ledgers import Livros
from umavez_systems.fiscal.operations import Atos, Termos
from umavez_systems.fiscal.organizations import Organizacao, Organizacoes, ccm_demo, cnpj_demo
from umavez_systems.fiscal.ports import Autoridade
from umavez_systems.fiscal.rules.identifiers import invalid
from umavez_systems.fiscal.simulador.certificates import Cartorio
from umavez_systems.fiscal.simulador.keeper import Simulador, endereco, manter
from umavez_systems.fiscal.wire.addresses import SERVICES, Enderecos, modo_svc
from umavez_systems.fiscal.wire.nacional.sefin import BASES, Nacional
from umavez_systems.fiscal.wire.paulistana import prefeitura
from umavez_systems.fiscal.wire.paulistana.prefeitura import SaoPaulo
from umavez_systems.fiscal.wire.sefaz import Sefaz
from umavez_systems.fiscal.wire.soap import Correio
from umavez_systems.settings import Settings

SEFIN = "adn/SefinNacional"
PAULISTANA = "sp/ws/lotenfe.asmx"
"""Where the simulator has SEFIN Nacional and São Paulo."""
DEMO = "demo"
SENHA_DEMO = "demonstracao"  # opens a certificate that is worth nothing


@dataclass(frozen=True, slots=True)
class Tempos:
    """How long a send and a question may take (seed 004 §10.2)."""

    envio: float = 60.0
    consulta: float = 30.0


class Sistema:
    """What routes, commands and workers use."""

    def __init__(
        self,
        once: Once,
        database: Database,
        *,
        folder: Path,
        ambiente: str = "simulador",
        perfil: str = "manual",
        tempos: Tempos | None = None,
        termos: Termos | None = None,
        limites: Limites | None = None,
        **options: Any,
    ) -> None:
        self.ambiente = ambiente
        self.once = once
        self._folder = folder
        self._tempos = tempos or Tempos()
        self._lock = threading.Lock()
        self._sleep: Callable[[float], None] = options.get("sleep", time.sleep)
        self._simulated = False
        self.organizacoes = Organizacoes(database, folder, self._open)
        self.atos = Atos(once, database, self.organizacoes, perfil=perfil, termos=termos, limites=limites, **options)
        self.fiscal = Fiscal(database, self.organizacoes, self.atos, modo_svc)
        self.livros = Livros(self.fiscal)
        self.lotes = Lotes(self.fiscal)

    def simulador(self) -> Simulador:
        """The simulator, started if nobody has."""
        self._simulated = True
        return manter(self._folder)

    def zelar(self) -> None:
        """Start the simulator again if this process has used it and it is gone."""
        if self._simulated:
            self.simulador()

    @cached_property
    def cartorio(self) -> Cartorio:
        """The simulator's certification authority."""
        self.simulador()
        return Cartorio(self._folder / "certificados")

    def _open(self, organizacao: Organizacao, autoridade: str) -> Autoridade:
        ca: str | None = None
        base: Callable[[], str] | None = None
        if organizacao.ambiente == "simulador":
            found = self.simulador()
            ca, base = found.ca_pem, lambda: endereco(self._folder) or found.servicos
        who, cert = organizacao.emitente, organizacao.certificado
        times = {"envio": self._tempos.envio, "consulta": self._tempos.consulta}
        post = Correio(cert.tls(ca))
        if autoridade == "adn":
            place = None if base is None else lambda: f"{base()}/{SEFIN}"
            return Nacional(who, cert, organizacao.tp_amb, post, base=place, sleep=self._sleep, **times)
        if autoridade == "sp":
            return self._open_city(organizacao, post, base)
        return Sefaz(who, cert, Enderecos(who.uf, organizacao.tp_amb, base), post, **times)

    def _open_city(self, organizacao: Organizacao, post: Correio, base: Callable[[], str] | None) -> Autoridade:
        who, place = organizacao.emitente, None
        if organizacao.ambiente == "homologacao":
            raise invalid("São Paulo não tem homologação; use o simulador ou produção.")
        if base is not None:
            who, place = replace(who, ccm=who.ccm or ccm_demo(who.cnpj)), lambda: f"{base()}/{PAULISTANA}"
        times, cert = self._tempos, organizacao.certificado
        return SaoPaulo(who, cert, post, base=place, sleep=self._sleep, envio=times.envio, consulta=times.consulta)

    def demo(self, principal: str) -> None:
        """The principal's demonstration organisation against the simulator; there already is fine."""
        if self.ambiente != "simulador":
            return
        with self._lock:
            if self.organizacoes.tem(principal, DEMO):
                return
            cnpj = cnpj_demo(principal)
            pfx = self.cartorio.a1(cnpj, "Loja Demonstracao", SENHA_DEMO)
            self.organizacoes.criar(principal, {**DEMO_DATA, "cnpj": cnpj}, pfx, SENHA_DEMO, "simulador")

    def onde(self) -> dict[str, Any]:
        """The environment, the authorities' addresses and, with the simulator, where its control API is."""
        if self.ambiente != "simulador":
            real = "1" if self.ambiente == "producao" else "2"
            places = _places(Enderecos("SP", real), BASES[real], prefeitura.BASES["1"] if real == "1" else None)
            return {"ambiente": self.ambiente, "autoridades": places}
        found = self.simulador()
        local = (f"{found.servicos}/{SEFIN}", f"{found.servicos}/{PAULISTANA}")
        places = _places(Enderecos("SP", "2", lambda: found.servicos), *local)
        return {"ambiente": "simulador", "autoridades": places, "simulador": {"controle": found.controle}}

    def close(self) -> None:
        """Give the authorities' connections back."""
        self.organizacoes.close()


def _places(sefaz: Enderecos, sefin: str, sp: str | None) -> dict[str, Any]:
    """Where each authority is, by the name that the catalogue has; São Paulo has none for trying things out."""
    return {"sefaz": {name: sefaz.servico(name, "55", "1") for name in SERVICES}, "adn": sefin, "sp": sp}


DEMO_DATA: dict[str, Any] = {
    "id": DEMO,
    "nome": "Loja Demonstracao Ltda",
    "ie": "110042490114",
    "crt": "1",
    "endereco": {
        "logradouro": "Praca da Se",
        "numero": "1",
        "bairro": "Se",
        "codigo_municipio": "3550308",
        "municipio": "Sao Paulo",
        "uf": "SP",
        "cep": "01001000",
    },
}


def open_fiscal(settings: Settings, database: Database, once: Once) -> Sistema:
    """The system as the settings describe it."""
    return Sistema(
        once,
        database,
        folder=Path(settings.fiscal_dir),
        ambiente=settings.fiscal_ambiente,
        perfil=settings.fiscal_perfil,
        tempos=Tempos(settings.fiscal_envio_seconds, settings.fiscal_consulta_seconds),
        termos=Termos(
            lease=settings.fiscal_lease_seconds,
            patience=settings.fiscal_patience_seconds,
            settle=settings.fiscal_settle_seconds,
            first=settings.fiscal_first_seconds,
            quarentena=settings.fiscal_quarentena_seconds,
        ),
    )
