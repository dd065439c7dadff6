"""NFS-e of São Paulo (seed 004 §4.1, §9.1): never sent again blindly, for the city would destroy the first note."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from lxml import etree

from tests.umavez_systems.fiscal.conftest import CNPJ, EMITENTE, Loja, Mundo, numerado
from umavez_systems.fiscal.cases import Caller
from umavez_systems.fiscal.domain import Acao, Tipo
from umavez_systems.fiscal.operations import Termos
from umavez_systems.fiscal.organizations import ccm_demo, emitente_de
from umavez_systems.fiscal.ports import Ato, Montado, Resposta, SemResposta
from umavez_systems.fiscal.rules.catalogue import catalogo
from umavez_systems.fiscal.rules.decisions import decidir_consulta, decidir_emissao
from umavez_systems.fiscal.views import documento as shown
from umavez_systems.fiscal.wire import signing
from umavez_systems.fiscal.wire.asking import Pergunta
from umavez_systems.fiscal.wire.paulistana import reading, rps
from umavez_systems.fiscal.wire.paulistana.period import Periodo
from umavez_systems.fiscal.wire.paulistana.prefeitura import SaoPaulo
from umavez_systems.problems import Problem

SP = Tipo.NFSE_SP
WHY = "Pedido desfeito pelo cliente"
CCM = ccm_demo(CNPJ)
DAY = "2026-11-16T10:00:00-03:00"


def ato_de(made: Montado, *, insistir: bool = False) -> Ato:
    name = made.id_idempotencia
    return Ato(Acao.EMITIR, name, made.xml, SP, digest=made.digest, documento=name, insistir=insistir)


def test_s4_01_the_rps_string_has_86_characters_and_layout_2_has_90() -> None:
    note = replace(numerado(SP, serie=7, numero=42), emissao=DAY)
    first = replace(EMITENTE, ccm="1234567")
    text = rps.texto_do_rps(first, note)

    assert text == "012345677    00000000004220261116TNN00000000001001000000000000000002919100052998224725"
    assert len(text) == 86
    second = rps.texto_do_rps(replace(first, layout_sp="2"), note)
    assert (len(second), second) == (90, f"0000{text}")
    held = replace(note, pedido=replace(note.pedido, destinatario=None))
    assert rps.texto_do_rps(first, held)[-15:] == "3" + "0" * 14
    assert rps.texto_do_cancelamento("1234567", "9") == "01234567000000000009"
    assert rps.identidade(first, note) == "01234567_7_000000000042"


def test_s4_12_the_request_is_signed_twice_and_the_bytes_are_the_same_every_time(mundo: Mundo) -> None:
    city, note = mundo.cidade(), numerado(SP)
    made = city.montar(note)
    tree = etree.fromstring(made.xml)

    assert city.montar(note).xml == made.xml
    cert = signing.conferir(made.xml, None)
    text = rps.texto_do_rps(city.emitente, note)
    assert signing.conferir_texto(text, tree.findtext("RPS/Assinatura"), cert)
    assert not signing.conferir_texto(text.replace("T", "F", 1), tree.findtext("RPS/Assinatura"), cert)
    with pytest.raises(ValueError, match="mudado"):
        signing.conferir(made.xml.replace(b"100.10", b"900.10"), None)
    assert tree.tag == f"{{{rps.NS}}}PedidoEnvioRPS"
    assert tree.find("Cabecalho").get("Versao") == "1"


def test_s4_03_seed_4_1_the_last_24_hours_tell_whether_an_rps_was_converted(mundo: Mundo) -> None:
    city, note = mundo.cidade(), numerado(SP, serie=901)
    assert city.emitida("901", note.numero) is False
    city.transmitir(ato_de(city.montar(note)))
    assert city.emitida("901", note.numero) is True
    assert city.emitida("902", note.numero) is False


def answer_of(inside: str, tag: str = "RetornoEnvioRPS") -> reading.Retorno:
    from xml.sax.saxutils import escape

    said = escape(f'<p1:{tag} xmlns:p1="{rps.NS}">{inside}</p1:{tag}>')
    return reading.retorno(f"<Envelope><Body><R><RetornoXML>{said}</RetornoXML></R></Body></Envelope>".encode(), tag)


GOOD = "<Cabecalho><Sucesso>true</Sucesso></Cabecalho>"
BAD = "<Cabecalho><Sucesso>false</Sucesso></Cabecalho>"


def error(code: str, tag: str = "Erro") -> str:
    return f"<{tag}><Codigo>{code}</Codigo><Descricao>x</Descricao></{tag}>"


@pytest.mark.parametrize("inside", ["", "<Cabecalho/>", GOOD, BAD, GOOD + "<ChaveNFeRPS/>", BAD + error("x")])
def test_an_answer_that_says_nothing_of_the_rps_is_no_answer(inside: str) -> None:
    with pytest.raises(SemResposta):
        reading.autorizacao(answer_of(inside), "00000001_1_000000000001")


def note(number: int, situation: str, ccm: str = "1") -> str:
    keys = f"<ChaveNFe><InscricaoPrestador>{ccm}</InscricaoPrestador><NumeroNFe>{number}</NumeroNFe></ChaveNFe>"
    rps_key = f"<SerieRPS>1</SerieRPS><NumeroRPS>{number}</NumeroRPS>"
    about = f"<ChaveRPS><InscricaoPrestador>1</InscricaoPrestador>{rps_key}</ChaveRPS>"
    return f"<NFe>{keys}{about}<StatusNFe>{situation}</StatusNFe></NFe>"


def test_s4_05_a_note_in_a_situation_that_we_do_not_know_is_there_and_never_an_absence(
    mundo: Mundo, monkeypatch: pytest.MonkeyPatch
) -> None:
    city, ato = mundo.cidade(), Ato(Acao.EMITIR, "00000001_1_000000000007", b"", SP, insistir=True)
    page = answer_of(GOOD + "".join(note(number, "E" if number == 7 else "N") for number in range(1, 51)))
    rest = answer_of(GOOD + note(51, "N"))
    monkeypatch.setattr(city, "_ask", lambda *_: answer_of(BAD + error("1106")))
    monkeypatch.setattr(city, "_periodo", Periodo(lambda *asked: rest if asked[-1] == 2 else page, city._hoje))
    monkeypatch.setattr(city, "_first_day", lambda _: city._hoje())

    lost = city.consultar(ato)
    assert (lost.codigo, decidir_consulta(lost, ato, catalogo(), "sp").desfecho) == ("E", "INDETERMINADO")
    assert city.consultar(replace(ato, nome="00000001_1_000000000051")).codigo == "N"


@pytest.mark.parametrize("part", [note(1, ""), note(1, "N", "x"), "<ChaveNFeRPS><ChaveNFe/></ChaveNFeRPS>"])
def test_an_answer_with_a_note_that_cannot_be_read_is_no_answer(part: str) -> None:
    with pytest.raises(SemResposta):
        answer_of(GOOD + part, "RetornoConsulta")


@pytest.mark.parametrize("raw", [b"", b"{}", b"<html/>", b"<!DOCTYPE a><a/>", b"<a><RetornoXML>nada</RetornoXML></a>"])
def test_garbage_is_no_answer(raw: bytes) -> None:
    with pytest.raises(SemResposta):
        reading.retorno(raw, "RetornoEnvioRPS")


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("218", "JA_EXISTE"),
        ("338", "JA_EXISTE"),
        ("1206", "REJEITADO"),
        ("215", "REJEITADO"),
        ("9999", "INDETERMINADO"),
    ],
)
def test_the_citys_errors_are_read_by_its_own_table(code: str, outcome: str) -> None:
    name = "00000001_1_000000000001"
    told = reading.autorizacao(answer_of(BAD + error(code)), name)
    assert decidir_emissao(told, Ato(Acao.EMITIR, name, b"", SP), catalogo(), "sp").desfecho == outcome


def test_the_same_number_means_opposite_things_at_two_authorities() -> None:
    rule = catalogo().regra
    assert rule("sefaz", "consulta", "217").desfecho == "NAO_EXISTE"
    assert rule("sp", "autorizacao", "217").desfecho == "AUTORIZADO"
    assert rule("sp", "consulta", "217").desfecho == "INDETERMINADO"


def test_s4_02_an_invoice_is_emitted_once_and_a_repeat_comes_from_the_cache(loja: Loja) -> None:
    first, again = loja.emitir("k", SP), loja.emitir("k", SP)

    assert (first.row["estado"], first.origem, first.row["numero"]) == ("AUTORIZADO", "emissao", 1)
    assert first.row["id_idempotencia"] == f"{CCM}_{loja.serie}_000000000001"
    assert (again.row["id"], again.repetida) == (first.row["id"], True)
    assert [row["chave"] for row in loja.na_autoridade()] == [first.row["chave_acesso"]]
    assert shown(first.row)["incidente"] is None


@pytest.mark.parametrize("tipo", ["queda", "timeout", "500", "429", "lixo", "meia", "proxy"])
def test_s4_05_an_answer_lost_after_processing_is_found_by_the_rps_key(loja_local: Loja, tipo: str) -> None:
    loja_local.mundo.falhar("sp/autorizacao", "depois", tipo, segundos=1.2)
    made = loja_local.emitir("k", SP)

    assert (made.row["estado"], made.origem) == ("AUTORIZADO", "conciliacao")
    assert loja_local.prova(made).count("envio") == 1
    assert [row["codigo"] for row in loja_local.na_autoridade()] == ["200"]


def test_s4_05_one_absence_is_not_enough_and_the_second_look_goes_through_the_period(loja: Loja) -> None:
    loja.mundo.falhar("sp/autorizacao", "antes", "queda")
    made = loja.emitir("k", SP)
    row = loja.fiscal.documento("local", made.row["id"])
    assert (row["estado"], row["ausente_em"] is not None) == ("INDETERMINADO", True)
    assert loja.prova(made).count("envio") == 1

    loja.livros.varrer()
    loja.livros.varrer()

    row = loja.fiscal.documento("local", made.row["id"])
    assert row["estado"] == "AUTORIZADO"
    export = loja.livros.prova("local", made.row["id"])
    told = [json.loads(one["conteudo"]) for one in export["entradas"] if one["tipo"] == "decisao"]
    said = ["Não consta pela chave do RPS.", "Não consta pela chave do RPS nem no período."]
    assert [one["motivo"] for one in told[:2]] == said
    sent = [json.loads(one["conteudo"])["sha256"] for one in export["entradas"] if one["tipo"] == "envio"]
    assert (len(sent), len(set(sent))) == (2, 1)
    assert [one["codigo"] for one in loja.na_autoridade()] == ["200"]


def test_s4_06_within_the_quarantine_nothing_is_sent_however_often_it_is_asked(tmp_path: Path, mundo: Mundo) -> None:
    terms = Termos(settle=0.0, first=0.0, lease=5.0, quarentena=3600.0)
    shop = Loja(f"sqlite:///{tmp_path}/quarentena.db", mundo, termos=terms)
    mundo.falhar("sp/autorizacao", "antes", "queda")
    made = shop.emitir("k", SP)
    for _ in range(2):
        shop.livros.varrer()
        shop.emitir("k", SP)
    assert (shop.estado(made), shop.prova(made).count("envio")) == ("INDETERMINADO", 1)
    with shop.banco.transaction() as connection:
        connection.rows("UPDATE documentos_fiscais SET ausente_em = ausente_em - 3600000")
    shop.livros.varrer()
    shop.livros.varrer()
    assert (shop.estado(made), shop.prova(made).count("envio")) == ("AUTORIZADO", 2)
    shop.fechar()


def test_s4_06_a_note_that_arrives_during_the_quarantine_is_adopted_and_nothing_is_destroyed(loja_local: Loja) -> None:
    loja_local.mundo.falhar("sp/autorizacao", "antes", "queda")
    made = loja_local.emitir("k", SP)
    late = loja_local.mundo.cidade()
    late.transmitir(Ato(Acao.EMITIR, made.row["id_idempotencia"], bytes(made.row["xml_assinado"]), SP))
    loja_local.livros.varrer()

    assert (loja_local.estado(made), loja_local.prova(made).count("envio")) == ("AUTORIZADO", 1)
    assert [row["codigo"] for row in loja_local.na_autoridade()] == ["200"]


def test_s4_06_a_destroyed_note_is_kept_with_both_numbers_and_shown(loja: Loja) -> None:
    loja.mundo.falhar("sp/autorizacao", "depois", "duplicada")
    made = loja.emitir("k", SP)
    first, second = loja.na_autoridade()

    assert (first["codigo"], second["situacao"]) == ("217", "AUTORIZADO")
    row = loja.fiscal.documento("local", made.row["id"])
    assert (row["estado"], row["codigo"], row["chave_acesso"]) == ("AUTORIZADO", "217", second["chave"])
    told = shown(row)["incidente"]
    assert (told["anteriores"], told["atual"]) == ([first["chave"]], second["chave"])
    assert "incidente" in loja.prova(made)
    assert [(one.documento, one.direito) for one in loja.livros.pendencias("local")[0]] == [(row["id"], "incidente")]
    assert {"chave": first["chave"], "natural_key": row["id_idempotencia"]} in loja.mundo.livro()["destruidas"]
    with loja.banco.transaction() as connection:
        connection.rows("UPDATE documentos_fiscais SET tentativas = 2")
    loja.fiscal.conciliar(Caller("local"), row["id"])
    assert loja.fiscal.documento("local", row["id"])["versao"] == row["versao"], "what is known is no news"


def test_s4_06_a_note_destroyed_behind_our_back_is_found_when_it_is_looked_at(loja_local: Loja) -> None:
    made = loja_local.emitir("k", SP)
    again = loja_local.mundo.cidade()
    again.transmitir(Ato(Acao.EMITIR, made.row["id_idempotencia"], bytes(made.row["xml_assinado"]), SP))
    found = loja_local.fiscal.conciliar(Caller("local"), made.row["id"]).row

    assert found["chave_acesso"] == loja_local.na_autoridade()[1]["chave"] != made.row["chave_acesso"]
    assert json.loads(found["incidente"])["anteriores"] == [made.row["chave_acesso"]]


def test_s4_06_every_note_is_looked_at_once_more_for_a_gateway_may_have_delivered_it_twice(loja_local: Loja) -> None:
    loja_local.mundo.falhar("sp/autorizacao", "antes", "duplicada")
    made = loja_local.emitir("k", SP)
    with loja_local.banco.transaction() as connection:
        assert connection.rows("UPDATE documentos_fiscais SET proximo_em = 0 WHERE proximo_em > 0 RETURNING id")
    loja_local.livros.varrer()

    first, second = (row["chave"] for row in loja_local.na_autoridade())
    row = loja_local.fiscal.documento("local", made.row["id"])
    assert (row["estado"], row["chave_acesso"], row["proximo_em"]) == ("AUTORIZADO", second, None)
    assert json.loads(row["incidente"])["anteriores"] == [first]


def test_s4_06_a_note_destroyed_while_its_answer_was_lost_is_found_through_the_period(loja_local: Loja) -> None:
    """The shortest schedule that the search over faults and crashes found: delivered twice, no answer written."""
    loja_local.mundo.falhar("sp/autorizacao", "antes", "queda")
    made = loja_local.emitir("k", SP)
    net = loja_local.mundo.cidade()
    for _ in range(2):
        net.transmitir(Ato(Acao.EMITIR, made.row["id_idempotencia"], bytes(made.row["xml_assinado"]), SP))
    loja_local.livros.varrer()
    assert loja_local.estado(made) == "AUTORIZADO", "decided by the key alone"
    with loja_local.banco.transaction() as connection:
        connection.rows("UPDATE documentos_fiscais SET proximo_em = 0 WHERE proximo_em > 0")
    loja_local.livros.varrer()

    row = loja_local.fiscal.documento("local", made.row["id"])
    first, second = loja_local.na_autoridade()
    assert (row["estado"], row["tentativas"], row["chave_acesso"]) == ("AUTORIZADO", 1, second["chave"])
    assert json.loads(row["incidente"])["anteriores"] == [first["chave"]]


@pytest.mark.parametrize(("marca", "codigo"), [("guia", "218"), ("presa", "338"), ("site", "216")])
def test_s4_05_what_the_city_will_not_issue_again_is_adopted(loja_local: Loja, marca: str, codigo: str) -> None:
    name = f"{CCM}_{loja_local.serie}_000000000001"
    asked = {"rps": name, "marca": marca}
    httpx.post(f"{loja_local.mundo.onde.controle}/_sim/marcas", json=asked).raise_for_status()
    loja_local.mundo.falhar("sp/autorizacao", "depois", "duplicada")
    made = loja_local.emitir("k", SP)

    assert (made.row["estado"], made.origem, made.row["incidente"]) == ("AUTORIZADO", "conciliacao", None)
    export = loja_local.livros.prova("local", made.row["id"])["entradas"]
    codes = [json.loads(one["conteudo"])["codigo"] for one in export if one["tipo"] == "resposta"]
    assert codes == [codigo, "N"]
    assert len(loja_local.na_autoridade()) == 1


def test_another_amount_under_our_rps_is_divergent(mundo: Mundo) -> None:
    city, note = mundo.cidade(), numerado(SP, serie=903)
    ato = ato_de(city.montar(note))
    city.transmitir(ato)
    other = decidir_consulta(city.consultar(ato), replace(ato, digest="2020-01-01:1"), catalogo(), "sp")
    assert (other.desfecho, decidir_consulta(city.consultar(ato), ato, catalogo(), "sp").desfecho) == (
        "DIVERGENTE",
        "AUTORIZADO",
    )


def test_the_period_is_read_page_by_page_and_an_unread_rest_proves_nothing(
    mundo: Mundo, monkeypatch: pytest.MonkeyPatch
) -> None:
    city = mundo.cidade(replace(EMITENTE, ccm="77000001"))
    made = [city.montar(numerado(SP, serie=904)) for _ in range(51)]
    told = city.transmitir_lote([ato_de(one) for one in made[:50]])
    city.transmitir(ato_de(made[50]))

    assert [answer.codigo for answer in told if isinstance(answer, Resposta)] == ["200"] * 50
    found = city.consultar(ato_de(made[50], insistir=True))
    assert (found.codigo, found.anteriores) == ("N", ())
    absent = ato_de(city.montar(numerado(SP, serie=904)), insistir=True)
    assert city.consultar(absent).codigo == "1106"
    monkeypatch.setattr("umavez_systems.fiscal.wire.paulistana.period.MOST_PAGES", 1)
    assert decidir_consulta(city.consultar(absent), absent, catalogo(), "sp").desfecho == "INDETERMINADO"


def test_a_period_that_was_just_read_serves_decided_notes_and_never_proves_an_absence(
    mundo: Mundo, monkeypatch: pytest.MonkeyPatch
) -> None:
    city = mundo.cidade(replace(EMITENTE, ccm="77000002"))
    asked: list[str] = []
    real = city._ask
    monkeypatch.setattr(city, "_ask", lambda about, method, tree: asked.append(method) or real(about, method, tree))
    ato = ato_de(city.montar(numerado(SP, serie=907)), insistir=True)
    assert city.consultar(ato).codigo == "1106"
    city.transmitir(ato)
    for decided in (True, True, False):
        assert city.consultar(replace(ato, decidido=decided)).codigo == "N"

    assert asked.count("ConsultaNFe") == 4, "by the key every time"
    assert asked.count("ConsultaNFeEmitidas") == 2, "what is open is looked for anew"


def counted(city: SaoPaulo, monkeypatch: pytest.MonkeyPatch, *lost: int) -> list[str]:
    """What a city is asked; the pages of these turns get no answer."""
    asked: list[str] = []
    real = city._ask

    def ask(about: Pergunta, method: str, tree: Any) -> reading.Retorno:
        asked.append(method)
        if method == "ConsultaNFeEmitidas" and asked.count(method) in lost:
            raise SemResposta("perdida")
        return real(about, method, tree)

    monkeypatch.setattr(city, "_ask", ask)
    return asked


def test_a_period_whose_reading_broke_off_is_gone_on_with_by_the_next_question(
    mundo: Mundo, monkeypatch: pytest.MonkeyPatch
) -> None:
    city = mundo.cidade(replace(EMITENTE, ccm="77000003"))
    for _ in range(2):
        city.transmitir_lote([ato_de(city.montar(numerado(SP, serie=908))) for _ in range(50)])
    asked = counted(city, monkeypatch, 3)
    first, second = (
        replace(ato_de(city.montar(numerado(SP, serie=908)), insistir=True), lido_ha=60.0) for _ in range(2)
    )
    with pytest.raises(SemResposta):
        city.consultar(first)
    assert city.consultar(second).codigo == "1106"
    assert asked.count("ConsultaNFeEmitidas") == 4, "three pages, one of them twice"
    assert city.consultar(first).codigo == "1106"
    assert (asked.count("ConsultaNFeEmitidas"), asked.count("ConsultaNFe")) == (4, 3), "the key is asked every time"


def test_a_reading_counts_for_those_only_who_could_be_called_absent_when_it_began(
    mundo: Mundo, monkeypatch: pytest.MonkeyPatch
) -> None:
    city = mundo.cidade(replace(EMITENTE, ccm="77000004"))
    asked = counted(city, monkeypatch, 2)
    older, younger = (ato_de(city.montar(numerado(SP, serie=909)), insistir=True) for _ in range(2))
    assert city.consultar(replace(older, lido_ha=1.0)).codigo == "1106"
    assert city.consultar(replace(younger, lido_ha=30.0)).codigo == "1106"
    assert asked.count("ConsultaNFeEmitidas") == 1
    with pytest.raises(SemResposta):
        city.consultar(younger)
    for page in (4, 5):
        assert city.consultar(younger).codigo == "1106"
        assert asked.count("ConsultaNFeEmitidas") == page, "what broke off is ended, and does not count for this one"
    said = city.consultar(replace(older, lido_ha=30.0)).bruto
    assert b"periodo " in said.splitlines()[-1], "the proof tells of the reading that another question made"


def test_s4_06_no_page_is_read_while_the_quarantine_lasts(tmp_path: Path, mundo: Mundo) -> None:
    shop = Loja(
        f"sqlite:///{tmp_path}/paginas.db", mundo, termos=Termos(settle=0.0, first=0.0, lease=5.0, quarentena=3600.0)
    )
    mundo.falhar("sp/autorizacao", "antes", "queda")
    made = shop.emitir("k", SP)
    shop.livros.varrer()
    told = [json.loads(one["conteudo"]) for one in shop.livros.prova("local", made.row["id"])["entradas"]]
    said = [one["motivo"] for one in told if one.get("motivo", "").startswith("Não consta")]
    assert len(said) >= 2
    assert set(said) == {"Não consta pela chave do RPS."}
    shop.fechar()


def test_what_the_key_tells_is_younger_than_a_remembered_period(mundo: Mundo) -> None:
    city = mundo.cidade(replace(EMITENTE, ccm="77000005"))
    ato = ato_de(city.montar(numerado(SP, serie=910)), insistir=True)
    issued = city.transmitir(ato)
    assert city.consultar(replace(ato, decidido=True)).codigo == "N"
    city.transmitir(city.montar_cancelamento(ato, issued.protocolo or "", WHY, DAY))
    assert city.consultar(replace(ato, decidido=True)).codigo == "C"


def test_an_rps_older_than_the_longest_period_is_never_proven_absent(mundo: Mundo) -> None:
    note = numerado(SP, serie=905)
    today = mundo.cidade()._hoje()
    old = replace(note, emissao=f"{today - timedelta(days=40)}T10:00:00-03:00")
    city = mundo.cidade()
    ato = ato_de(city.montar(old), insistir=True)
    assert city.consultar(ato).codigo == "periodo-incompleto"
    wide = rps.periodo(city.emitente, today - timedelta(days=31), today, 1)
    assert city._ask(city._pergunta(), "ConsultaNFeEmitidas", wide).erros[0][0] == "1403"


def test_a_batch_is_read_per_rps_and_all_or_nothing_where_asked(mundo: Mundo) -> None:
    city = mundo.cidade()
    good, bad = (ato_de(city.montar(numerado(SP, serie=906))) for _ in range(2))
    broken = replace(bad, xml=bad.xml.replace(b"<Assinatura>", b"<Assinatura>AAAA"))
    whole = city.transmitir_lote([good, broken], transacao=True)
    assert [answer.codigo for answer in whole if isinstance(answer, Resposta)] == ["1206", "1206"]
    assert city.consultar(good).codigo == "1106"
    each = city.transmitir_lote([good, broken])
    assert isinstance(each[0], Resposta)
    assert each[0].codigo == "200"
    assert city.consultar(bad).codigo == "1106"
    with pytest.raises(Problem):
        city.transmitir_lote([good] * 51)


def test_s4_09_a_note_is_cancelled_by_its_number_and_a_repeat_comes_from_the_cache(loja: Loja) -> None:
    made = loja.emitir("k", SP)
    done = loja.fiscal.cancelar(Caller("local"), made.row["id"], WHY, made.row["versao"])
    again = loja.fiscal.cancelar(Caller("local"), made.row["id"], WHY, 99)
    assert (done.row["estado"], again.origem) == ("CANCELADO", "cache")
    assert [(row["situacao"], row["codigo"]) for row in loja.na_autoridade()] == [("CANCELADO", "200")]


@pytest.mark.parametrize("quando", ["antes", "depois"])
@pytest.mark.parametrize("tipo", ["queda", "500", "lixo", "duplicada"])
def test_s4_09_a_cancellation_whose_answer_is_lost_is_found(loja_local: Loja, tipo: str, quando: str) -> None:
    made = loja_local.emitir("k", SP)
    loja_local.mundo.falhar("sp/evento", quando, tipo)
    loja_local.fiscal.cancelar(Caller("local"), made.row["id"], WHY, made.row["versao"])
    assert loja_local.estado(made) == "CANCELADO"


def test_s4_10_seed_9_1_rps_numbers_under_threads_are_unique_per_series(loja: Loja) -> None:
    made: list[int] = []
    troubles: list[BaseException] = []

    def work(number: int) -> None:
        try:
            made.extend(loja.emitir(f"k{number}-{turn}", SP).row["numero"] for turn in range(3))
        except BaseException as trouble:  # noqa: BLE001  # shown below
            troubles.append(trouble)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not troubles
    assert sorted(made) == list(range(1, 13))
    assert sorted(row["numero"] for row in loja.na_autoridade()) == list(range(1, 13))
    (series,) = loja.livros.numeracao("local")
    assert (series.modelo, series.livro.abertos) == ("NFSE_SP", [])


def test_an_organisation_tells_its_registration_and_layout() -> None:
    from umavez_systems.fiscal.assembly import DEMO_DATA

    data = {**DEMO_DATA, "cnpj": CNPJ, "ccm": "01234567", "layout_sp": "2", "im": "99"}
    found = emitente_de(data)
    assert (found.ccm, found.layout_sp, found.im, found.emissor_nacional) == ("1234567", "2", "99", True)
    for wrong in ({"ccm": "12a"}, {"ccm": "1" * 13}, {"layout_sp": "3"}, {"emissor_nacional": "sim"}):
        with pytest.raises(Problem):
            emitente_de({**data, **wrong})
    with pytest.raises(Problem) as missing:
        SaoPaulo(EMITENTE, None, None)  # type: ignore[arg-type]  # refused before either is used
    assert "ccm" in missing.value.detail
