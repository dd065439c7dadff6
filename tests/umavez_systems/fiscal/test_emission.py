"""Safe emission (seed 004 §3.3, §5, §6): stored before sent, asked before sent again, told apart at the end."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from typing import Any

import pytest

from tests.umavez_systems.fiscal.conftest import Loja, Mundo, numerado, pedido
from tests.umavez_systems.fiscal.test_wire import ato_de
from umavez import Status, StoreUnavailable
from umavez.testing.crash import Died
from umavez_systems.fiscal import operations
from umavez_systems.fiscal.assembly import Tempos
from umavez_systems.fiscal.atos.claims import Reserva
from umavez_systems.fiscal.atos.governor import Governador, Limites
from umavez_systems.fiscal.cases import Caller
from umavez_systems.fiscal.domain import Acao, Estado, Tipo
from umavez_systems.fiscal.operations import Termos
from umavez_systems.fiscal.ports import Ato, Resposta
from umavez_systems.fiscal.rules.orders import conteudo
from umavez_systems.fiscal.rules.retrying import TEMPO_DE_CONSULTA
from umavez_systems.problems import Problem


@pytest.mark.parametrize("tipo", [Tipo.NFE, Tipo.NFCE])
def test_s4_02_a_document_is_emitted_once_and_a_repeat_comes_from_the_cache(loja: Loja, tipo: Tipo) -> None:
    first = loja.emitir("pedido-1", tipo)
    again = loja.emitir("pedido-1", tipo)

    assert (first.row["estado"], first.origem, first.repetida) == ("AUTORIZADO", "emissao", False)
    assert (again.row["id"], again.origem, again.repetida) == (first.row["id"], "cache", True)
    assert [row["chave"] for row in loja.na_autoridade()] == [first.row["chave_acesso"]]
    assert first.row["protocolo"] == loja.na_autoridade()[0]["protocolo"]
    kinds = ["intencao", "bytes", "envio", "estado", "resposta", "decisao", "estado"]
    assert loja.prova(first) == kinds


def test_s4_02_the_signed_bytes_are_stored_and_transmitido_is_written_before_the_first_send(loja: Loja) -> None:
    seen: list[tuple[str, bytes]] = []
    authority = loja.sistema.organizacoes.autoridade("local/demo")
    send = authority.transmitir

    def watching(ato: object) -> object:
        with loja.banco.statements() as connection:
            row = connection.row("SELECT estado, xml_assinado FROM documentos_fiscais") or {}
        seen.append((row["estado"], bytes(row["xml_assinado"])))
        assert seen[-1][1] == ato.xml  # type: ignore[attr-defined]  # the act being sent
        return send(ato)  # type: ignore[arg-type]  # the same

    authority.transmitir = watching  # type: ignore[method-assign,assignment]  # to look at that very moment
    loja.emitir()
    assert [state for state, _ in seen] == ["TRANSMITIDO"]


@pytest.mark.parametrize("tipo", ["queda", "timeout", "500", "lixo", "meia", "proxy"])
def test_s4_05_an_answer_lost_after_processing_is_found_by_asking(loja_local: Loja, tipo: str) -> None:
    loja_local.mundo.falhar("autorizacao", "depois", tipo, segundos=1.2)
    made = loja_local.emitir()

    assert (made.row["estado"], made.origem) == ("AUTORIZADO", "conciliacao")
    assert len(loja_local.na_autoridade()) == 1
    assert loja_local.prova(made).count("envio") == 1


@pytest.mark.parametrize("tipo", ["queda", "timeout", "500", "lixo", "meia", "proxy", "429"])
def test_s4_05_what_never_arrived_is_sent_again_with_the_same_bytes(loja_local: Loja, tipo: str) -> None:
    loja_local.mundo.falhar("autorizacao", "antes", tipo, segundos=1.2)
    made = loja_local.emitir()

    assert made.row["estado"] == "AUTORIZADO"
    export = loja_local.livros.prova("local", made.row["id"])
    sent = [entry["conteudo"] for entry in export["entradas"] if entry["tipo"] == "envio"]
    assert len(sent) == 2
    assert len({json.loads(text)["sha256"] for text in sent}) == 1


def test_s4_04_pauses_and_attempts_are_the_seeds(loja_local: Loja) -> None:
    loja_local.mundo.falhar("autorizacao", "antes", "queda", vezes=50)
    made = loja_local.emitir()

    assert made.row["estado"] == "INDETERMINADO"
    assert loja_local.pausas == [1.0, 2.0]
    assert loja_local.prova(made).count("envio") == 3


def test_s4_04_retry_after_is_respected(loja_local: Loja) -> None:
    loja_local.mundo.falhar("autorizacao", "antes", "429", segundos=7)
    assert loja_local.emitir().row["estado"] == "AUTORIZADO"
    assert loja_local.pausas == [7.0]


def test_s4_05_nobody_knows_stays_unknown_and_is_closed_later(loja: Loja) -> None:
    loja.mundo.falhar("autorizacao", "depois", "queda")
    loja.mundo.falhar("consulta", "antes", "queda", vezes=50)
    made = loja.emitir("k")
    assert (made.row["estado"], made.row["proximo_em"] is not None) == ("INDETERMINADO", True)
    again = loja.emitir("k")
    assert (again.row["estado"], again.repetida) == ("INDETERMINADO", True)

    loja.mundo.sem_falhas()
    loja.livros.varrer()

    row = loja.fiscal.documento("local", made.row["id"])
    assert (row["estado"], row["origem"]) == ("AUTORIZADO", "conciliacao")
    assert len(loja.na_autoridade()) == 1


def test_s4_05_what_was_never_sent_is_a_draft_and_goes_out_later(loja_local: Loja) -> None:
    loja_local.mundo.falhar("autorizacao", "antes", "429", vezes=3, segundos=0)
    made = loja_local.emitir()
    assert made.row["estado"] == "RASCUNHO"
    assert made.row["enviado_em"] is None
    loja_local.livros.varrer()
    assert loja_local.estado(made) == "AUTORIZADO"


def test_a_duplicate_delivery_is_adopted_and_never_renumbered(loja_local: Loja) -> None:
    loja_local.mundo.falhar("autorizacao", "depois", "duplicada")
    made = loja_local.emitir()

    assert (made.row["estado"], made.origem) == ("AUTORIZADO", "conciliacao")
    assert len(loja_local.na_autoridade()) == 1


def test_s4_06_a_slow_authority_that_acts_after_it_was_asked_makes_no_second_note(
    tmp_path: object, mundo: Mundo
) -> None:
    shop = Loja(f"sqlite:///{tmp_path}/lenta.db", mundo, tempos=Tempos(0.3, 1.0))
    mundo.falhar("autorizacao", "antes", "lento", segundos=0.9)
    made = shop.emitir()
    import time

    time.sleep(1.0)  # the late processing happens in another process
    shop.livros.varrer()
    assert shop.estado(made) == "AUTORIZADO"
    assert len(shop.na_autoridade()) == 1
    shop.fechar()


def test_a_number_that_another_note_holds_stops_the_emission_and_names_the_other(loja_local: Loja) -> None:
    with loja_local.banco.transaction() as connection:
        loja_local.atos.numeracao.abrir(connection, "local/demo", "55", loja_local.serie, 77)
    elsewhere = loja_local.mundo.sefaz(envio=5, consulta=5)
    other = elsewhere.montar(numerado(numero=77, serie=loja_local.serie))
    elsewhere.transmitir(ato_de(other))

    made = loja_local.emitir()

    assert (made.row["estado"], made.row["codigo"]) == ("DIVERGENTE", "539")
    decision = loja_local.livros.prova("local", made.row["id"])["entradas"][-2]
    assert json.loads(decision["conteudo"])["outra_chave"] == other.chave


def test_the_same_key_with_other_content_is_refused(loja_local: Loja) -> None:
    loja_local.emitir("k")
    with pytest.raises(Problem) as refused:
        loja_local.emitir("k", natureza="Outra coisa")
    assert (refused.value.status, refused.value.name) == (422, "chave-reutilizada")


def test_another_principal_never_sees_it(loja_local: Loja) -> None:
    made = loja_local.emitir("k")
    with pytest.raises(Problem) as hidden:
        loja_local.fiscal.documento("ana", made.row["id"])
    assert hidden.value.status == 404


def test_s4_10_numbers_under_threads_are_unique_and_without_gaps(loja: Loja) -> None:
    made: list[int] = []
    troubles: list[BaseException] = []

    def work(number: int) -> None:
        try:
            made.extend(loja.emitir(f"k{number}-{turn}").row["numero"] for turn in range(3))
        except BaseException as error:  # noqa: BLE001  # shown below
            troubles.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not troubles
    assert sorted(made) == list(range(1, 13))
    assert Counter(row["numero"] for row in loja.na_autoridade()) == Counter(range(1, 13))


def test_s4_02_two_callers_with_one_key_at_the_same_instant_make_one_document(loja: Loja) -> None:
    made: list[str] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        made.append(loja.emitir("juntos").row["id"])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len(set(made))) == (4, 1)
    assert loja.emitir("outro").row["numero"] == 2
    assert len(loja.na_autoridade()) == 2


def test_s4_02_a_repeat_that_waited_for_the_first_call_comes_from_the_cache(
    loja_local: Loja, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = loja_local.emitir("k")
    under_way = {**first.row, "estado": "TRANSMITIDO"}
    monkeypatch.setattr(loja_local.fiscal, "da_chave", lambda *_: under_way)
    again = loja_local.emitir("k")

    assert (again.row["estado"], again.origem, again.repetida) == ("AUTORIZADO", "cache", True)


def test_s4_10_a_blocked_series_gives_no_number(loja_local: Loja) -> None:
    from umavez_systems.fiscal.organizations import bloquear

    loja_local.emitir()
    with loja_local.banco.transaction() as connection:
        bloquear(connection, "local/demo", "55", loja_local.serie, True)
    with pytest.raises(Problem) as refused:
        loja_local.emitir()
    assert refused.value.name == "serie-bloqueada"


def test_an_order_that_the_schema_refuses_takes_no_number(loja_local: Loja) -> None:
    import dataclasses

    order = pedido(Tipo.NFE, loja_local.serie)
    bad = dataclasses.replace(order, itens=(dataclasses.replace(order.itens[0], ncm="1"),))
    with pytest.raises(Problem):
        loja_local.fiscal.emitir(Caller("local"), bad)
    assert loja_local.emitir().row["numero"] == 1


def test_the_query_budget_is_kept_by_all_workers_together(tmp_path: object, mundo: Mundo) -> None:
    shop = Loja(f"sqlite:///{tmp_path}/orcamento.db", mundo, limites=Limites(por_chave=3))
    mundo.falhar("autorizacao", "depois", "queda")
    mundo.falhar("consulta", "antes", "queda", vezes=100)
    made = shop.emitir()
    for _ in range(6):
        shop.livros.varrer()
    asked = shop.livros.prova("local", made.row["id"])
    assert asked["falhas"] == []
    with shop.banco.statements() as connection:
        row = connection.row("SELECT momentos FROM fiscal_consumo WHERE alvo = ?", (made.row["chave_acesso"],)) or {}
    assert row["momentos"].count(",") == 2
    assert shop.estado(made) == "INDETERMINADO"
    shop.fechar()


def test_our_hour_is_longer_than_the_authoritys_by_what_a_question_may_take_to_arrive(loja_local: Loja) -> None:
    """Ten that leave at once and arrive after half a minute, and one that arrives at once an hour after they left."""
    budget = Governador(loja_local.banco, Limites(por_chave=10))
    assert {budget.pedir("local/demo", "k") for _ in range(10)} == {0}
    assert budget.pedir("local/demo", "k") > 3_600_000 + TEMPO_DE_CONSULTA * 1000 - 10_000


def test_656_stops_every_call_of_the_taxpayer(loja_local: Loja) -> None:
    loja_local.atos.governador.bloquear("local/demo")
    made = loja_local.emitir()
    assert made.row["estado"] == "RASCUNHO"
    assert loja_local.na_autoridade() == []
    assert loja_local.atos.governador.pedir("local/demo", "x") > 3_500_000


def test_a_status_question_is_asked_every_three_minutes_at_most(loja_local: Loja) -> None:
    assert loja_local.atos.governador.pedir("local/demo", "status") == 0
    assert loja_local.atos.governador.pedir("local/demo", "status") > 170_000


def test_s4_05_the_seeds_135_sends_the_same_bytes_again(tmp_path: object, mundo: Mundo) -> None:
    shop = Loja(f"sqlite:///{tmp_path}/spec.db", mundo, perfil="spec-1.0")
    authority = shop.sistema.organizacoes.autoridade("local/demo")
    ask = authority.consultar

    def bare_135(ato: object) -> object:
        from dataclasses import replace

        return replace(ask(ato), codigo="135", protocolo=None, eventos=(), dig_val=None)  # type: ignore[arg-type]

    authority.consultar = bare_135  # type: ignore[method-assign,assignment]  # as a stub written from the seed answers
    mundo.falhar("autorizacao", "antes", "queda")
    made = shop.emitir()
    assert made.row["estado"] == "AUTORIZADO"
    assert shop.prova(made).count("envio") == 2
    shop.fechar()


def test_a_crash_between_storing_and_sending_is_carried_on(loja: Loja) -> None:
    order = pedido(Tipo.NFE, loja.serie)
    with Reserva() as reserva:
        row, _ = loja.fiscal._registered(Caller("local", "k"), order, conteudo(order), reserva)
        assert reserva.feita
    assert row["estado"] == Estado.TRANSMITIDO
    loja.livros.varrer()
    assert loja.fiscal.documento("local", row["id"])["estado"] == "TRANSMITIDO", "who claimed it may still be sending"
    with loja.banco.transaction() as connection:
        connection.rows("UPDATE idempotency_records SET lease_until = created_at WHERE status = 'PENDING'")
    loja.livros.varrer()
    loja.livros.varrer()
    assert loja.fiscal.documento("local", row["id"])["estado"] == "AUTORIZADO"
    assert len(loja.na_autoridade()) == 1


def test_a_document_that_could_not_be_stored_leaves_no_claim(loja: Loja, monkeypatch: pytest.MonkeyPatch) -> None:
    real = loja.atos.reservar

    def broken(*about: Any) -> None:
        real(*about)
        raise Died

    monkeypatch.setattr(loja.atos, "reservar", broken)
    with pytest.raises(Died):
        loja.emitir("k")
    monkeypatch.undo()
    assert loja.sistema.once.find(every_scope=True) == []
    made = loja.emitir("k")
    assert (made.row["estado"], made.row["numero"], made.row["tentativas"]) == ("AUTORIZADO", 1, 1)


def test_an_answer_is_kept_though_the_claim_was_lost_while_it_came(loja: Loja, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = loja.sistema.organizacoes.autoridade("local/demo")
    send = authority.transmitir

    def slow(ato: Ato) -> Resposta:
        with loja.banco.transaction() as connection:
            connection.rows("UPDATE idempotency_records SET stamp = 'another'")
        return send(ato)

    monkeypatch.setattr(authority, "transmitir", slow)
    made = loja.emitir("k")
    assert (made.row["estado"], made.row["protocolo"] is not None) == ("AUTORIZADO", True)
    assert loja.prova(made)[-3:] == ["resposta", "decisao", "estado"]
    (record,) = loja.sistema.once.find(every_scope=True)
    assert record.status is Status.PENDING, "its end is for whoever took it over"


def test_an_answer_and_the_end_of_its_attempt_are_one_commit(loja: Loja, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Status]] = []
    real = operations.encerrar

    def watched(*about: Any) -> None:
        real(*about)
        if loja.banco.url.startswith("postgres"):  # SQLite's file is held
            seen.append([record.status for record in loja.sistema.once.find(every_scope=True)])
        raise StoreUnavailable("gone before the commit")

    monkeypatch.setattr(operations, "encerrar", watched)
    made = loja.emitir("k")
    assert made.row["estado"] == "AUTORIZADO", "written without its end"
    assert seen in ([], [[Status.PENDING]])
    assert [record.status for record in loja.sistema.once.find(every_scope=True)] == [Status.PENDING]
    monkeypatch.undo()
    loja.emitir("k2")
    assert Status.SUCCESS in [record.status for record in loja.sistema.once.find(every_scope=True)]


def test_a_worker_that_lost_its_claim_sends_nothing(loja_local: Loja) -> None:
    loja_local.atos.termos = Termos(settle=0.0, first=0.0, lease=0.0)
    made = loja_local.emitir()
    assert made.row["estado"] == "AUTORIZADO"
    assert loja_local.atos.cumprir(Acao.EMITIR, "local/demo", made.row["id_idempotencia"]) == "repetido"


def test_a_question_that_never_left_is_given_back_and_repeats_ask_no_sooner_than_planned(
    tmp_path: object, mundo: Mundo
) -> None:
    shop = Loja(f"sqlite:///{tmp_path}/plano.db", mundo, termos=Termos(settle=0.0, first=600.0, lease=5.0))
    mundo.falhar("autorizacao", "depois", "queda")
    mundo.falhar("consulta", "antes", "queda", vezes=100)
    made = shop.emitir("k")
    for _ in range(5):
        assert shop.emitir("k").row["estado"] == "INDETERMINADO"
    with shop.banco.statements() as connection:
        row = connection.row("SELECT momentos FROM fiscal_consumo WHERE alvo = ?", (made.row["chave_acesso"],)) or {}
    assert len(json.loads(row["momentos"])) == 1
    shop.atos.governador.devolver("local/demo", made.row["chave_acesso"])
    with shop.banco.statements() as connection:
        row = connection.row("SELECT momentos FROM fiscal_consumo WHERE alvo = ?", (made.row["chave_acesso"],)) or {}
    assert row["momentos"] == "[]"
    shop.fechar()


def test_when_a_question_is_due_is_said_by_the_database_whatever_the_host_believes(
    tmp_path: object, mundo: Mundo, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Loja(f"sqlite:///{tmp_path}/relogio.db", mundo, termos=Termos(settle=0.0, first=600.0, lease=5.0))
    mundo.falhar("autorizacao", "depois", "queda")
    mundo.falhar("consulta", "antes", "queda", vezes=100)
    row = shop.emitir("k").row
    planned = (Acao.EMITIR, row["org_id"], row["id_idempotencia"], row["proximo_em"])
    with monkeypatch.context() as host:
        host.setattr(time, "time", lambda: row["proximo_em"] / 1000 + 7200)  # two hours fast
        postponed = shop.atos.adiado(*planned)
    assert (row["estado"], postponed) == ("INDETERMINADO", True)
    shop.fechar()
