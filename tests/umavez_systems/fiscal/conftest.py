"""A simulated SEFAZ in a process of its own, an organisation with a certificate, and notes to send."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from umavez import Once
from umavez_systems.database import open_database
from umavez_systems.fiscal.assembly import DEMO_DATA, PAULISTANA, SEFIN, Sistema, Tempos
from umavez_systems.fiscal.cases import Caller, Resultado
from umavez_systems.fiscal.domain import Destinatario, Endereco, Item, Pagamento, Pedido, Servico, Tipo
from umavez_systems.fiscal.operations import Termos
from umavez_systems.fiscal.organizations import ccm_demo
from umavez_systems.fiscal.ports import Autoridade, Numerado
from umavez_systems.fiscal.rules.deadlines import BRASILIA
from umavez_systems.fiscal.rules.identifiers import sortear_cnf
from umavez_systems.fiscal.simulador.certificates import Cartorio
from umavez_systems.fiscal.simulador.keeper import Simulador, iniciar, parar
from umavez_systems.fiscal.wire.addresses import Enderecos
from umavez_systems.fiscal.wire.certificate import Certificado
from umavez_systems.fiscal.wire.nacional.sefin import Nacional
from umavez_systems.fiscal.wire.nfe import Emitente
from umavez_systems.fiscal.wire.paulistana.prefeitura import SaoPaulo
from umavez_systems.fiscal.wire.sefaz import Sefaz
from umavez_systems.fiscal.wire.soap import Correio
from umavez_systems.server import prepare
from umavez_systems.settings import Settings

CNPJ = "12ABC34501DE35"
ENDERECO = Endereco("Rua Um", "1", "Centro", "3550308", "Sao Paulo", "SP", "01001000")
TOMADOR = Destinatario("Maria Souza", cpf="52998224725", endereco=ENDERECO)
EMITENTE = Emitente(CNPJ, "Loja de Teste", "111111111111", "SP", ENDERECO)


class Mundo:
    """A running simulator and what tests want from it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened: list[Autoridade] = []
        self.onde: Simulador = iniciar(folder)
        self.cartorio = Cartorio(folder / "certificados")
        self.pfx = self.cartorio.a1(CNPJ, "Loja", "segredo")
        self.certificado = Certificado.lido(self.pfx, "segredo")

    def falhar(self, servico: str, quando: str, tipo: str, vezes: int = 1, segundos: float = 0.4) -> None:
        order = {"servico": servico, "quando": quando, "tipo": tipo, "vezes": vezes, "segundos": segundos}
        httpx.post(f"{self.onde.controle}/_sim/falhas", json=order).raise_for_status()

    def sem_falhas(self) -> None:
        httpx.delete(f"{self.onde.controle}/_sim/falhas").raise_for_status()

    def livro(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self.onde.controle}/_sim/livro").json()
        return found

    def sefaz(self, envio: float = 0.3, consulta: float = 0.3, emitente: Emitente = EMITENTE) -> Sefaz:
        correio = Correio(self.certificado.tls(self.onde.ca_pem))
        where = Enderecos(emitente.uf, "2", lambda: self.onde.servicos)
        made = Sefaz(emitente, self.certificado, where, correio, envio=envio, consulta=consulta)
        self._opened.append(made)
        return made

    def nacional(self, emitente: Emitente = EMITENTE, tempo: float = 5.0) -> Nacional:
        correio = Correio(self.certificado.tls(self.onde.ca_pem))
        base = f"{self.onde.servicos}/{SEFIN}"
        made = Nacional(emitente, self.certificado, "2", correio, base=lambda: base, envio=tempo, consulta=tempo)
        self._opened.append(made)
        return made

    def cidade(self, emitente: Emitente | None = None, **more: Any) -> SaoPaulo:
        correio = Correio(self.certificado.tls(self.onde.ca_pem))
        base = f"{self.onde.servicos}/{PAULISTANA}"
        who = emitente or replace(EMITENTE, ccm=ccm_demo(CNPJ))
        made = SaoPaulo(who, self.certificado, correio, base=lambda: base, envio=5.0, consulta=5.0, **more)
        self._opened.append(made)
        return made

    def fechar(self) -> None:
        while self._opened:
            self._opened.pop().close()


@pytest.fixture(scope="session")
def simulador(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mundo]:
    """One simulator for the whole run; it keeps its books, so tests use numbers of their own."""
    world = Mundo(tmp_path_factory.mktemp("simulador"))
    yield world
    parar(world.onde)


@pytest.fixture
def mundo(simulador: Mundo) -> Iterator[Mundo]:
    """The simulator, without faults left over."""
    simulador.sem_falhas()
    yield simulador
    simulador.sem_falhas()
    simulador.fechar()


@pytest.fixture
def sefaz(mundo: Mundo) -> Sefaz:
    """A taxpayer's access to it."""
    return mundo.sefaz(envio=5.0, consulta=5.0)


class Loja:
    """The whole system on one database against the simulator, without waiting between two tries."""

    def __init__(self, database: str, world: Mundo, **options: Any) -> None:
        prepared(database, world.folder)
        self.url = database
        self.mundo = world
        self.banco = open_database(database, 8)
        self.once = Once(self.banco.store_url, scope="fiscal")
        self.pausas: list[float] = []
        chosen = {
            "tempos": Tempos(1.0, 1.0),
            "termos": Termos(settle=0.0, first=0.0, lease=5.0, quarentena=0.0),
            **options,
        }
        self.sistema = Sistema(self.once, self.banco, folder=world.folder, sleep=self.pausas.append, **chosen)
        self.fiscal, self.livros, self.atos = self.sistema.fiscal, self.sistema.livros, self.sistema.atos
        self.serie = next(_SERIES)
        data = {**DEMO_DATA, "cnpj": CNPJ}
        self.sistema.organizacoes.criar("local", data, world.pfx, "segredo", "simulador")

    def emitir(self, key: str | None = None, tipo: Tipo = Tipo.NFE, **more: Any) -> Resultado:
        return self.fiscal.emitir(Caller("local", key), pedido(tipo, self.serie, **more))

    def estado(self, made: Resultado) -> str:
        found: str = self.fiscal.documento("local", made.row["id"])["estado"]
        return found

    def na_autoridade(self) -> list[dict[str, Any]]:
        """The authority's notes of this shop's series."""
        return [row for row in self.mundo.livro()["documentos"] if row["serie"] == self.serie]

    def prova(self, made: Resultado) -> list[str]:
        export = self.livros.prova("local", made.row["id"])
        assert export["falhas"] == []
        return [entry["tipo"] for entry in export["entradas"]]

    def fechar(self) -> None:
        self.sistema.close()
        self.once.close()
        self.banco.close()


_SERIES = iter(range(1, 900))


def prepared(database: str, folder: Path) -> None:
    """The tables. A file is copied from one that was migrated once, which takes a tenth of the time."""
    if not database.startswith("sqlite"):
        prepare(Settings(database=database))
        return
    template = folder / "modelo.db"
    if not template.exists():
        prepare(Settings(database=f"sqlite:///{template}"))
    path = Path(database.removeprefix("sqlite:///"))
    if not path.exists():
        shutil.copy(template, path)


@pytest.fixture
def loja(database: str, mundo: Mundo) -> Iterator[Loja]:
    """A shop on each database."""
    made = Loja(database, mundo)
    yield made
    made.fechar()


@pytest.fixture
def loja_local(tmp_path: Path, mundo: Mundo) -> Iterator[Loja]:
    """A shop on SQLite alone, for what does not depend on the database."""
    made = Loja(f"sqlite:///{tmp_path}/loja.db", mundo)
    yield made
    made.fechar()


_NUMBERS = iter(range(1, 10**6))


def pedido(tipo: Tipo = Tipo.NFE, serie: int = 900, **more: Any) -> Pedido:
    """An order of one pen, or of one service."""
    if tipo.de_servico:
        return servico(tipo, serie, **more)
    item = Item("1", "Caneta", "96081000", "5102", "UN", Decimal(2), Decimal("1.50"))
    buyer = Destinatario("Maria Souza", cpf="52998224725", endereco=ENDERECO)
    where = more.pop("organizacao", "demo")
    return Pedido(tipo, where, serie, (item,), (Pagamento("01", Decimal("3.00")),), buyer, **more)


def servico(tipo: Tipo, serie: int, destinatario: Destinatario | None = TOMADOR, **more: Any) -> Pedido:
    """An order of one service."""
    code = "02919" if tipo is Tipo.NFSE_SP else "010101"
    done = Servico("Consultoria & apoio", code, Decimal("100.10"), aliquota=Decimal("2.00"))
    return Pedido(tipo, "demo", serie, (), (), destinatario, servico=replace(done, **more))


def numerado(tipo: Tipo = Tipo.NFE, *, tp_emis: str = "1", numero: int | None = None, **more: Any) -> Numerado:
    """The order with a number that no other test has."""
    number = next(_NUMBERS) if numero is None else numero
    now = datetime.now(BRASILIA).isoformat(timespec="seconds")
    late = now if tp_emis == "9" else None
    why = {"justificativa": "Sem conexao com a internet na loja"} if late else {}
    return Numerado(pedido(tipo, **why, **more), number, sortear_cnf(number), now, tp_emis, late)
