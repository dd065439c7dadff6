"""NFS-e Nacional (seed 004 §4.2, §6.2): the DPS's own identifier, asked before sent again, events beside the note."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest
from lxml import etree

from tests.umavez_systems.fiscal.conftest import CNPJ, EMITENTE, Loja, Mundo, numerado
from umavez_systems.fiscal.cases import Caller
from umavez_systems.fiscal.domain import Acao, Tipo
from umavez_systems.fiscal.ports import Ato, Montado, Resposta, SemResposta
from umavez_systems.fiscal.rules.catalogue import catalogo
from umavez_systems.fiscal.rules.decisions import decidir_consulta, decidir_emissao
from umavez_systems.fiscal.rules.identifiers import chave_nfse, id_de_dps, id_dps
from umavez_systems.fiscal.simulador.sefin import _event_xml
from umavez_systems.fiscal.views import xml as whole
from umavez_systems.fiscal.wire import schemas, signing
from umavez_systems.fiscal.wire.nacional import reading
from umavez_systems.fiscal.wire.nacional.dps import NS
from umavez_systems.fiscal.wire.nacional.packing import desembalar, embalar
from umavez_systems.problems import Problem

ADN = Tipo.NFSE_ADN
WHY = "Pedido desfeito pelo cliente"
CHAVE = "35503082212ABC34501DE35999999999999926110000079191"


def ato_de(made: Montado) -> Ato:
    name = made.id_idempotencia
    return Ato(Acao.EMITIR, name, made.xml, ADN, digest=made.digest, documento=name)


def test_s4_01_the_dps_has_the_seeds_identifier_and_the_official_schemas_form(mundo: Mundo) -> None:
    made = mundo.nacional().montar(numerado(ADN, serie=7, numero=42))
    tree = etree.fromstring(made.xml)

    assert made.id_idempotencia == f"3550308_2_{CNPJ}_00007_000000000000042"
    assert tree[0].get("Id") == id_dps(made.id_idempotencia) == f"DPS35503082{CNPJ}00007000000000000042"
    assert len(tree[0].get("Id")) == 45
    assert id_de_dps(tree[0].get("Id")) == made.id_idempotencia
    assert id_de_dps("DPS" + "0" * 42) is None
    assert schemas.faults("dps", tree) == []
    signing.conferir(made.xml, f"{{{NS}}}infDPS")
    with pytest.raises(Problem):
        mundo.nacional().montar(numerado(ADN, serie=50_000))


def test_s4_12_packing_the_same_bytes_gives_the_same_text_and_unpacking_is_bounded() -> None:
    xml = b"<a>" + b"x" * 1000 + b"</a>"
    assert embalar(xml) == embalar(xml)
    assert gzip.decompress(base64.b64decode(embalar(xml))) == xml
    assert base64.b64decode(embalar(xml))[4:8] == b"\0\0\0\0"
    assert desembalar(embalar(xml)) == xml
    assert desembalar(embalar(base64.b64encode(xml))) == xml
    bomb = base64.b64encode(gzip.compress(b"<a>" + b"\0" * 50_000_000)).decode()
    nested = embalar(xml)
    for _ in range(9):
        nested = embalar(nested.encode())
    for bad in (bomb, nested, embalar(xml)[:-8], "!!!", "", None, 7, base64.b64encode(b"\x1f\x8bnada").decode()):
        with pytest.raises(SemResposta):
            desembalar(bad)


@pytest.mark.parametrize(
    ("status", "raw", "code"),
    [
        (400, {"erros": [{"Codigo": "E0014", "Descricao": "x"}]}, "E0014"),
        (400, {"erro": {"codigo": "e0004", "descricao": "x", "complemento": None}}, "E0004"),
        (400, {"Erros": [{"codigo": "E0004"}, {"Codigo": "E0014"}]}, "E0014"),
        (422, {"erros": [{"codigo": "E0010"}]}, "E0010"),
        (409, {}, "409"),
        (201, {"chaveAcesso": CHAVE, "erro": []}, "201"),
        (201, {"ChaveAcesso": CHAVE}, "201"),
    ],
)
def test_both_spellings_are_read_and_a_2xx_needs_its_key(status: int, raw: dict[str, object], code: str) -> None:
    assert reading.autorizacao(status, json.dumps(raw).encode()).codigo == code


@pytest.mark.parametrize(
    ("status", "raw"),
    [
        (400, b'{"erro":"Bad Gateway"}'),
        (400, b'{"erros":[{"codigo":"502"}]}'),
        (400, b"<html>"),
        (400, b"[]"),
        (201, b"{}"),
        (201, b'{"chaveAcesso": null}'),
        (201, b'{"chaveAcesso": "123"}'),
        (201, f'{{"chaveAcesso": "{CHAVE}", "nfseXmlGZipB64": "{embalar(b"<NFSe/>")}"}}'.encode()),
        (201, b'{"a":' * 100_000),
    ],
)
def test_what_is_not_sefins_own_word_is_no_answer(status: int, raw: bytes) -> None:
    with pytest.raises(SemResposta):
        reading.autorizacao(status, raw)


def test_codes_of_sefin_decide_and_what_is_not_catalogued_does_not(mundo: Mundo) -> None:
    known = catalogo().regra
    assert known("adn", "autorizacao", "E0014").desfecho == "JA_EXISTE"
    assert known("adn", "autorizacao", "E0999").desfecho == "REJEITADO"
    assert known("adn", "autorizacao", "E1217").desfecho == "SERVICO_PARADO"
    assert known("adn", "consulta", "E0999").desfecho == "INDETERMINADO"
    assert known("adn", "autorizacao", "217").desfecho == "INDETERMINADO"
    assert known("adn", "consulta", "sem-chave").desfecho == "INDETERMINADO"


def test_s4_03_seed_4_2_head_tells_existence_and_get_the_key(mundo: Mundo) -> None:
    sefin = mundo.nacional()
    made = sefin.montar(numerado(ADN, serie=900))
    identity = id_dps(made.id_idempotencia)

    assert sefin.existe(identity) is False
    assert sefin.chave_de(identity) is None
    sent = sefin.transmitir(ato_de(made))
    assert sefin.existe(identity) is True
    assert sefin.chave_de(identity) == sent.chave
    assert chave_nfse(sent.chave)
    assert (sent.sobre, sent.dig_val) == (made.id_idempotencia, made.digest)
    again = sefin.transmitir(ato_de(made))
    assert again.codigo == "E0014"


def test_s4_05_seed_6_2_existence_without_a_key_is_never_a_reason_to_emit(mundo: Mundo) -> None:
    sefin = mundo.nacional()
    ato = ato_de(sefin.montar(numerado(ADN, serie=900)))
    sefin.transmitir(ato)
    sefin.chave_de = lambda *_: None  # type: ignore[method-assign]  # what a stranger's certificate is told
    found = sefin.consultar(ato)
    assert decidir_consulta(found, ato, catalogo(), "adn").desfecho == "INDETERMINADO"


def test_a_404_of_a_city_with_its_own_issuer_proves_nothing(mundo: Mundo) -> None:
    note = numerado(ADN, serie=900)
    for nacional, outcome in ((True, "NAO_EXISTE"), (False, "INDETERMINADO")):
        sefin = mundo.nacional(replace(EMITENTE, emissor_nacional=nacional))
        ato = ato_de(sefin.montar(note))
        assert decidir_consulta(sefin.consultar(ato), ato, catalogo(), "adn").desfecho == outcome


def test_the_note_counts_only_for_our_dps_and_our_bytes(mundo: Mundo) -> None:
    sefin = mundo.nacional()
    ato = ato_de(sefin.montar(numerado(ADN, serie=900)))
    answer = sefin.transmitir(ato)
    decided = decidir_emissao(answer, ato, catalogo(), "adn")
    assert (decided.desfecho, decided.regra) == ("AUTORIZADO", "adn/autorizacao/201+digVal")
    foreign = decidir_emissao(replace(answer, sobre="3550308_2_x"), ato, catalogo(), "adn")
    other = decidir_emissao(replace(answer, dig_val="outro="), ato, catalogo(), "adn")
    assert (foreign.desfecho, other.desfecho) == ("INDETERMINADO", "DIVERGENTE")


def test_s4_02_an_invoice_is_emitted_once_and_a_repeat_comes_from_the_cache(loja: Loja) -> None:
    first, again = loja.emitir("k", ADN), loja.emitir("k", ADN)

    assert (first.row["estado"], first.origem, first.row["numero"]) == ("AUTORIZADO", "emissao", 1)
    assert (again.row["id"], again.origem, again.repetida) == (first.row["id"], "cache", True)
    assert [row["chave"] for row in loja.na_autoridade()] == [first.row["chave_acesso"]]
    assert b"<infNFSe" in whole(first.row)
    assert loja.prova(first) == ["intencao", "bytes", "envio", "estado", "resposta", "decisao", "estado"]


@pytest.mark.parametrize("tipo", ["queda", "timeout", "500", "lixo", "meia", "proxy", "duplicada"])
def test_s4_05_seed_6_2_an_answer_lost_after_processing_is_adopted(loja_local: Loja, tipo: str) -> None:
    loja_local.mundo.falhar("adn/autorizacao", "depois", tipo, segundos=1.2)
    made = loja_local.emitir("k", ADN)

    assert (made.row["estado"], made.origem) == ("AUTORIZADO", "conciliacao")
    assert [row["chave"] for row in loja_local.na_autoridade()] == [made.row["chave_acesso"]]
    assert loja_local.prova(made).count("envio") == 1


@pytest.mark.parametrize("tipo", ["queda", "timeout", "500", "lixo", "meia", "proxy", "429"])
def test_s4_05_what_never_arrived_is_sent_again_with_the_same_bytes(loja_local: Loja, tipo: str) -> None:
    loja_local.mundo.falhar("adn/autorizacao", "antes", tipo, segundos=1.2)
    made = loja_local.emitir("k", ADN)

    assert made.row["estado"] == "AUTORIZADO"
    export = loja_local.livros.prova("local", made.row["id"])
    sent = [json.loads(entry["conteudo"])["sha256"] for entry in export["entradas"] if entry["tipo"] == "envio"]
    assert (len(sent), len(set(sent))) == (2, 1)
    assert len(loja_local.na_autoridade()) == 1


def test_s4_05_nobody_knows_stays_unknown_and_the_reconciler_closes_it(loja: Loja) -> None:
    loja.mundo.falhar("adn/autorizacao", "depois", "queda")
    loja.mundo.falhar("adn/consulta", "antes", "queda", vezes=50)
    made = loja.emitir("k", ADN)
    assert (made.row["estado"], made.row["chave_acesso"]) == ("INDETERMINADO", None)
    loja.mundo.sem_falhas()
    loja.livros.varrer()

    row = loja.fiscal.documento("local", made.row["id"])
    assert (row["estado"], row["origem"]) == ("AUTORIZADO", "conciliacao")
    assert [one["chave"] for one in loja.na_autoridade()] == [row["chave_acesso"]]


def test_a_refusal_needs_no_voiding_and_leaves_no_number_open(loja_local: Loja) -> None:
    original = loja_local.mundo.nacional().montar(numerado(ADN, serie=loja_local.serie, numero=1, descricao="Outra"))
    loja_local.mundo.nacional().transmitir(ato_de(original))
    made = loja_local.emitir("k", ADN)
    assert (made.row["estado"], made.row["codigo"]) == ("DIVERGENTE", "200")
    refused = loja_local.emitir("k2", ADN, substitui=CHAVE)
    assert (refused.row["estado"], refused.row["codigo"]) == ("REJEITADO", "E0060")
    (series,) = loja_local.livros.numeracao("local")
    assert (series.modelo, series.livro.abertos, series.livro.inutilizaveis) == ("NFSE_ADN", [1], [])
    rights = [(one.documento, one.direito) for one in loja_local.livros.pendencias("local")[0]]
    assert rights == [(made.row["id"], "explicar")]
    with pytest.raises(Problem) as none:
        loja_local.livros.inutilizar(Caller("local"), "demo", ADN, loja_local.serie, 2, 2, WHY)
    assert none.value.status == 422


def test_s4_09_a_cancellation_is_an_event_and_the_notes_own_code_never_tells(loja: Loja) -> None:
    made = loja.emitir("k", ADN)
    done = loja.fiscal.cancelar(Caller("local"), made.row["id"], WHY, made.row["versao"])
    again = loja.fiscal.cancelar(Caller("local"), made.row["id"], WHY, 99)

    assert (done.row["estado"], again.origem) == ("CANCELADO", "cache")
    assert [row["situacao"] for row in loja.na_autoridade()] == ["CANCELADO"]
    (act,) = loja.fiscal.atos_de(made.row["id"])
    assert (act["nome"], act["estado"], len(act["nome"])) == (f"PRE{made.row['chave_acesso']}101101", "FEITO", 59)
    assert "<cStat>100</cStat>" in whole(loja.fiscal.documento("local", made.row["id"])).decode()


@pytest.mark.parametrize("quando", ["antes", "depois"])
@pytest.mark.parametrize("tipo", ["queda", "500", "proxy", "duplicada"])
def test_s4_09_a_cancellation_whose_answer_is_lost_is_found(loja_local: Loja, tipo: str, quando: str) -> None:
    made = loja_local.emitir("k", ADN)
    loja_local.mundo.falhar("adn/evento", quando, tipo)
    loja_local.fiscal.cancelar(Caller("local"), made.row["id"], WHY, made.row["versao"])
    assert loja_local.estado(made) == "CANCELADO"
    events = [row for row in loja_local.mundo.livro()["eventos"] if row["chave"] == made.row["chave_acesso"]]
    assert len(events) == 1


def test_s4_09_while_nobody_knows_it_stays_pending(loja_local: Loja) -> None:
    made = loja_local.emitir("k", ADN)
    loja_local.mundo.falhar("adn/evento", "depois", "queda")
    loja_local.mundo.falhar("adn/consulta", "antes", "queda", vezes=50)
    loja_local.fiscal.cancelar(Caller("local"), made.row["id"], WHY, made.row["versao"])
    assert loja_local.estado(made) == "CANCELAMENTO_PENDENTE"
    loja_local.mundo.sem_falhas()
    loja_local.livros.varrer()
    assert loja_local.estado(made) == "CANCELADO"


def test_s4_09_another_event_that_forbids_it_refuses_the_cancellation_once_the_events_were_looked_at(
    loja_local: Loja,
) -> None:
    made = loja_local.emitir("k", ADN)
    authority = loja_local.sistema.organizacoes.autoridade("local/demo", ADN)
    linked = Resposta("evento", "E0840", "Ha evento vinculado", b"")
    authority.transmitir = lambda _: linked  # type: ignore[method-assign]  # an event of somebody else's
    with pytest.raises(Problem) as refused:
        loja_local.fiscal.cancelar(Caller("local"), made.row["id"], WHY, made.row["versao"])
    assert (refused.value.name, loja_local.estado(made)) == ("cancelamento-recusado", "AUTORIZADO")


def test_s4_06_a_substituted_invoice_is_found_cancelled_by_sefins_own_event(loja_local: Loja) -> None:
    first = loja_local.emitir("k", ADN)
    second = loja_local.emitir("k2", ADN, substitui=first.row["chave_acesso"])
    assert second.row["estado"] == "AUTORIZADO"
    found = loja_local.fiscal.conciliar(Caller("local"), first.row["id"])
    assert found.row["estado"] == "CANCELADO"
    with pytest.raises(Problem):
        loja_local.fiscal.corrigir(Caller("local"), second.row["id"], "Texto de correcao qualquer")


def _open(loja: Loja) -> Any:
    return loja.sistema.organizacoes.autoridade("local/demo", ADN)


@pytest.mark.parametrize("kind", ["105104", "305101"])
def test_s4_06_an_invoice_that_the_city_cancelled_itself_is_found_cancelled(loja_local: Loja, kind: str) -> None:
    made = loja_local.emitir("k", ADN)
    chave, authority = made.row["chave_acesso"], _open(loja_local)
    told = json.dumps({"eventoXmlGZipB64": embalar(_event_xml(chave, kind, b""))}).encode()
    get = authority._get

    def with_event(asked: Any, path: str, answers: frozenset[int]) -> tuple[int, bytes]:
        return (200, told) if path.endswith(f"/eventos/{kind}/1") else get(asked, path, answers)

    authority._get = with_event
    assert loja_local.fiscal.conciliar(Caller("local"), made.row["id"]).row["estado"] == "CANCELADO"


def test_s4_13_the_simulator_refuses_strangers_and_forged_identifiers(mundo: Mundo) -> None:
    sefin = mundo.nacional()
    ato = ato_de(sefin.montar(numerado(ADN, serie=900)))
    forged = ato.xml.replace(b"<nDPS>", b"<nDPS>9", 1)
    assert sefin.transmitir(replace(ato, xml=forged)).codigo in ("E0004", "E0714", "E1235")
    other = mundo.cartorio.a1("11222333000181", "Outra", "x")
    from umavez_systems.fiscal.wire.certificate import Certificado
    from umavez_systems.fiscal.wire.soap import Correio

    stranger = mundo.nacional()
    stranger._correio.close()
    stranger._correio = Correio(Certificado.lido(other, "x").tls(mundo.onde.ca_pem))
    assert stranger.transmitir(ato).codigo == "E0714"
    sefin.transmitir(ato)
    identity = id_dps(ato.nome)
    assert stranger.existe(identity) is True
    assert stranger.chave_de(identity) is None


def test_the_control_api_counts_what_sefin_was_asked(mundo: Mundo) -> None:
    sefin = mundo.nacional()
    sefin.situacao()
    book = httpx.get(f"{mundo.onde.controle}/_sim/livro").json()
    assert any(row["servico"] == "adn/consulta" for row in book["chamadas"])


def test_s4_04_a_question_tries_each_of_its_calls_three_times_and_a_send_only_once(mundo: Mundo) -> None:
    pauses: list[float] = []
    sefin = mundo.nacional(tempo=30.0)
    sefin._sleep = pauses.append
    ato = ato_de(sefin.montar(numerado(ADN, serie=900)))
    mundo.falhar("adn/consulta", "antes", "queda", vezes=2)
    assert sefin.consultar(ato).codigo == "404"
    assert pauses == [1.0, 2.0]
    mundo.falhar("adn/consulta", "antes", "queda", vezes=3)
    with pytest.raises(SemResposta):
        sefin.consultar(ato)
    mundo.falhar("adn/autorizacao", "depois", "queda")
    with pytest.raises(SemResposta):
        sefin.transmitir(ato)
    assert sefin.transmitir(ato).codigo == "E0014"
    assert len(pauses) == 4
