"""Cancellation (seed 004 §8), correction letters, voiding, deadlines and contingency."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.umavez_systems.fiscal.conftest import Loja, Mundo
from umavez import OperationInProgress
from umavez_systems.fiscal import ledgers
from umavez_systems.fiscal.cases import Caller, Resultado
from umavez_systems.fiscal.domain import Tipo
from umavez_systems.fiscal.operations import Termos
from umavez_systems.fiscal.ports import Ato, Resposta, SemResposta
from umavez_systems.fiscal.rules.deadlines import brasilia
from umavez_systems.fiscal.rules.identifiers import Chave
from umavez_systems.problems import Problem

LOCAL = Caller("local")
WHY = "Pedido desfeito pelo cliente"


def cancelar(loja: Loja, made: Resultado) -> Resultado:
    return loja.fiscal.cancelar(LOCAL, made.row["id"], WHY, made.row["versao"])


def test_s4_09_a_cancelled_document_is_cancelled_once_and_then_from_the_cache(loja: Loja) -> None:
    made = loja.emitir()
    first = cancelar(loja, made)
    again = cancelar(loja, made)

    assert (first.row["estado"], first.repetida) == ("CANCELADO", False)
    assert (again.row["estado"], again.origem) == ("CANCELADO", "cache")
    assert [row["situacao"] for row in loja.na_autoridade()] == ["CANCELADO"]
    assert loja.prova(made)[-1] == "estado"


def test_s4_09_who_cancels_while_somebody_else_does_is_told_that_it_is_cancelled(
    loja: Loja, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = loja.emitir()
    looks = [made.row]  # the second looks before the first is done, and gets its lock after
    cancelar(loja, made)
    real = loja.fiscal.documento
    monkeypatch.setattr(loja.fiscal, "documento", lambda *about: looks.pop() if looks else real(*about))
    again = cancelar(loja, made)

    assert (again.row["estado"], again.origem, again.repetida) == ("CANCELADO", "cache", True)


def test_s4_09_only_an_authorised_document_may_be_cancelled(loja_local: Loja) -> None:
    loja_local.mundo.falhar("autorizacao", "antes", "429", vezes=3, segundos=0)
    made = loja_local.emitir()
    with pytest.raises(Problem) as refused:
        cancelar(loja_local, made)
    assert (refused.value.status, refused.value.members["estado"]) == (409, "RASCUNHO")


def test_s4_07_a_stale_version_changes_nothing(loja_local: Loja) -> None:
    made = loja_local.emitir()
    with pytest.raises(Problem) as stale:
        loja_local.fiscal.cancelar(LOCAL, made.row["id"], WHY, made.row["versao"] - 1)
    assert (stale.value.status, stale.value.members["versao"]) == (409, made.row["versao"])
    assert loja_local.estado(made) == "AUTORIZADO"


@pytest.mark.parametrize("tipo", ["queda", "500", "lixo"])
def test_s4_09_a_lost_answer_to_a_cancellation_is_found_by_asking(loja_local: Loja, tipo: str) -> None:
    made = loja_local.emitir()
    loja_local.mundo.falhar("evento", "depois", tipo)
    done = cancelar(loja_local, made)
    assert (done.row["estado"], done.origem) == ("CANCELADO", "conciliacao")


def test_s4_09_a_cancellation_that_never_arrived_goes_back_to_authorised_with_an_error(loja_local: Loja) -> None:
    made = loja_local.emitir()
    loja_local.mundo.falhar("evento", "antes", "queda", vezes=3)
    with pytest.raises(Problem) as failed:
        cancelar(loja_local, made)
    assert failed.value.status == 503
    row = loja_local.fiscal.documento("local", made.row["id"])
    assert row["estado"] == "AUTORIZADO"
    again = loja_local.fiscal.cancelar(LOCAL, row["id"], WHY, row["versao"])
    assert again.row["estado"] == "CANCELADO"


def test_s4_09_when_nobody_can_tell_it_stays_pending_until_somebody_can(loja: Loja) -> None:
    made = loja.emitir()
    loja.mundo.falhar("evento", "depois", "queda")
    loja.mundo.falhar("consulta", "antes", "queda", vezes=50)
    pending = cancelar(loja, made)
    assert pending.row["estado"] == "CANCELAMENTO_PENDENTE"
    found, _ = loja.livros.pendencias("local")
    assert [(one.documento, one.direito) for one in found] == [(made.row["id"], "cancelar")]

    loja.mundo.sem_falhas()
    loja.livros.varrer()
    assert loja.estado(made) == "CANCELADO"
    assert loja.livros.pendencias("local")[0] == []


def answering(loja: Loja, servico: str, codigo: str, motivo: str) -> None:
    """Let the authority answer every act with a code that the simulator has no reason to give."""
    authority = loja.sistema.organizacoes.autoridade("local/demo")

    def bent(ato: Ato) -> Resposta:
        return replace(authority.consultar(ato), servico=servico, codigo=codigo, motivo=motivo, eventos=())

    authority.transmitir = bent  # type: ignore[method-assign]  # as said


def test_s4_09_a_refusal_is_confirmed_by_a_query_and_told(loja_local: Loja) -> None:
    made = loja_local.emitir()
    answering(loja_local, "evento", "501", "Prazo de cancelamento superior ao previsto")
    with pytest.raises(Problem) as refused:
        cancelar(loja_local, made)
    assert (refused.value.status, refused.value.members["codigo"]) == (422, "501")
    assert loja_local.estado(made) == "AUTORIZADO"


def test_s4_09_after_a_refusal_a_new_request_is_sent_and_not_replayed(loja: Loja) -> None:
    """The bytes bear the same name; the engine's record of the refused one must not stand for them."""
    made = loja.emitir()
    authority: Any = loja.sistema.organizacoes.autoridade("local/demo")
    answering(loja, "evento", "501", "Prazo de cancelamento superior ao previsto")
    with pytest.raises(Problem):
        cancelar(loja, made)
    del authority.transmitir
    row = loja.fiscal.documento("local", made.row["id"])
    again = loja.fiscal.cancelar(LOCAL, row["id"], WHY, row["versao"])
    assert again.row["estado"] == "CANCELADO"
    assert [row["situacao"] for row in loja.na_autoridade()] == ["CANCELADO"]


def test_s4_09_after_a_refusal_what_is_asked_for_now_is_sent(loja_local: Loja) -> None:
    """The substitute that was named wrongly, the cancellation that came too late: neither is sent in place of it."""
    first, second = loja_local.emitir(tipo=Tipo.NFCE), loja_local.emitir(tipo=Tipo.NFCE)
    missing = str(replace(Chave.lida(second.row["chave_acesso"]), nnf=999_999))
    number, version = first.row["id"], first.row["versao"]
    with pytest.raises(Problem) as refused:
        loja_local.fiscal.cancelar(LOCAL, number, WHY, version, missing)
    assert refused.value.members["codigo"] == "908"
    authority: Any = loja_local.sistema.organizacoes.autoridade("local/demo")
    answering(loja_local, "evento", "501", "Prazo de cancelamento superior ao previsto")
    with pytest.raises(Problem) as late:
        loja_local.fiscal.cancelar(LOCAL, number, WHY, refused.value.members["versao"])
    assert late.value.members["codigo"] == "501"
    del authority.transmitir

    right = (second.row["chave_acesso"], "A nota foi emitida outra vez")
    done = loja_local.fiscal.cancelar(LOCAL, number, right[1], late.value.members["versao"], right[0])
    assert done.row["estado"] == "CANCELADO"
    (event,) = [row for row in loja_local.mundo.livro()["eventos"] if row["chave"] == first.row["chave_acesso"]]
    assert (event["tipo"], event["texto"]) == ("110112", right[1])
    acts = {act["nome"][2:8]: (act["estado"], act["texto"]) for act in loja_local.fiscal.atos_de(number)}
    assert acts == {"110111": ("RECUSADO", WHY), "110112": ("FEITO", right[1])}
    assert loja_local.prova(first).count("bytes") == 4


def test_s4_09_a_cancellation_that_somebody_carries_is_not_opened_again_under_his_hands(loja: Loja) -> None:
    """He would settle it as over, having seen it closed, and nobody would ever send it."""
    made = loja.emitir()
    loja.mundo.falhar("evento", "antes", "queda", vezes=3)
    with pytest.raises(Problem):
        cancelar(loja, made)
    row = loja.fiscal.documento("local", made.row["id"])
    with loja.banco.statements() as connection:
        (act,) = connection.rows("SELECT nome FROM fiscal_atos WHERE documento_id = ?", (row["id"],))
    with loja.once.attempt("fiscal_cancelar", key=act["nome"], scope=row["org_id"]) as carried:
        assert not carried.replayed
        with pytest.raises(OperationInProgress):
            loja.fiscal.cancelar(LOCAL, row["id"], WHY, row["versao"])
        assert loja.estado(made) == "AUTORIZADO"
        carried.succeed({"nome": act["nome"]})
    assert loja.fiscal.cancelar(LOCAL, row["id"], WHY, row["versao"]).row["estado"] == "CANCELADO"


def test_an_unknown_code_is_held_and_never_taken_for_a_refusal(loja_local: Loja) -> None:
    answering(loja_local, "autorizacao", "987", "Novidade")
    made = loja_local.emitir()
    assert made.row["estado"] == "INDETERMINADO"
    assert loja_local.livros.numeracao("local")[0].livro.inutilizaveis == []


def test_s4_09_a_cancellation_that_arrives_after_it_was_given_up_is_adopted(loja_local: Loja) -> None:
    made = loja_local.emitir()
    authority: Any = loja_local.sistema.organizacoes.autoridade("local/demo")
    send, sent = authority.transmitir, threading.Event()
    late: list[threading.Thread] = []

    def arriving_late(ato: Ato) -> Resposta:
        # The event is on its way for longer than anybody waits for it.
        late.append(threading.Thread(target=lambda: (sent.wait(60), send(ato))))
        late[-1].start()
        raise SemResposta("A autoridade não respondeu.")

    authority.transmitir = arriving_late
    with pytest.raises(Problem):
        cancelar(loja_local, made)
    assert loja_local.estado(made) == "AUTORIZADO"
    sent.set()
    for thread in late:
        thread.join()
    loja_local.livros.varrer()
    assert loja_local.estado(made) == "CANCELADO"


def test_the_same_letter_is_sent_once_and_another_text_is_another_letter(loja: Loja) -> None:
    made = loja.emitir()
    text = "O endereco correto e Rua Dois, 2"
    loja.mundo.falhar("evento", "depois", "queda")
    first, there = loja.fiscal.corrigir(LOCAL, made.row["id"], text)
    again, there_again = loja.fiscal.corrigir(LOCAL, made.row["id"], text)
    other, _ = loja.fiscal.corrigir(LOCAL, made.row["id"], text + ", fundos")

    assert (first["estado"], first["sequencia"], there) == ("FEITO", 1, False)
    assert (again["nome"], there_again) == (first["nome"], True)
    assert (other["estado"], other["sequencia"]) == ("FEITO", 2)
    events = [row for row in loja.mundo.livro()["eventos"] if row["chave"] == made.row["chave_acesso"]]
    assert [row["sequencia"] for row in events] == [1, 2]
    assert loja.estado(made) == "AUTORIZADO"


def test_letters_are_for_authorised_nfe_only(loja_local: Loja) -> None:
    made = loja_local.emitir(tipo=Tipo.NFCE)
    with pytest.raises(Problem) as refused:
        loja_local.fiscal.corrigir(LOCAL, made.row["id"], "O endereco correto e Rua Dois, 2")
    assert refused.value.status == 422


def rejeitada(loja: Loja) -> Resultado:
    """A note that the authority refused for a reason that the simulator does not check."""
    authority = loja.sistema.organizacoes.autoridade("local/demo")
    send = authority.transmitir
    answering(loja, "autorizacao", "233", "IE do destinatario nao cadastrada")
    made = loja.emitir()
    authority.transmitir = send  # type: ignore[method-assign]  # as it was
    return made


def test_s4_10_a_refused_number_is_voided_after_its_absence_is_proven(loja: Loja) -> None:
    kept = loja.emitir()
    refused = rejeitada(loja)
    assert refused.row["estado"] == "REJEITADO"
    place = ("demo", Tipo.NFE, loja.serie)

    with pytest.raises(Problem) as used:
        loja.livros.inutilizar(LOCAL, *place, kept.row["numero"], kept.row["numero"], "Numero pulado por engano")
    assert used.value.name == "numero-em-uso"
    loja.mundo.falhar("inutilizacao", "depois", "queda")
    number = refused.row["numero"]
    act, there = loja.livros.inutilizar(LOCAL, *place, number, number, "Numero pulado por engano")
    again, there_again = loja.livros.inutilizar(LOCAL, *place, number, number, "Numero pulado por engano")

    assert (act["estado"], act["codigo"], there) == ("FEITO", "563", False)
    assert (again["nome"], there_again) == (act["nome"], True)
    assert loja.estado(refused) == "INUTILIZADO"
    (series,) = loja.livros.numeracao("local")
    assert {name: count for name, count in series.livro.contagem.items() if count} == {
        "autorizado": 1,
        "inutilizado": 1,
    }
    assert series.livro.abertos == []


def test_s4_10_a_voiding_repeated_after_new_year_is_the_same(loja: Loja, monkeypatch: pytest.MonkeyPatch) -> None:
    """The year is part of the request's Id: lost on the 31st of December, it would be another one on the next day."""
    loja.emitir()
    number = rejeitada(loja).row["numero"]
    where = (LOCAL, "demo", Tipo.NFE, loja.serie, number, number, "Numero pulado por engano")
    loja.mundo.falhar("inutilizacao", "antes", "queda", vezes=9)
    lost, _ = loja.livros.inutilizar(*where)
    assert lost["estado"] == "PENDENTE"
    loja.mundo.sem_falhas()
    this = ledgers.anos(lost["criado_em"])[0]
    monkeypatch.setattr(ledgers, "anos", lambda _: (f"{int(this) + 1:02d}", this))
    again, there = loja.livros.inutilizar(*where)
    assert (again["nome"], again["estado"], there) == (lost["nome"], "FEITO", True)
    assert loja.livros.inutilizar(*where)[1]


def test_a_year_ends_at_midnight_in_brasilia() -> None:
    end = int(datetime(2027, 1, 1, 3, tzinfo=UTC).timestamp() * 1000)
    assert (ledgers.anos(end - 1), ledgers.anos(end)) == (("26", "25"), ("27", "26"))


def test_s4_10_a_refused_voiding_that_is_asked_for_anew_is_sent(loja: Loja) -> None:
    loja.emitir()
    number = rejeitada(loja).row["numero"]
    authority: Any = loja.sistema.organizacoes.autoridade("local/demo")
    where = (LOCAL, "demo", Tipo.NFE, loja.serie, number, number, "Numero pulado por engano")
    send, authority.transmitir = authority.transmitir, _refusing_to_void
    refused, _ = loja.livros.inutilizar(*where)
    assert refused["estado"] == "RECUSADO"
    authority.transmitir = send
    assert loja.livros.inutilizar(*where)[0]["estado"] == "FEITO"


def _refusing_to_void(_: Ato) -> Resposta:
    return Resposta("inutilizacao", "241", "Um numero da faixa ja foi utilizado", b"<retorno/>")


def test_s4_10_a_range_is_asked_about_no_longer_than_a_caller_is_patient(tmp_path: Path, mundo: Mundo) -> None:
    """A thousand numbers, and half a minute for each: the request would hold its thread for hours."""
    loja = Loja(f"sqlite:///{tmp_path}/loja.db", mundo, termos=Termos(settle=0.0, first=0.0, patience=0.05))
    for _ in range(3):
        rejeitada(loja)
    authority: Any = loja.sistema.organizacoes.autoridade("local/demo")
    asked: list[str] = []

    def slowly(ato: Ato) -> Resposta:
        asked.append(ato.nome)
        time.sleep(0.1)
        raise SemResposta("A autoridade não respondeu.")

    authority.consultar = slowly
    with pytest.raises(Problem) as refused:
        loja.livros.inutilizar(LOCAL, "demo", Tipo.NFE, loja.serie, 1, 3, "Numeros pulados por engano")
    loja.fechar()
    assert (refused.value.name, len(asked)) == ("numero-em-uso", 1)


def test_s4_10_numbers_not_given_yet_cannot_be_voided(loja_local: Loja) -> None:
    loja_local.emitir()
    with pytest.raises(Problem) as refused:
        loja_local.livros.inutilizar(LOCAL, "demo", Tipo.NFE, loja_local.serie, 2, 3, "Numeros que ninguem usou")
    assert refused.value.name == "numero-nao-dado"


def test_the_ledger_proposes_only_what_is_proven_absent(loja_local: Loja) -> None:
    rejeitada(loja_local)
    (before,) = loja_local.livros.numeracao("local")
    assert before.livro.inutilizaveis == []
    assert before.livro.abertos == [1]
    found, _ = loja_local.livros.pendencias("local")
    assert [one.direito for one in found] == ["inutilizar"]


@pytest.mark.parametrize("zone", ["-03:00", ""])
def test_the_right_to_cancel_runs_from_the_authorisation_however_late_it_is_found(loja_local: Loja, zone: str) -> None:
    loja_local.mundo.falhar("autorizacao", "depois", "queda")
    loja_local.mundo.falhar("consulta", "antes", "queda", vezes=9)
    made = loja_local.emitir()
    assert made.row["estado"] == "INDETERMINADO"
    loja_local.mundo.sem_falhas()
    emitted = made.row["emitido_em"] - 7_200_000
    authority: Any = loja_local.sistema.organizacoes.autoridade("local/demo")
    ask, moment = authority.consultar, brasilia(emitted + 60_000).removesuffix("-03:00") + zone
    authority.consultar = lambda ato: replace(ask(ato), quando=moment)
    with loja_local.banco.statements() as connection:
        connection.rows("UPDATE documentos_fiscais SET emitido_em = ? WHERE id = ?", (emitted, made.row["id"]))
    loja_local.livros.varrer()
    row = loja_local.fiscal.documento("local", made.row["id"])
    assert (row["estado"], row["autorizado_em"]) == ("AUTORIZADO", (emitted + 60_000) // 1000 * 1000)


def test_a_protocol_that_came_late_is_kept_and_the_note_can_be_cancelled(loja_local: Loja) -> None:
    """A situation query without protNFe says that the note is authorised; to cancel it takes the protocol, too."""
    loja_local.mundo.falhar("autorizacao", "depois", "queda")
    authority: Any = loja_local.sistema.organizacoes.autoridade("local/demo")
    ask = authority.consultar
    authority.consultar = lambda ato: replace(ask(ato), protocolo=None, bruto=b"<retConsSitNFe/>")
    made = loja_local.emitir()
    assert (made.row["estado"], made.row["protocolo"]) == ("AUTORIZADO", None)
    with pytest.raises(Problem) as refused:
        cancelar(loja_local, made)
    assert (refused.value.status, refused.value.name) == (409, "sem-protocolo")

    authority.consultar = ask
    found = loja_local.fiscal.conciliar(LOCAL, made.row["id"])
    assert found.row["protocolo"]
    assert found.row["protocolo"] in (found.row["protocolo_xml"] or "")
    assert cancelar(loja_local, found).row["estado"] == "CANCELADO"


def test_s4_06_what_the_authority_says_overrules_our_books(loja_local: Loja) -> None:
    made = loja_local.emitir()
    elsewhere = loja_local.mundo.sefaz(envio=5, consulta=5)
    from tests.umavez_systems.fiscal.test_wire import WHEN
    from umavez_systems.fiscal.atos.steps import ato_da_linha

    act = elsewhere.montar_cancelamento(ato_da_linha(made.row), made.row["protocolo"], WHY, WHEN)
    assert elsewhere.transmitir(act).codigo == "135"

    found = loja_local.fiscal.conciliar(LOCAL, made.row["id"])
    assert (found.row["estado"], found.origem) == ("CANCELADO", "conciliacao")


def test_contingency_takes_a_new_number_in_its_own_mode_and_is_asked_there(loja_local: Loja) -> None:
    normal = loja_local.emitir()
    svc = loja_local.emitir(modo="svc", justificativa="SEFAZ de origem fora do ar")
    assert (svc.row["estado"], svc.row["tp_emis"], svc.row["numero"]) == ("AUTORIZADO", "6", normal.row["numero"] + 1)
    assert [row["autorizador"] for row in loja_local.na_autoridade()] == ["SP", "SVC-AN"]
    assert cancelar(loja_local, svc).row["estado"] == "CANCELADO"


def test_an_offline_nfce_is_printed_first_and_sent_later(loja_local: Loja) -> None:
    made = loja_local.emitir(tipo=Tipo.NFCE, modo="offline", justificativa="Sem internet na loja")
    assert (made.row["estado"], made.row["tp_emis"]) == ("RASCUNHO", "9")
    found, _ = loja_local.livros.pendencias("local")
    assert [one.direito for one in found] == ["transmitir offline"]
    loja_local.livros.varrer()
    assert loja_local.estado(made) == "AUTORIZADO"


def test_epec_goes_before_its_note_and_the_note_follows_with_the_same_key(loja_local: Loja) -> None:
    loja_local.mundo.falhar("evento", "depois", "queda")
    made = loja_local.emitir(modo="epec", justificativa="SEFAZ de origem fora do ar")
    assert (made.row["estado"], made.row["epec_em"] is not None) == ("RASCUNHO", True)
    found, now = loja_local.livros.pendencias("local")
    assert {one.direito for one in found} >= {"EPEC"}
    assert not found[0].vencida(now)
    loja_local.livros.varrer()
    assert loja_local.estado(made) == "AUTORIZADO"
    events = [row["tipo"] for row in loja_local.mundo.livro()["eventos"] if row["chave"] == made.row["chave_acesso"]]
    assert events == ["110140"]


def test_s4_06_a_changed_proof_is_noticed(loja_local: Loja) -> None:
    made = loja_local.emitir()
    with loja_local.banco.transaction() as connection:
        connection.rows("UPDATE fiscal_provas SET conteudo = '{}' WHERE sequencia = 3")
    assert loja_local.livros.prova("local", made.row["id"])["falhas"]


def test_an_nfce_whose_place_was_taken_is_cancelled_by_substitution(loja_local: Loja) -> None:
    first, second = (loja_local.emitir(tipo=Tipo.NFCE) for _ in range(2))
    number, version = first.row["id"], first.row["versao"]
    done = loja_local.fiscal.cancelar(LOCAL, number, WHY, version, second.row["chave_acesso"])
    assert done.row["estado"] == "CANCELADO"
    events = [row["tipo"] for row in loja_local.mundo.livro()["eventos"] if row["chave"] == first.row["chave_acesso"]]
    assert events == ["110112"]
    with pytest.raises(Problem):
        loja_local.fiscal.cancelar(LOCAL, second.row["id"], WHY, second.row["versao"], "1" * 44)


def test_a_simulator_that_was_killed_is_started_again_and_its_books_are_kept(tmp_path: Path) -> None:
    import os
    import signal

    from umavez_systems.fiscal.simulador import keeper

    folder = tmp_path / "sim"
    first = keeper.manter(folder)
    os.kill(first.pid, signal.SIGKILL)
    keeper.parar(first)
    again = keeper.manter(folder)
    assert (again.servicos, again.pid != first.pid) == (first.servicos, True)
    assert keeper.manter(folder) == again
    keeper.parar(again)
    assert keeper.em_pe(folder) is None
