"""Seed 004 §10.2: how long each operation may take, and that every call of every authority is given that time."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.umavez_systems.fiscal.conftest import CNPJ, EMITENTE
from umavez import Once
from umavez_systems.database import open_database
from umavez_systems.fiscal import assembly
from umavez_systems.fiscal.domain import Acao, Tipo
from umavez_systems.fiscal.organizations import ccm_demo
from umavez_systems.fiscal.ports import Ato, Autoridade, Recusada
from umavez_systems.fiscal.simulador.certificates import Cartorio
from umavez_systems.fiscal.wire.certificate import Certificado
from umavez_systems.server import prepare
from umavez_systems.settings import Settings

CHAVE = "35261112ABC34501DE35550010000000121408172630"
NFSE = "35503082212ABC34501DE35000000000000126110000079190"
SEND, ASK = 60.0, 30.0


class Watch:
    """A post that carries nothing and remembers how long it was told to wait."""

    def __init__(self, _tls: object = None) -> None:
        self.times: list[float] = []

    def levar(self, _address: str, _service: str, _verb: str, _xml: bytes, timeout: float) -> NoReturn:
        self._refuse(timeout)

    def chamar(self, _method: str, _address: str, timeout: float, *_rest: object) -> NoReturn:
        self._refuse(timeout)

    def _refuse(self, timeout: float) -> NoReturn:
        self.times.append(timeout)
        raise Recusada(400, "no")

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificado:
    office = Cartorio(tmp_path_factory.mktemp("cartorio"))
    return Certificado.lido(office.a1(CNPJ, "Loja", "segredo"), "segredo")


def told(watch: Watch, authority: Autoridade, acts: list[Ato], asked: Ato) -> tuple[list[float], list[float]]:
    """The times of what is sent, and of what is asked."""
    watch.times.clear()
    for act in acts:
        with suppress(Recusada):
            authority.transmitir(act)
    sent = list(watch.times)
    watch.times.clear()
    for question in (lambda: authority.consultar(asked), authority.situacao):
        with suppress(Recusada):
            question()
    return sent, watch.times


def act(acao: Acao, tipo: Tipo, **more: Any) -> Ato:
    return Ato(acao, "id", b"<NFe/>", tipo, **more)


def test_s4_11_sixty_seconds_for_what_is_sent_and_thirty_for_what_is_asked(
    tmp_path: Path, certificate: Certificado, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(database=f"sqlite:///{tmp_path}/t.db", fiscal_dir=str(tmp_path), fiscal_ambiente="producao")
    prepare(settings)
    database = open_database(settings.database, 1)
    monkeypatch.setattr(assembly, "Correio", Watch)
    with Once(database.store_url, scope="umavez") as once:
        system = assembly.open_fiscal(settings, database, once)
        opened = {name: system._open(_organisation(certificate), name) for name in ("sefaz", "adn", "sp")}
        notes = [act(one, Tipo.NFE, chave=CHAVE) for one in Acao]
        service = [act(one, Tipo.NFSE_ADN, chave=NFSE) for one in (Acao.EMITIR, Acao.CANCELAR)]
        rps = f"{ccm_demo(CNPJ)}_1_000000000001"
        city = [act(one, Tipo.NFSE_SP, documento=rps) for one in (Acao.EMITIR, Acao.CANCELAR)]
        for name, acts in (("sefaz", notes), ("adn", service), ("sp", city)):
            watch: Any = opened[name]._correio
            sent, asked = told(watch, opened[name], acts, acts[0])
            assert (name, sent) == (name, [SEND] * len(acts))
            assert (name, asked) == (name, [ASK] * 2)
        system.close()
    database.close()


def _organisation(certificate: Certificado) -> Any:
    from dataclasses import replace

    from umavez_systems.fiscal.organizations import Organizacao

    emitter = replace(EMITENTE, ccm=ccm_demo(CNPJ))
    return Organizacao("local/loja", "loja", "local", "producao", emitter, certificate)
