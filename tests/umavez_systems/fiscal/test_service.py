"""The reconciler as a service: several at once, the right that is lost first in front, ended by a signal."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.umavez_systems.fiscal.conftest import Loja, Mundo
from tests.umavez_systems.fiscal.test_command import UMAVEZ, Shell
from umavez_systems.fiscal.domain import Acao, Estado, Tipo
from umavez_systems.fiscal.rules.deadlines import HORA, Situacao
from umavez_systems.fiscal.rules.plan import Devido, plano
from umavez_systems.fiscal.service import servir
from umavez_systems.problems import Problem

KINDS = (Tipo.NFE, Tipo.NFCE, Tipo.NFSE_ADN, Tipo.NFSE_SP)


def due(org: str, name: str, modelo: str, emitido: int, estado: Estado = Estado.INDETERMINADO) -> Devido:
    return Devido(Acao.EMITIR, org, name, Situacao(name, modelo, "SP", estado, "1", emitido, None))


def test_the_right_that_is_lost_first_goes_first_and_no_organisation_before_its_turn() -> None:
    found = plano(
        [
            due("a", "a nfe", "55", 0),
            due("a", "z nfce", "65", 0),
            due("a", "b nfce later", "65", HORA),
            due("b", "nfse", "NFSE_SP", 0),
            Devido(Acao.INUTILIZAR, "b", "voiding"),
        ]
    )
    assert [one.nome for one in found] == ["z nfce", "nfse", "b nfce later", "voiding", "a nfe"]
    assert plano([]) == []
    assert due("a", "x", "55", 0, Estado.AUTORIZADO).conferir is True


def leave_open(shop: Loja) -> list[Any]:
    """One document of each kind whose answer was lost, and nobody could be asked."""
    made = []
    for tipo in KINDS:
        where = "" if tipo.autoridade == "sefaz" else f"{tipo.autoridade}/"
        shop.mundo.falhar(f"{where}autorizacao", "depois", "queda")
        shop.mundo.falhar(f"{where}consulta", "antes", "queda", vezes=1)
        made.append(shop.emitir(f"k-{tipo}", tipo))
        shop.mundo.sem_falhas()
    assert [one.row["estado"] for one in made] == ["INDETERMINADO"] * 4
    return made


def test_s4_05_several_reconcilers_at_once_close_all_four_kinds_once(database: str, mundo: Mundo) -> None:
    shops = [Loja(database, mundo) for _ in range(3)]
    made = leave_open(shops[0])
    stop, told = threading.Event(), []
    threads = [threading.Thread(target=servir, args=(shop.sistema, stop, 0.05, told.append)) for shop in shops]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while {shops[0].estado(one) for one in made} != {"AUTORIZADO"} and time.monotonic() < deadline:
        time.sleep(0.05)
    stop.set()
    for thread in threads:
        thread.join(30)

    assert {shops[0].estado(one) for one in made} == {"AUTORIZADO"}
    assert len(shops[0].na_autoridade()) == 4
    assert not any(thread.is_alive() for thread in threads)
    for shop in shops:
        shop.fechar()


def test_a_failed_round_is_tried_again(loja_local: Loja, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, told = threading.Event(), []
    answers = iter([Problem(503, "x", "x", "x"), 7])

    def varrer(_budget: int) -> int:
        found = next(answers)
        if isinstance(found, Problem):
            raise found
        stop.set()
        return found

    monkeypatch.setattr(loja_local.livros, "varrer", varrer)
    servir(loja_local.sistema, stop, 0.0, told.append)
    assert told == [7]


def test_a_round_keeps_its_budget(loja_local: Loja) -> None:
    loja_local.mundo.falhar("autorizacao", "antes", "429", vezes=12, segundos=0)
    drafts = [loja_local.emitir(f"k{number}") for number in range(4)]
    assert {one.row["estado"] for one in drafts} == {"RASCUNHO"}
    assert loja_local.livros.varrer(2) == 2
    assert sorted(loja_local.estado(one) for one in drafts).count("AUTORIZADO") == 2


def test_the_command_runs_until_it_is_told_to_stop(tmp_path: Path, mundo: Mundo) -> None:
    shop = Loja(f"sqlite:///{tmp_path}/loja.db", mundo)
    made = leave_open(shop)
    shell = Shell(tmp_path, mundo)
    command = [UMAVEZ, "fiscal", "conciliar", "--sempre", "--every", "0.1", "--orcamento", "50"]
    environment = {**shell.environment, "UMAVEZ_FISCAL_FIRST_SECONDS": "0", "UMAVEZ_FISCAL_QUARENTENA_SECONDS": "0"}
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 90
        while {shop.estado(one) for one in made} != {"AUTORIZADO"} and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    assert {shop.estado(one) for one in made} == {"AUTORIZADO"}
    assert process.returncode == 0
    assert "ato(s) movido(s)." in said
    shop.fechar()
