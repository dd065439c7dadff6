"""The wire: what is built is valid and signed, what comes back is read defensively, failures are told apart."""

from __future__ import annotations

import base64
import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from tests.umavez_systems.fiscal.conftest import CNPJ, EMITENTE, ENDERECO, Mundo, numerado, pedido
from umavez_systems.fiscal.domain import Acao, Desfecho, Destinatario, Item, Tipo
from umavez_systems.fiscal.ports import (
    Ato,
    AutoridadeError,
    Montado,
    NadaEnviado,
    Ocupada,
    Recusada,
    Resposta,
    SemResposta,
)
from umavez_systems.fiscal.rules.catalogue import catalogo
from umavez_systems.fiscal.rules.decisions import decidir_consulta, decidir_emissao, decidir_evento
from umavez_systems.fiscal.rules.identifiers import UFS, digito
from umavez_systems.fiscal.wire import answers, schemas, signing
from umavez_systems.fiscal.wire.addresses import autorizador, modo_svc
from umavez_systems.fiscal.wire.certificate import Certificado, refuse_endless
from umavez_systems.fiscal.wire.nfe import NS
from umavez_systems.fiscal.wire.sefaz import Sefaz
from umavez_systems.problems import Problem

QUICK = settings(deadline=None, max_examples=60)
"""A loaded machine is no fault of the code."""
INF = f"{{{NS}}}infNFe"
WHEN = "2026-11-16T12:00:00-03:00"


def ato_de(made: Montado, tipo: Tipo = Tipo.NFE, tp_emis: str = "1") -> Ato:
    return Ato(Acao.EMITIR, made.id_idempotencia, made.xml, tipo, tp_emis, made.chave, made.digest)


@pytest.mark.parametrize("tipo", [Tipo.NFE, Tipo.NFCE])
def test_s4_12_a_note_is_valid_by_the_official_schema_and_its_signature_holds_by_an_independent_check(
    sefaz: Sefaz, tipo: Tipo
) -> None:
    made = sefaz.montar(numerado(tipo))
    assert schemas.faults("nfe", etree.fromstring(made.xml)) == []
    cert = signing.conferir(made.xml, INF)
    assert f":{CNPJ}" in cert.subject.rfc4514_string()


def test_s4_12_the_same_input_gives_the_same_bytes(sefaz: Sefaz) -> None:
    note = numerado()
    assert sefaz.montar(note) == sefaz.montar(note)


def test_s4_12_one_byte_changed_after_signing_is_noticed(sefaz: Sefaz) -> None:
    made = sefaz.montar(numerado())
    with pytest.raises(ValueError, match="mudado"):
        signing.conferir(made.xml.replace(b"Caneta", b"Boneca"), INF)
    other = made.xml.replace(b"<SignatureValue>", b"<SignatureValue>AAAA", 1)
    with pytest.raises(ValueError, match="confere"):
        signing.conferir(other, INF)


def test_s4_12_events_and_voidings_are_valid_with_letters_in_the_cnpj(sefaz: Sefaz) -> None:
    note = ato_de(sefaz.montar(numerado()))
    cancel = sefaz.montar_cancelamento(note, "135260000000001", "Pedido desfeito pelo cliente", WHEN)
    letter = sefaz.montar_correcao(note, "O endereco correto e Rua Dois, 2", 1, WHEN)
    voiding = sefaz.montar_inutilizacao(Tipo.NFE, "26", 1, 5, 9, "Numeros pulados por erro do sistema")
    for act, tag in ((cancel, "infEvento"), (letter, "infEvento"), (voiding, "infInut")):
        signing.conferir(act.xml, f"{{{NS}}}{tag}")
    assert cancel.nome == f"ID110111{note.chave}01"


OTHER = "35261112ABC34501DE3565001000000012140817263"


@pytest.mark.parametrize(
    ("written", "changed"),
    [
        ("<nProt>135260000000001</nProt>", "<nProt>1</nProt>"),
        ("<tpAutor>1</tpAutor>", ""),
        ("<tpAutor>1</tpAutor><verAplic>umavez</verAplic>", "<verAplic>umavez</verAplic><tpAutor>1</tpAutor>"),
        ("por substituicao", "por engano"),
        ("Pedido desfeito pelo cliente", "curta"),
        ("<chNFeRef>3526", "<chNFeRef>A526"),
        ('<detEvento versao="1.00">', '<detEvento versao="2.00">'),
        ("<chNFeRef>", "<chNFeRef><x/>"),
        ("<nSeqEvento>1</nSeqEvento>", "<nSeqEvento>0</nSeqEvento>"),
    ],
)
def test_s4_12_a_substitution_is_checked_by_the_layout_of_events_and_by_hand(
    sefaz: Sefaz, written: str, changed: str
) -> None:
    note = ato_de(sefaz.montar(numerado(Tipo.NFCE)), Tipo.NFCE)
    why = "Pedido desfeito pelo cliente"
    other = OTHER + digito(OTHER)
    text = sefaz.montar_cancelamento(note, "135260000000001", why, WHEN, other).xml.decode()
    assert schemas.faults("substituicao", etree.fromstring(text)) == []
    assert text.count(written) == 1
    assert schemas.faults("substituicao", etree.fromstring(text.replace(written, changed)))


def test_a_caller_overrides_taxes_field_by_field_and_totals_follow(sefaz: Sefaz) -> None:
    icms = {"orig": "0", "CST": "00", "modBC": "3", "vBC": Decimal("3.00"), "pICMS": "18.00", "vICMS": "0.54"}
    taxes = {"ICMS": {"ICMS00": icms}, "PIS": {"PISOutr": {"vPIS": "0.05"}}}
    item = Item("1", "Caneta", "96081000", "5102", "UN", Decimal(2), Decimal("1.50"), taxes)
    note = numerado()
    made = sefaz.montar(replace(note, pedido=replace(note.pedido, itens=(item,))))
    root = etree.fromstring(made.xml)
    said = {name: root.findtext(f".//{{{NS}}}ICMSTot/{{{NS}}}{name}") for name in ("vBC", "vICMS", "vPIS", "vNF")}
    assert said == {"vBC": "3.00", "vICMS": "0.54", "vPIS": "0.05", "vNF": "3.00"}
    assert root.find(f".//{{{NS}}}ICMSSN102") is None


@pytest.mark.parametrize(
    "taxes",
    [
        {"ICMS": {"ICMS77": {"a": "1"}}},
        {"PIS": {"PISOutr": {"CST": "xx"}}},
        {"X": "1"},
        {"PIS": {"PISOutr": {"vPIS": "NaN"}}},
        {"PIS": {"PISOutr": {"vPIS": ["1.00"]}}},
        {"PIS": {"PISOutr": {"vPIS": {"valor": "1.00"}}}},
        {"ICMS": {"ICMSSN102": {"orig": {"valor": "0"}}}},
    ],
)
def test_taxes_that_the_layout_does_not_have_are_a_problem_of_the_caller(sefaz: Sefaz, taxes: dict[str, Any]) -> None:
    item = Item("1", "Caneta", "96081000", "5102", "UN", Decimal(2), Decimal("1.50"), taxes)
    note = numerado()
    with pytest.raises(Problem) as refused:
        sefaz.montar(replace(note, pedido=replace(note.pedido, itens=(item,))))
    assert refused.value.status == 422


@pytest.mark.parametrize(
    ("taxes", "said"),
    [
        ({"vTotTrib": "0.310"}, "vTotTrib: o valor não tem a forma que o leiaute oficial pede."),
        (
            {"ICMS": {"ICMS00": {"orig": "0", "CST": "00"}}},
            "ICMS00: falta algo que o leiaute oficial exige (espera modBC).",
        ),
        (
            {"PISST": {"indSomaPISST": "1"}},
            "indSomaPISST: não é esperado aqui pelo leiaute oficial (espera vBC, qBCProd).",
        ),
        (
            {"IPI": {"cEnq": "9999", "IPINT": {"CST": "53"}}},
            "cEnq: o texto é mais longo do que o leiaute oficial aceita.",
        ),
    ],
)
def test_what_the_schema_refuses_is_said_in_portuguese_and_without_what_was_sent(
    sefaz: Sefaz, taxes: dict[str, Any], said: str
) -> None:
    item = Item("1", "Caneta", "96081000", "5102", "UN", Decimal(2), Decimal("1.50"), taxes)
    note = numerado()
    with pytest.raises(Problem) as refused:
        sefaz.montar(replace(note, pedido=replace(note.pedido, itens=(item,))))
    assert (refused.value.status, refused.value.name, refused.value.detail) == (422, "xml-invalido", said)


def test_the_qr_code_has_version_3_without_a_secret_and_2_with_one(sefaz: Sefaz, mundo: Mundo) -> None:
    online, offline = numerado(Tipo.NFCE), numerado(Tipo.NFCE, tp_emis="9")
    with_csc = mundo.sefaz(emitente=replace(EMITENTE, csc="0123456789", csc_id="000001"))
    for access, version in ((sefaz, "3"), (with_csc, "2")):
        for note in (online, offline):
            text = etree.fromstring(access.montar(note).xml).findtext(f".//{{{NS}}}qrCode") or ""
            assert text.partition("?p=")[2].split("|")[1] == version
    sealed = etree.fromstring(sefaz.montar(offline).xml).findtext(f".//{{{NS}}}qrCode").split("|")[-1]
    assert len(base64.b64decode(sealed)) == 256


def test_s4_13_emission_query_cancellation_and_voiding_run_over_mutual_tls(sefaz: Sefaz) -> None:
    made = sefaz.montar(numerado())
    note = ato_de(made)
    assert decidir_consulta(sefaz.consultar(note), note, catalogo(), "sefaz").desfecho is Desfecho.NAO_EXISTE
    answer = sefaz.transmitir(note)
    assert (answer.codigo, answer.chave, answer.dig_val) == ("100", made.chave, made.digest)
    assert sefaz.transmitir(note).codigo == "204"
    assert sefaz.consultar(note).codigo == "100"
    cancel = sefaz.montar_cancelamento(note, answer.protocolo or "", "Pedido desfeito pelo cliente", WHEN)
    assert sefaz.transmitir(cancel).codigo == "135"
    assert sefaz.transmitir(cancel).codigo == "573"
    asked = sefaz.consultar(note)
    assert (asked.codigo, [event.tipo for event in asked.eventos]) == ("101", ["110111"])
    voiding = sefaz.montar_inutilizacao(Tipo.NFE, "26", 899, 1, 2, "Numeros pulados por erro do sistema")
    assert [sefaz.transmitir(voiding).codigo for _ in range(2)] == ["102", "563"]
    assert sefaz.situacao().codigo == "107"


def test_s4_13_the_simulator_refuses_what_the_real_one_refuses(sefaz: Sefaz, mundo: Mundo) -> None:
    first = sefaz.montar(numerado())
    sefaz.transmitir(ato_de(first))
    number = int((first.chave or "")[25:34])
    other = sefaz.montar(numerado(numero=number))
    refused = sefaz.transmitir(ato_de(other))
    assert (refused.codigo, refused.outra_chave) == ("539", first.chave)
    assert sefaz.consultar(ato_de(other)).codigo in ("561", "562", "613")
    forged = ato_de(first)
    assert sefaz.transmitir(replace(forged, xml=forged.xml.replace(b"Caneta", b"Boneca"))).codigo == "297"
    assert sefaz.transmitir(replace(forged, xml=forged.xml.replace(b"<cProd>1</cProd>", b""))).codigo == "215"


def test_s4_13_more_than_ten_queries_of_a_key_in_an_hour_are_undue(sefaz: Sefaz) -> None:
    note = ato_de(sefaz.montar(numerado()))
    assert [sefaz.consultar(note).codigo for _ in range(11)] == ["217"] * 10 + ["656"]


def test_without_a_certificate_of_its_authority_nobody_is_served(mundo: Mundo, tmp_path: Any) -> None:
    from umavez_systems.fiscal.simulador.certificates import Cartorio
    from umavez_systems.fiscal.wire.addresses import Enderecos
    from umavez_systems.fiscal.wire.soap import Correio

    stranger = Certificado.lido(Cartorio(tmp_path).a1(CNPJ, "X", "s"), "s")
    access = Sefaz(
        EMITENTE, stranger, Enderecos("SP", "2", lambda: mundo.onde.servicos), Correio(stranger.tls(mundo.onde.ca_pem))
    )
    with pytest.raises(AutoridadeError):
        access.situacao()
    access.close()
    distrusting = Sefaz(
        EMITENTE, mundo.certificado, Enderecos("SP", "2", lambda: mundo.onde.servicos), Correio(mundo.certificado.tls())
    )
    with pytest.raises(NadaEnviado):
        distrusting.situacao()


FAULTS = {
    ("antes", "queda"): SemResposta,
    ("depois", "queda"): SemResposta,
    ("antes", "timeout"): SemResposta,
    ("depois", "timeout"): SemResposta,
    ("antes", "500"): SemResposta,
    ("depois", "500"): SemResposta,
    ("antes", "429"): Ocupada,
    ("antes", "lixo"): SemResposta,
    ("depois", "lixo"): SemResposta,
    ("antes", "meia"): SemResposta,
    ("depois", "meia"): SemResposta,
    ("antes", "proxy"): SemResposta,
    ("antes", "lento"): SemResposta,
    ("depois", "lento"): SemResposta,
}


@pytest.mark.parametrize(("quando", "tipo"), FAULTS)
def test_s4_13_every_fault_is_told_by_how_far_the_request_came(mundo: Mundo, quando: str, tipo: str) -> None:
    access = mundo.sefaz()
    note = ato_de(access.montar(numerado()))
    mundo.falhar("autorizacao", quando, tipo, segundos=0.8)
    with pytest.raises(AutoridadeError) as trouble:
        access.transmitir(note)
    assert type(trouble.value) is FAULTS[quando, tipo]
    if quando == "depois":
        assert mundo.sefaz(consulta=5.0).consultar(note).codigo == "100"


def test_a_port_where_nobody_listens_received_nothing(mundo: Mundo) -> None:
    from umavez_systems.fiscal.wire.addresses import Enderecos
    from umavez_systems.fiscal.wire.soap import Correio

    where = Enderecos("SP", "2", lambda: "https://127.0.0.1:1")
    access = Sefaz(EMITENTE, mundo.certificado, where, Correio(mundo.certificado.tls()))
    with pytest.raises(NadaEnviado):
        access.situacao()


def test_a_certificate_that_does_not_open_is_a_problem_without_the_password(mundo: Mundo) -> None:
    with pytest.raises(Problem) as refused:
        Certificado.lido(mundo.cartorio.a1(CNPJ, "X", "certa"), "hunter2")
    assert "hunter2" not in refused.value.detail
    assert mundo.certificado.cnpj == CNPJ
    assert "segredo" not in repr(mundo.certificado)


def test_a_certificate_that_would_take_minutes_to_open_is_refused_before(mundo: Mundo) -> None:
    """How often the password is hashed stands in the file: 2^31 - 1 times here, in a thread that nobody can stop."""
    with pytest.raises(Problem) as refused:
        refuse_endless(_hashed(mundo.pfx, 2**31 - 1), "segredo")
    assert refused.value.status == 422
    refuse_endless(mundo.pfx, "segredo")
    refuse_endless(mundo.pfx, "outra")
    refuse_endless(b"MII", "x")


def _hashed(pfx: bytes, times: int) -> bytes:
    """A PKCS#12 whose MAC says that its key was hashed so many times: its last element, and one element of that."""

    def parts(content: bytes) -> list[bytes]:
        found = []
        while content:
            start, size = 2, content[1]
            if size & 0x80:
                start, size = 2 + (size & 0x7F), int.from_bytes(content[2 : 2 + (size & 0x7F)])
            found.append(content[: start + size])
            content = content[start + size :]
        return found

    def inside(element: bytes) -> bytes:
        return element[2 + (element[1] & 0x7F if element[1] & 0x80 else 0) :]

    def sequence(*elements: bytes) -> bytes:
        content = b"".join(elements)
        return b"\x30\x83" + len(content).to_bytes(3) + content

    version, safe, mac = parts(inside(pfx))
    digest, salt, _ = parts(inside(mac))
    return sequence(version, safe, sequence(digest, salt, b"\x02\x04" + times.to_bytes(4)))


def envelope(inside: str) -> bytes:
    soap = "http://www.w3.org/2003/05/soap-envelope"
    return f'<s:Envelope xmlns:s="{soap}"><s:Body><nfeResultMsg>{inside}</nfeResultMsg></s:Body></s:Envelope>'.encode()


CHAVE = "35261112ABC34501DE35550010000000121408172630"
PROT = (
    f"<protNFe><infProt><chNFe>{CHAVE}</chNFe><nProt>1</nProt><digVal>d</digVal><cStat>100</cStat></infProt></protNFe>"
)
GOOD = envelope(f'<retEnviNFe xmlns="{NS}"><cStat>104</cStat><xMotivo>ok</xMotivo>{PROT}</retEnviNFe>')
EVENTS = (
    "<procEventoNFe><retEvento><infEvento><cStat>135</cStat><tpEvento>110110</tpEvento><nSeqEvento>1</nSeqEvento>"
    "</infEvento></retEvento></procEventoNFe>"
)
ATO = Ato(Acao.EMITIR, "id", b"<x/>", Tipo.NFE, chave=CHAVE, digest="d")
BOMB = (
    b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">'
    b'<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>'
)


def test_the_code_of_an_event_is_never_taken_for_the_notes_own() -> None:
    raw = envelope(f'<retConsSitNFe xmlns="{NS}">{EVENTS}<cStat>100</cStat><chNFe>{CHAVE}</chNFe></retConsSitNFe>')
    assert answers.consulta(raw).codigo == "100"
    with pytest.raises(SemResposta):
        answers.consulta(envelope(f'<retConsSitNFe xmlns="{NS}">{EVENTS}<chNFe>{CHAVE}</chNFe></retConsSitNFe>'))


@pytest.mark.parametrize("codigo", ["1022", "1118", "862", "813", "904"])
def test_a_refusal_about_ibs_and_cbs_has_four_digits_and_is_one(codigo: str) -> None:
    """Taken for silence, its note was sent again every hour and never became REJEITADO."""
    told = f"<cStat>{codigo}</cStat><xMotivo>Rejeição: Grupo IBS/CBS não informado [nItem: 1]</xMotivo>"
    prot = f"<protNFe><infProt><chNFe>{CHAVE}</chNFe>{told}</infProt></protNFe>"
    raw = envelope(f'<retEnviNFe xmlns="{NS}"><cStat>104</cStat><xMotivo>ok</xMotivo>{prot}</retEnviNFe>')
    decided = decidir_emissao(answers.autorizacao(raw), ATO, catalogo(), "sefaz")
    assert (decided.desfecho, decided.fonte != "catálogo") == (Desfecho.REJEITADO, True)


CANCEL = Ato(Acao.CANCELAR, f"ID110111{CHAVE}01", b"<x/>", Tipo.NFE, chave=CHAVE)
VOID = Ato(Acao.INUTILIZAR, "ID352612ABC34501DE3555001000000005000000009", b"<x/>", Tipo.NFE)


def _registered(tipo: str, sequence: str) -> bytes:
    about = f"<chNFe>{CHAVE}</chNFe><tpEvento>{tipo}</tpEvento><nSeqEvento>{sequence}</nSeqEvento><nProt>1</nProt>"
    inner = f"<retEvento><infEvento><cStat>135</cStat><xMotivo>ok</xMotivo>{about}</infEvento></retEvento>"
    return envelope(f'<retEnvEvento xmlns="{NS}"><cStat>128</cStat><xMotivo>ok</xMotivo>{inner}</retEnvEvento>')


def _voided(first: str, last: str, year: str = "26") -> bytes:
    about = f"<cUF>35</cUF><ano>{year}</ano><CNPJ>{CNPJ}</CNPJ><mod>55</mod><serie>1</serie>"
    about += f"<nNFIni>{first}</nNFIni><nNFFin>{last}</nNFFin><nProt>1</nProt>"
    inner = f"<infInut><cStat>102</cStat><xMotivo>ok</xMotivo>{about}</infInut>"
    return envelope(f'<retInutNFe xmlns="{NS}">{inner}</retInutNFe>')


@pytest.mark.parametrize(
    ("ato", "resposta", "desfecho"),
    [
        (CANCEL, answers.evento(_registered("110111", "1")), Desfecho.REGISTRADO),
        (CANCEL, answers.evento(_registered("110111", "01")), Desfecho.REGISTRADO),
        (CANCEL, answers.evento(_registered("110110", "1")), Desfecho.INDETERMINADO),
        (CANCEL, answers.evento(_registered("110111", "2")), Desfecho.INDETERMINADO),
        (VOID, answers.inutilizacao(_voided("5", "9")), Desfecho.INUTILIZADO),
        (VOID, answers.inutilizacao(_voided("5", "8")), Desfecho.INDETERMINADO),
        (VOID, answers.inutilizacao(_voided("5", "9", "25")), Desfecho.INDETERMINADO),
    ],
)
def test_an_answer_about_another_act_of_the_same_taxpayer_decides_nothing(
    ato: Ato, resposta: Resposta, desfecho: Desfecho
) -> None:
    """A correction letter's 135 would make a note CANCELADO."""
    assert decidir_evento(resposta, ato, catalogo(), "sefaz").desfecho is desfecho


@pytest.mark.parametrize(
    "kept",
    [
        "<cStat>100</cStat>",
        f"<chNFe>{CHAVE}</chNFe><cStat>100</cStat>",
        f"<chNFe>{CHAVE}</chNFe><digVal>d</digVal><cStat>100</cStat>",
        "<nProt>1</nProt><digVal>d</digVal><cStat>100</cStat>",
    ],
)
def test_half_an_authorisation_is_asked_for_and_not_believed(kept: str) -> None:
    """Without its protocol nobody could cancel it, and without its key it may be anybody's."""
    prot = f"<protNFe><infProt>{kept}</infProt></protNFe>"
    raw = envelope(f'<retEnviNFe xmlns="{NS}"><cStat>104</cStat><xMotivo>ok</xMotivo>{prot}</retEnviNFe>')
    bare = envelope(f'<retEnviNFe xmlns="{NS}"><cStat>100</cStat><xMotivo>ok</xMotivo></retEnviNFe>')
    for half in (raw, bare):
        decided = decidir_emissao(answers.autorizacao(half), ATO, catalogo(), "sefaz")
        assert decided.desfecho is Desfecho.INDETERMINADO
    assert decidir_emissao(answers.autorizacao(GOOD), ATO, catalogo(), "sefaz").desfecho is Desfecho.AUTORIZADO


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00",
        b"<html/>",
        GOOD[: len(GOOD) // 2],
        BOMB + GOOD,
        b'<!DOCTYPE x SYSTEM "file:///etc/passwd">' + GOOD,
        GOOD.replace(NS.encode(), b"http://example.com/nfe"),
        GOOD.replace(b"2003/05/soap-envelope", b"x"),
        GOOD.replace(b"<cStat>104</cStat>", b"<cStat>1\xd9\xa104</cStat>"),
        GOOD.replace(b"<cStat>104</cStat>", b"<cStat>104</cStat><cStat>100</cStat>"),
        envelope(f'<retEnviNFe xmlns="{NS}"/>' * 2),
        b" " * 50_000_000,
    ],
    ids=["empty", "nul", "html", "half", "bomb", "dtd", "namespace", "soap", "digits", "two", "twice", "50MB"],
)
def test_a_reply_that_is_not_one_says_nothing(raw: bytes) -> None:
    with pytest.raises(SemResposta):
        answers.autorizacao(raw)


def test_an_envelope_that_contradicts_its_content_is_undetermined() -> None:
    answer = answers.autorizacao(GOOD.replace(b"<cStat>104</cStat>", b"<cStat>225</cStat>"))
    assert decidir_emissao(answer, ATO, catalogo(), "sefaz").desfecho is Desfecho.INDETERMINADO


@QUICK
@given(st.integers(0, 2**32), st.integers(1, 8))
def test_a_mangled_reply_never_crashes_and_never_authorises_another_note(seed: int, changes: int) -> None:
    chance = random.Random(seed)
    raw = bytearray(GOOD)
    for _ in range(changes):
        place = chance.randrange(len(raw))
        match chance.randrange(4):
            case 0:
                raw[place] = chance.randrange(256)
            case 1:
                del raw[place : place + chance.randrange(1, 40)]
            case 2:
                raw[place:place] = raw[: chance.randrange(60)]
            case _:
                raw[place:place] = bytes(chance.randrange(256) for _ in range(3))
    try:
        answer: Resposta = answers.autorizacao(bytes(raw))
    except SemResposta:
        return
    decided = decidir_emissao(answer, ATO, catalogo(), "sefaz")
    if decided.desfecho is Desfecho.AUTORIZADO:
        assert answer.chave in (CHAVE, None)
        assert answer.dig_val in ("d", None)


@QUICK
@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    for read in (answers.autorizacao, answers.consulta, answers.evento, answers.inutilizacao, answers.status):
        with pytest.raises(SemResposta):
            read(raw)


def test_an_order_without_buyer_is_for_the_counter_only(sefaz: Sefaz) -> None:
    note = numerado()
    with pytest.raises(Problem):
        sefaz.montar(replace(note, pedido=replace(pedido(), destinatario=None)))
    counter = numerado(Tipo.NFCE)
    sefaz.montar(replace(counter, pedido=replace(counter.pedido, destinatario=None)))


@pytest.mark.parametrize(("tipo", "place"), [(Tipo.NFE, "2"), (Tipo.NFCE, "1")])
def test_an_nfce_stays_in_its_state_wherever_the_buyer_lives(sefaz: Sefaz, tipo: Tipo, place: str) -> None:
    note, where = numerado(tipo), replace(ENDERECO, uf="RJ", codigo_municipio="3304557", municipio="Rio de Janeiro")
    buyer = Destinatario("Maria Souza", cpf="52998224725", endereco=where)
    made = sefaz.montar(replace(note, pedido=replace(note.pedido, destinatario=buyer)))
    assert etree.fromstring(made.xml).findtext(f".//{{{NS}}}idDest") == place


def test_who_authorises_follows_the_state_and_the_mode() -> None:
    """As the national portal lists them: SVAN is left with MA alone."""
    assert {uf for uf in UFS if autorizador(uf, "1") == "SVAN"} == {"MA"}
    assert [autorizador(uf, "1") for uf in ("PA", "RJ", "SP")] == ["SVRS", "SVRS", "SP"]
    assert [autorizador(uf, modo_svc(uf)) for uf in ("MA", "PA", "SP")] == ["SVC-RS", "SVC-AN", "SVC-AN"]


def test_a_refused_certificate_is_final() -> None:
    from umavez_systems.fiscal.wire.soap import _refuse_status
    from umavez_systems.outgoing.connections import Answer

    for status, kind in ((403, Recusada), (404, Recusada), (301, Recusada), (202, SemResposta), (503, SemResposta)):
        with pytest.raises(kind):
            _refuse_status(Answer(status, {}, b""))
    with pytest.raises(Ocupada) as busy:
        _refuse_status(Answer(429, {"retry-after": "17"}, b""))
    assert busy.value.retry_after == 17
