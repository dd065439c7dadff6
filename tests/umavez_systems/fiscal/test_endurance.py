"""What lasts: outages longer than any number of tries, answers that come late, and who may send how often."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.umavez_systems.fiscal.conftest import CNPJ, Loja, Mundo
from tests.umavez_systems.fiscal.test_acts import answering
from umavez.reconcile import Pace
from umavez_systems.fiscal.assembly import DEMO_DATA
from umavez_systems.fiscal.atos.governor import HOUR, Limites
from umavez_systems.fiscal.cases import Caller, Resultado
from umavez_systems.fiscal.domain import Acao
from umavez_systems.fiscal.operations import Termos
from umavez_systems.fiscal.wire.addresses import Enderecos
from umavez_systems.problems import Problem

LOCAL = Caller("local")
WHY = "Pedido desfeito pelo cliente"
OUTAGE = 25
"""Calls during an outage, more than an act was once allowed in its whole life."""
OTHER = "11222333000181"
BEGINNING = ("intencao", "bytes", "envio", "estado")
NOBODY = "https://127.0.0.1:9"


def minutes_left(loja: Loja, made: Resultado) -> float:
    """Until the document is looked at again, as a caller is told."""
    planned = loja.fiscal.documento("local", made.row["id"])["proximo_em"]
    return 0.0 if planned is None else (planned / 1000 - time.time()) / 60


def test_s4_05_an_authority_that_nobody_reached_for_long_gets_the_note_afterwards(loja: Loja) -> None:
    authority: Any = loja.sistema.organizacoes.autoridade("local/demo")
    there, authority._enderecos = authority._enderecos, Enderecos("SP", "2", lambda: NOBODY)
    made = loja.emitir("k")
    for _ in range(OUTAGE):
        assert loja.emitir("k").row["estado"] == "RASCUNHO"
    authority._enderecos = there

    again = loja.emitir("k")

    assert (again.row["id"], again.row["estado"]) == (made.row["id"], "AUTORIZADO")
    assert len(loja.na_autoridade()) == 1


def test_s4_05_an_authority_that_was_busy_for_long_gets_the_note_from_the_reconciler(loja_local: Loja) -> None:
    loja_local.mundo.falhar("autorizacao", "antes", "429", vezes=1000, segundos=0)
    made = loja_local.emitir("k")
    for _ in range(OUTAGE):
        assert loja_local.emitir("k").row["estado"] == "RASCUNHO"
    loja_local.mundo.sem_falhas()

    loja_local.livros.varrer()

    assert loja_local.estado(made) == "AUTORIZADO"


def test_s4_09_a_cancellation_outlasts_an_outage_too(loja_local: Loja) -> None:
    made = loja_local.emitir()
    loja_local.mundo.falhar("evento", "depois", "queda")
    loja_local.mundo.falhar("evento", "antes", "429", vezes=1000, segundos=0)
    loja_local.mundo.falhar("consulta", "antes", "429", vezes=1000, segundos=0)
    pending = loja_local.fiscal.cancelar(LOCAL, made.row["id"], WHY, made.row["versao"])
    assert pending.row["estado"] == "CANCELAMENTO_PENDENTE"
    for _ in range(OUTAGE):
        loja_local.fiscal.conciliar(LOCAL, made.row["id"])
    loja_local.mundo.sem_falhas()
    loja_local.atos.governador.limites = Limites(por_chave=1000)  # the questions of the outage were counted

    loja_local.livros.varrer()

    assert loja_local.estado(made) == "CANCELADO"


def test_s4_04_retry_after_holds_for_every_later_caller(loja_local: Loja) -> None:
    loja_local.mundo.falhar("autorizacao", "antes", "429", vezes=3, segundos=600)
    made = loja_local.emitir("k")
    sent = loja_local.prova(made).count("envio")
    for _ in range(3):
        assert loja_local.emitir("k").row["estado"] == "RASCUNHO"
    loja_local.livros.varrer()

    assert loja_local.prova(made).count("envio") == sent == 1
    assert 8 < minutes_left(loja_local, made) < 11


def test_s4_05_one_act_is_sent_so_often_in_an_hour_by_all_workers_together(tmp_path: Path, mundo: Mundo) -> None:
    shop = Loja(f"sqlite:///{tmp_path}/vezes.db", mundo, limites=Limites(por_chave=1000, por_ato=4))
    mundo.falhar("autorizacao", "antes", "queda", vezes=1000)
    made = shop.emitir("k")
    for _ in range(4):
        shop.livros.varrer()

    assert shop.prova(made).count("envio") == 1 + 4
    assert minutes_left(shop, made) > 50
    mundo.sem_falhas()
    shop.livros.varrer()
    assert shop.estado(made) == "INDETERMINADO"
    with shop.banco.transaction() as connection:
        later = f"[{int(time.time() * 1000) - HOUR}]"
        connection.rows("UPDATE fiscal_consumo SET momentos = ?, bloqueado_ate = 0", (later,))
        connection.rows("UPDATE documentos_fiscais SET proximo_em = 0")
    shop.livros.varrer()
    assert shop.estado(made) == "AUTORIZADO"
    shop.fechar()


def test_s4_05_a_question_without_budget_is_planned_for_when_there_is_one(tmp_path: Path, mundo: Mundo) -> None:
    shop = Loja(f"sqlite:///{tmp_path}/plano.db", mundo, limites=Limites(por_chave=2))
    mundo.falhar("autorizacao", "depois", "queda")
    mundo.falhar("consulta", "antes", "queda", vezes=1000)
    made = shop.emitir("k")
    for _ in range(3):
        shop.livros.varrer()

    assert shop.estado(made) == "INDETERMINADO"
    assert minutes_left(shop, made) > 50
    shop.fechar()


def test_s4_06_an_answer_that_comes_after_a_cancellation_does_not_bring_the_note_back(loja: Loja) -> None:
    made = loja.emitir()
    authority: Any = loja.sistema.organizacoes.autoridade("local/demo")
    ask = authority.consultar

    def slow(ato: Any) -> Any:
        answer = ask(ato)
        authority.consultar = ask
        loja.fiscal.cancelar(LOCAL, made.row["id"], WHY, made.row["versao"])
        return answer

    authority.consultar = slow
    found = loja.fiscal.conciliar(LOCAL, made.row["id"])

    assert found.row["estado"] == "CANCELADO"
    assert loja.prova(made)[-1] == "ignorada"


def test_s4_07_an_answer_is_written_over_the_row_as_it_is_when_somebody_changed_it_meanwhile(loja: Loja) -> None:
    authority: Any = loja.sistema.organizacoes.autoridade("local/demo")
    send = authority.transmitir

    def crossed(ato: Any) -> Any:
        loja.atos.perguntar(Acao.EMITIR, "local/demo", ato.nome)
        return send(ato)

    authority.transmitir = crossed
    made = loja.emitir()

    assert made.row["estado"] == loja.estado(made) == "AUTORIZADO"
    assert loja.prova(made) == [*BEGINNING, "resposta", "decisao", "resposta", "decisao", "estado"]


def test_s4_06_what_is_told_about_an_emission_is_what_is_stored(loja: Loja) -> None:
    made = loja.emitir()
    assert {**made.row, "agora": None} == {**loja.fiscal.documento("local", made.row["id"]), "agora": None}


@pytest.mark.parametrize("lost", [1, 3])
def test_an_epec_in_doubt_is_asked_with_its_own_bytes_and_its_note_waits_for_it(loja: Loja, lost: int) -> None:
    loja.mundo.falhar("evento", "depois", "queda", vezes=lost)
    epec: dict[str, Any] = {"modo": "epec", "justificativa": "SEFAZ de origem fora do ar"}
    made = loja.emitir("k", **epec)
    if lost == 3:
        assert (made.row["estado"], made.row["epec_em"]) == ("RASCUNHO", None)
        assert loja.na_autoridade() == []
        made = loja.emitir("k", **epec)

    assert (made.row["estado"], made.row["epec_em"] is not None) == ("RASCUNHO", True)
    (act,) = loja.fiscal.atos_de(made.row["id"])
    assert (act["estado"], act["codigo"]) == ("FEITO", "573")
    loja.livros.varrer()
    assert loja.estado(made) == "AUTORIZADO"
    events = [row["tipo"] for row in loja.mundo.livro()["eventos"] if row["chave"] == made.row["chave_acesso"]]
    assert events == ["110140"]


def test_an_epec_in_doubt_is_closed_by_the_reconciler_alone(loja_local: Loja) -> None:
    loja_local.mundo.falhar("evento", "depois", "queda", vezes=3)
    made = loja_local.emitir(modo="epec", justificativa="SEFAZ de origem fora do ar")
    assert made.row["epec_em"] is None
    for _ in range(3):
        loja_local.livros.varrer()
    assert loja_local.estado(made) == "AUTORIZADO"


def test_a_refused_epec_refuses_its_note_and_leaves_the_number_to_be_voided(loja_local: Loja) -> None:
    answering(loja_local, "evento", "489", "CNPJ informado invalido")
    made = loja_local.emitir("k", modo="epec", justificativa="SEFAZ de origem fora do ar")

    assert (made.row["estado"], made.row["codigo"]) == ("REJEITADO", "489")
    (series,) = loja_local.livros.numeracao("local")
    assert series.livro.inutilizaveis == [(1, 1)]
    assert loja_local.na_autoridade() == []


def test_contingency_is_entered_only_where_its_own_status_says_that_it_is_open(loja_local: Loja) -> None:
    svc: dict[str, Any] = {"modo": "svc", "justificativa": "SEFAZ de origem fora do ar"}
    loja_local.mundo.falhar("status", "antes", "queda")
    for _ in range(2):  # the second is told what the first found out: three minutes have not passed
        with pytest.raises(Problem) as closed:
            loja_local.emitir(**svc)
        assert (closed.value.status, closed.value.name) == (503, "contingencia-fechada")
    assert loja_local.emitir().row["numero"] == 1

    with loja_local.banco.transaction() as connection:
        connection.rows("DELETE FROM fiscal_consumo")
    assert loja_local.emitir(**svc).row["estado"] == "AUTORIZADO"


def test_a_certificate_that_ended_takes_no_number_and_a_later_one_takes_its_place(loja: Loja) -> None:
    def ends(moment: int) -> None:
        with loja.banco.transaction() as connection:
            connection.rows("UPDATE fiscal_organizacoes SET certificado_vence_em = ?", (moment,))
        loja.sistema.organizacoes._rows.clear()

    ends(1)
    with pytest.raises(Problem) as ended:
        loja.emitir()
    assert (ended.value.status, ended.value.name) == (409, "certificado-vencido")

    new = loja.mundo.cartorio.a1(CNPJ, "Loja", "outra senha")
    row, made = loja.sistema.organizacoes.criar("local", {**DEMO_DATA, "cnpj": CNPJ}, new, "outra senha", "simulador")
    assert (made, row["certificado_vence_em"] > time.time() * 1000) == (False, True)
    assert loja.sistema.organizacoes._read("local/demo").certificado.senha == "outra senha"
    assert loja.emitir().row["numero"] == 1

    ends(10**15)
    row, _ = loja.sistema.organizacoes.criar(
        "local", {**DEMO_DATA, "cnpj": CNPJ}, loja.mundo.pfx, "segredo", "simulador"
    )
    assert row["certificado_vence_em"] == 10**15


def test_one_taxpayers_trouble_keeps_no_other_from_being_carried(loja_local: Loja) -> None:
    loja_local.mundo.falhar("autorizacao", "antes", "429", vezes=6, segundos=0)
    data = {**DEMO_DATA, "id": "outra", "cnpj": OTHER}
    pfx = loja_local.mundo.cartorio.a1(OTHER, "Outra", "segredo")
    loja_local.sistema.organizacoes.criar("local", data, pfx, "segredo", "simulador")
    broken, whole = loja_local.emitir(), loja_local.emitir(organizacao="outra")
    assert [made.row["estado"] for made in (broken, whole)] == ["RASCUNHO", "RASCUNHO"]
    with loja_local.banco.transaction() as connection:
        connection.rows("UPDATE fiscal_organizacoes SET certificado = 'x' WHERE id = 'local/demo'")
        connection.rows("UPDATE documentos_fiscais SET proximo_em = 0 WHERE org_id = 'local/demo'")
    loja_local.sistema.organizacoes.esquecer("local/demo")

    loja_local.livros.varrer()

    assert (loja_local.estado(broken), loja_local.estado(whole)) == ("RASCUNHO", "AUTORIZADO")


def test_an_epec_whose_note_was_cancelled_is_no_longer_pending(loja_local: Loja) -> None:
    made = loja_local.emitir(modo="epec", justificativa="SEFAZ de origem fora do ar")
    loja_local.livros.varrer()
    row = loja_local.fiscal.documento("local", made.row["id"])
    loja_local.fiscal.cancelar(LOCAL, row["id"], WHY, row["versao"])
    assert loja_local.livros.pendencias("local")[0] == []


def test_s4_05_questions_are_planned_within_the_budget_and_never_further_apart_than_ten_minutes() -> None:
    terms = Termos()
    pace = Pace(first=terms.first, cap=terms.cap, settle=terms.settle)
    pauses = [pace.wait(asked) / 1000 for asked in range(30)]
    moments = [sum(pauses[: place + 1]) for place in range(30)]

    assert max(pauses) <= 600
    for begin in moments:
        assert sum(begin <= moment < begin + 3600 for moment in moments) <= Limites().por_chave
