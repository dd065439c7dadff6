"""Batches of São Paulo (EnvioLoteRPS): one message, each document with its own key, proof and end; never sent again."""

from __future__ import annotations

import contextlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from tests.umavez_systems.fiscal.conftest import _SERIES, Loja, Mundo, pedido
from umavez import Status
from umavez.testing.crash import Died
from umavez_systems.fiscal.cases import Caller, Resultado
from umavez_systems.fiscal.domain import Pedido, Tipo
from umavez_systems.fiscal.ports import SemResposta
from umavez_systems.fiscal.wire.paulistana import reading, rps
from umavez_systems.problems import Problem

SP = Tipo.NFSE_SP


def orders(shop: Loja, count: int = 3, bad: int | None = None) -> list[tuple[Caller, Pedido]]:
    """Orders under k.0, k.1, …; the city refuses `bad`, whose service costs nothing."""
    found = [(Caller("local", f"k.{place}"), pedido(SP, shop.serie)) for place in range(count)]
    if bad is not None:
        caller, order = found[bad]
        assert order.servico is not None
        found[bad] = (caller, replace(order, servico=replace(order.servico, valor=Decimal("0.00"))))
    return found


def states(made: list[Resultado], shop: Loja) -> list[str]:
    return [shop.estado(one) for one in made]


def asked(shop: Loja, codigo: str | None = None) -> int:
    """How many questions by key the city answered in all."""
    rows = shop.mundo.livro()["chamadas"]
    return sum(row["vezes"] for row in rows if row["servico"] == "sp/consulta" and codigo in (None, row["codigo"]))


def test_a_batch_is_one_message_and_each_document_has_its_own_key_proof_and_record(loja: Loja) -> None:
    before = [row["vezes"] for row in loja.mundo.livro()["chamadas"] if row["servico"] == "sp/autorizacao"]
    made = loja.sistema.lotes.emitir(orders(loja))
    after = [row["vezes"] for row in loja.mundo.livro()["chamadas"] if row["servico"] == "sp/autorizacao"]

    assert sum(after) - sum(before) == 1, "one message"
    assert [(one.row["estado"], one.row["numero"], one.origem) for one in made] == [
        ("AUTORIZADO", number, "emissao") for number in (1, 2, 3)
    ]
    assert sorted(row["chave"] for row in loja.na_autoridade()) == sorted(one.row["chave_acesso"] for one in made)
    assert {record.status for record in loja.sistema.once.find(every_scope=True)} == {Status.SUCCESS}
    sent = set()
    for one in made:
        export = loja.livros.prova("local", one.row["id"])
        assert export["falhas"] == []
        kinds = ["intencao", "bytes", "bytes", "envio", "estado", "resposta", "decisao", "estado"]
        assert loja.prova(one) == kinds
        sent |= {json.loads(entry["conteudo"])["sha256"] for entry in export["entradas"] if entry["tipo"] == "envio"}
    assert len(sent) == 1, "all left in the same bytes"


def test_a_repeated_batch_shows_what_is_there_and_adds_what_is_new(loja: Loja) -> None:
    first = loja.sistema.lotes.emitir(orders(loja, 2))
    again = loja.sistema.lotes.emitir(orders(loja, 3))
    alone = loja.fiscal.emitir(*orders(loja, 3)[2])

    assert [one.row["id"] for one in again[:2]] == [one.row["id"] for one in first]
    assert [(one.origem, one.repetida) for one in again] == [("cache", True), ("cache", True), ("emissao", False)]
    assert (alone.row["id"], alone.origem) == (again[2].row["id"], "cache")
    assert len(loja.na_autoridade()) == 3
    other = [(Caller("local", "k.0"), orders(loja, 2)[1][1])]
    changed = [(caller, replace(order, servico=replace(order.servico, valor=Decimal(7)))) for caller, order in other]
    with pytest.raises(Problem) as refused:
        loja.sistema.lotes.emitir(changed)
    assert refused.value.status == 422


@pytest.mark.parametrize("tipo", ["queda", "500", "429", "lixo", "meia", "proxy"])
def test_s4_05_a_batch_whose_answer_is_lost_is_found_by_one_question_of_all_keys(loja_local: Loja, tipo: str) -> None:
    before = asked(loja_local)
    loja_local.mundo.falhar("sp/autorizacao", "depois", tipo, segundos=1)
    made = loja_local.sistema.lotes.emitir(orders(loja_local, 5))

    assert [(one.row["estado"], one.origem) for one in made] == [("AUTORIZADO", "conciliacao")] * 5
    assert asked(loja_local) - before == 1
    assert [row["codigo"] for row in loja_local.na_autoridade()] == ["200"] * 5, "nothing was destroyed"
    assert [loja_local.prova(one).count("envio") for one in made] == [1] * 5


def test_s4_06_a_batch_that_never_arrived_is_not_sent_again_but_each_document_by_itself(loja: Loja) -> None:
    loja.mundo.falhar("sp/autorizacao", "antes", "queda")
    made = loja.sistema.lotes.emitir(orders(loja))

    assert states(made, loja) == ["INDETERMINADO"] * 3
    assert all(loja.fiscal.documento("local", one.row["id"])["ausente_em"] for one in made)
    assert loja.na_autoridade() == []
    assert {record.status for record in loja.sistema.once.find(every_scope=True)} == {Status.UNKNOWN}
    for _ in range(3):
        loja.livros.varrer()
    assert states(made, loja) == ["AUTORIZADO"] * 3
    assert [row["codigo"] for row in loja.na_autoridade()] == ["200"] * 3
    for one in made:
        export = loja.livros.prova("local", one.row["id"])
        sent = [json.loads(entry["conteudo"])["sha256"] for entry in export["entradas"] if entry["tipo"] == "envio"]
        assert (len(set(sent)), export["falhas"]) == (2, []), "first in the batch, then in its own stored bytes"


def test_what_never_left_is_in_no_doubt(loja_local: Loja, monkeypatch: pytest.MonkeyPatch) -> None:
    city: Any = loja_local.sistema.organizacoes.autoridade("local/demo", SP)
    monkeypatch.setattr(city, "_base", lambda: "https://127.0.0.1:1")
    made = loja_local.sistema.lotes.emitir(orders(loja_local))
    assert states(made, loja_local) == ["RASCUNHO"] * 3
    monkeypatch.undo()
    with loja_local.banco.transaction() as connection:
        connection.rows("UPDATE documentos_fiscais SET proximo_em = 0")
    loja_local.livros.varrer()
    assert states(made, loja_local) == ["AUTORIZADO"] * 3


@pytest.mark.parametrize(
    ("together", "wanted"),
    [(False, ["AUTORIZADO", "REJEITADO", "AUTORIZADO"]), (True, ["REJEITADO"] * 3)],
)
def test_a_bad_rps_is_refused_alone_or_with_all_of_its_batch(loja: Loja, together: bool, wanted: list[str]) -> None:
    made = loja.sistema.lotes.emitir(orders(loja, 3, bad=1), transacao=together)
    assert states(made, loja) == wanted
    assert made[1].row["codigo"] == "227"
    assert len(loja.na_autoridade()) == wanted.count("AUTORIZADO")
    (series,) = loja.livros.numeracao("local")
    assert series.livro.abertos == []


def test_an_rps_that_the_answer_does_not_name_is_in_doubt_and_not_refused_for_another() -> None:
    keys = [
        f"<InscricaoPrestador>1</InscricaoPrestador><SerieRPS>1</SerieRPS><NumeroRPS>{n}</NumeroRPS>" for n in (1, 2)
    ]
    error = f"<Erro><Codigo>227</Codigo><Descricao>x</Descricao><ChaveRPS>{keys[0]}</ChaveRPS></Erro>"
    answered = _answer(f"<Cabecalho><Sucesso>true</Sucesso></Cabecalho>{error}")
    first, second = ("00000001_1_000000000001", "00000001_1_000000000002")
    assert reading.de_lote(answered, first).codigo == "227"
    with pytest.raises(SemResposta):
        reading.de_lote(answered, second)
    whole = _answer(f"<Cabecalho><Sucesso>false</Sucesso></Cabecalho>{error}")
    assert reading.de_lote(whole, second).codigo == "227", "refused as a whole"
    note = "<ChaveNFe><InscricaoPrestador>1</InscricaoPrestador><NumeroNFe>9</NumeroNFe></ChaveNFe>"
    issued = f"<ChaveNFeRPS>{note}<ChaveRPS>{keys[1]}</ChaveRPS></ChaveNFeRPS>"
    with pytest.raises(SemResposta):
        reading.de_lote(_answer(f"<Cabecalho><Sucesso>false</Sucesso></Cabecalho>{error}{issued}"), second)


def _answer(inside: str) -> reading.Retorno:
    from xml.sax.saxutils import escape

    tag = "RetornoEnvioLoteRPS"
    said = escape(f'<p1:{tag} xmlns:p1="{rps.NS}">{inside}</p1:{tag}>')
    return reading.retorno(f"<E><RetornoXML>{said}</RetornoXML></E>".encode(), tag)


def test_an_alert_is_of_the_rps_that_it_names(loja_local: Loja) -> None:
    """Delivered twice, the city destroys all; each is shown with its own note."""
    loja_local.mundo.falhar("sp/autorizacao", "depois", "duplicada")
    made = loja_local.sistema.lotes.emitir(orders(loja_local, 2))
    rows = loja_local.na_autoridade()
    lost = {row["numero"]: row["chave"] for row in rows if row["codigo"] == "217"}
    for one in made:
        assert json.loads(one.row["incidente"])["anteriores"] == [lost[one.row["numero"]]]


def test_unfit_batches_are_refused_and_nothing_is_stored(loja_local: Loja) -> None:
    mixed = [*orders(loja_local, 1), (Caller("local", "x"), pedido(Tipo.NFE, loja_local.serie))]
    two = [*orders(loja_local, 1), (Caller("local", "x"), replace(pedido(SP, loja_local.serie), organizacao="outra"))]
    for wrong in ([], orders(loja_local, 51), mixed, two):
        with pytest.raises(Problem) as refused:
            loja_local.sistema.lotes.emitir(wrong)
        assert refused.value.status == 422
    assert loja_local.fiscal.documentos("local", organizacao=None, estado=None, antes=None, limite=9) == []


def test_a_crash_before_the_message_leaves_nothing_half_stored(loja: Loja, monkeypatch: pytest.MonkeyPatch) -> None:
    city: Any = loja.sistema.organizacoes.autoridade("local/demo", SP)

    def dies(*_: Any, **__: Any) -> Any:
        raise Died

    monkeypatch.setattr(city, "montar_lote", dies)
    with pytest.raises(Died):
        loja.sistema.lotes.emitir(orders(loja))
    monkeypatch.undo()
    assert loja.sistema.once.find(every_scope=True) == []
    made = loja.sistema.lotes.emitir(orders(loja))
    assert [(one.row["estado"], one.row["numero"]) for one in made] == [("AUTORIZADO", n) for n in (1, 2, 3)]


def test_a_crash_after_the_message_is_found_out_by_asking(loja: Loja, monkeypatch: pytest.MonkeyPatch) -> None:
    city: Any = loja.sistema.organizacoes.autoridade("local/demo", SP)
    real = city.transmitir_lote

    def dies(*about: Any, **more: Any) -> Any:
        real(*about, **more)
        raise Died

    monkeypatch.setattr(city, "transmitir_lote", dies)
    with pytest.raises(Died):
        loja.sistema.lotes.emitir(orders(loja))
    monkeypatch.undo()
    assert {record.status for record in loja.sistema.once.find(every_scope=True)} == {Status.PENDING}
    with loja.banco.transaction() as connection:
        connection.rows("UPDATE idempotency_records SET lease_until = created_at")
    again = loja.sistema.lotes.emitir(orders(loja))
    assert [(one.row["estado"], one.row["tentativas"]) for one in again] == [("AUTORIZADO", 1)] * 3
    assert [row["codigo"] for row in loja.na_autoridade()] == ["200"] * 3


def test_s4_10_two_batches_over_the_same_series_in_another_order_wait_and_never_for_each_other(
    postgres_url: str, mundo: Mundo, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Loja(postgres_url, mundo)
    first, second = shop.serie, next(_SERIES)
    shop.sistema.organizacoes.autoridade("local/demo", SP)
    met = threading.Barrier(2)
    real = shop.fiscal.registrar

    def meeting(*about: Any, **more: Any) -> Any:
        """Both would have one series in hand before either wants the other; held in order, only one comes here."""
        made = real(*about, **more)
        with contextlib.suppress(threading.BrokenBarrierError):
            met.wait(1.0)
        return made

    def batch(name: str, series: tuple[int, int]) -> list[Resultado]:
        wanted = [(Caller("local", f"{name}.{serie}"), pedido(SP, serie)) for serie in series]
        return shop.sistema.lotes.emitir(wanted)

    monkeypatch.setattr(shop.fiscal, "registrar", meeting)
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(batch, "a", (first, second)), threads.submit(batch, "b", (second, first))]
        made = [one for call in calls for one in call.result(60)]
    assert [one.row["estado"] for one in made] == ["AUTORIZADO"] * 4
    assert sorted((one.row["serie"], one.row["numero"]) for one in made) == [
        (serie, number) for serie in (first, second) for number in (1, 2)
    ]
    shop.fechar()
