"""TISS messages: written with their hash, read within bounds, and believed only when they add up."""

from __future__ import annotations

import hashlib
import random
import re
import sys
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape, unescape

import pytest
from httpx import Client
from lxml import etree  # type: ignore[import-untyped]  # ships no type information

from tests.umavez_systems.processos.conftest import claim
from umavez_systems.processos.contas.domain import Tipo, demonstrativo_of
from umavez_systems.processos.domain import lote_of
from umavez_systems.processos.tiss.lote import lote_message
from umavez_systems.processos.tiss.xml import DEEPEST, LARGEST, MOST, NAMESPACE, InvalidMessage, message, parsed

WHEN = datetime(2026, 11, 16, 12, 30, 5, tzinfo=UTC)
ENDS: Any = (("registroANS", "326305"), ("identificacaoPrestador", [("codigoPrestadorNaOperadora", "2077469")]))


def glosa(codigo: str, valor: str) -> Any:
    return ("relacaoGlosa", [("valorGlosa", valor), ("tipoGlosa", codigo)])


def guia(number: str, informado: str, liberado: str, *glosas: Any, item: str = "1") -> Any:
    details = [("sequencialItem", item), ("valorInformado", informado), ("valorLiberado", liberado), *glosas]
    return ("relacaoGuias", [("numeroGuiaPrestador", number), ("detalhesGuia", details)])


def statement(*guias: Any, informado: str, liberado: str, day: str = "2026-11-01", operadora: str = "326305") -> bytes:
    head = (
        "cabecalhoDemonstrativo",
        [("registroANS", operadora), ("numeroDemonstrativo", "D-1"), ("dataEmissao", day)],
    )
    totals = [("valorInformadoProtocolo", informado), ("valorLiberadoProtocolo", liberado)]
    account = ("dadosConta", [("dadosProtocolo", [("numeroProtocolo", "CLM-000001"), *guias, *totals])])
    body = ("operadoraParaPrestador", [("demonstrativosRetorno", [("demonstrativoAnaliseConta", [head, account])])])
    return message("DEMONSTRATIVO_ANALISE_CONTA", "1", WHEN, ENDS, body)


GOOD = (guia("G-1", "150.00", "100.00", glosa("1801", "30.00"), glosa("2607", "20.00")), guia("G-2", "10.10", "10.10"))


def good() -> bytes:
    return statement(*GOOD, informado="160.10", liberado="110.10")


def test_a_lote_is_written_with_the_hash_of_its_leaves() -> None:
    xml = lote_message(lote_of(claim(numeroGuiaPrestador="G-9")), WHEN)
    root = etree.fromstring(xml)
    leaves = [node for node in root.iter() if not len(node)]
    texts = [node.text or "" for node in leaves if not node.tag.endswith("}hash")]

    assert root.tag == f"{{{NAMESPACE}}}mensagemTISS"
    assert leaves[-1].text == hashlib.md5("".join(texts).encode(), usedforsecurity=False).hexdigest()
    assert root.findtext(".//{*}numeroGuiaPrestador") == "G-9"
    assert root.findtext(".//{*}guiaSP-SADT/{*}valorTotal/{*}valorTotalGeral") == "150.00"
    assert parsed(xml).one("prestadorParaOperadora/loteGuias").leaf("numeroLote") == "L-1"
    assert b"Maria" not in xml


def test_a_message_is_dated_as_in_brasilia() -> None:
    late = datetime(2026, 11, 17, 1, 30, 5, tzinfo=UTC)
    root = etree.fromstring(lote_message(lote_of(claim()), late))
    told = [root.findtext(f".//{{*}}{name}RegistroTransacao") for name in ("data", "hora")]
    assert told == ["2026-11-16", "22:30:05"]


def test_what_is_written_is_read_whatever_letters_are_in_it() -> None:
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    chance = random.Random(seed)
    for _ in range(200):
        text = "x" + "".join(chance.choice("aé<>&\"'€ção日]]>😀") for _ in range(chance.randrange(30)))
        found = parsed(message("T", "1", WHEN, ENDS, ("corpo", [("texto", text)])))
        assert found.leaf("corpo/texto") == text


def test_a_demonstrativo_gives_its_values_and_its_glosas_by_item() -> None:
    found = demonstrativo_of(good())

    assert (found.tipo, found.operadora, found.protocolo, found.numero) == (
        Tipo.ANALISE, "326305", "CLM-000001", "D-1",
    )  # fmt: skip
    assert [(glosa.guia, glosa.item, glosa.codigo, str(glosa.valor)) for glosa in found.glosas] == [
        ("G-1", 1, "1801", "30.00"),
        ("G-1", 1, "2607", "20.00"),
    ]
    assert (str(found.informado), str(found.liberado), str(found.glosado)) == ("160.10", "110.10", "50.00")


@pytest.mark.parametrize(
    ("xml", "why"),
    [
        (statement(*GOOD, informado="160.10", liberado="110.11"), "soma"),
        (statement(guia("G-1", "150.00", "100.00"), informado="150.00", liberado="100.00"), "não fecha"),
        (statement(GOOD[0], GOOD[0], informado="300.00", liberado="200.00"), "repete um item"),
        (
            statement(
                guia("G", "3.00", "1.00", glosa("1801", "1.00"), glosa("1801", "1.00")),
                informado="3.00",
                liberado="1.00",
            ),
            "repete uma glosa",
        ),
        (statement(guia("G", "1.00", "0.00", glosa("x801", "1.00")), informado="1.00", liberado="0.00"), "4 dígitos"),
        (statement(guia("G", "1.001", "1.001"), informado="1.001", liberado="1.001"), "valor em reais"),
        (statement(guia("G", "-1.00", "-1.00"), informado="-1.00", liberado="-1.00"), "valor em reais"),
        (statement(guia("G", "1e2", "1e2"), informado="1e2", liberado="1e2"), "valor em reais"),
        (statement(guia("G", "1.00", "1.00", item="²"), informado="1.00", liberado="1.00"), "dígitos"),
        (statement(informado="0.00", liberado="0.00"), "itens"),
        (statement(*GOOD, informado="160.10", liberado="110.10", day="2026-W01-1"), "data"),
        (statement(*GOOD, informado="160.10", liberado="110.10", day="9999-12-31"), "data"),
        (statement(*GOOD, informado="160.10", liberado="110.10", operadora="32630x"), "6 dígitos"),
        (good().replace(b"30.00", b"40.00").replace(b"20.00", b"10.00"), "hash"),
        (good().replace(b"mensagemTISS", b"outraCoisa"), "mensagemTISS"),
        (good().replace(NAMESPACE.encode(), b"urn:outro"), "mensagemTISS"),
        (good()[:-20], "bem formado"),
        (b"", "bem formado"),
        (b"\0", "bem formado"),
        (good().replace(b"ISO-8859-1", b"nenhuma"), "bem formado"),
        (b"<a/>" + b" " * LARGEST, "bytes"),
        (b"<a>" * (DEEPEST + 1), "níveis"),
        (b"<a>" + b"<b/>" * (MOST + 1), "elementos"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "DOCTYPE"),
        (b'<!DOCTYPE a SYSTEM "http://127.0.0.1:1/x"><a/>', "DOCTYPE"),
        (b"<a>&b;</a>", "bem formado"),
    ],
)
def test_a_message_that_is_wrong_is_refused_and_says_why(xml: bytes, why: str) -> None:
    with pytest.raises(InvalidMessage, match=why):
        demonstrativo_of(xml)


LATIN, MORE = "Operadora São João & irmãos", "Operadora São João – “irmãos” €"
BOM = b"\xef\xbb\xbf"


def told(text: str, declared: str | None, written: str, hashed: str = "utf-8", before: bytes = b"") -> bytes:
    """A demonstrativo with this text in a leaf that nobody reads, declared, written and hashed in these encodings."""
    whole = good().decode("ascii").partition("?>\n")[2]
    whole = whole.replace(
        "<ans:dataEmissao>", f"<ans:nomeOperadora>{escape(text)}</ans:nomeOperadora><ans:dataEmissao>"
    )
    leaves = re.findall(r"<ans:(?!hash)[A-Za-z]+>([^<]+)</ans:", whole)
    mark = hashlib.md5("".join(map(unescape, leaves)).encode(hashed), usedforsecurity=False).hexdigest()
    whole = re.sub("<ans:hash>[^<]*", f"<ans:hash>{mark}", whole)
    start = "" if declared is None else f'<?xml version="1.0" encoding="{declared}"?>'
    return before + (start + whole).encode(written)


@pytest.mark.parametrize(
    "xml",
    [
        told(MORE, "UTF-8", "utf-8"),
        told(MORE, None, "utf-8"),
        told(MORE, "UTF-8", "utf-8", before=BOM),
        told(MORE, None, "utf-8", before=BOM),
        told(MORE, "utf8", "utf-8"),
        told(MORE, "UTF-16", "utf-16"),
        told(LATIN, "ISO-8859-1", "iso-8859-1"),
        told(MORE, "windows-1252", "windows-1252"),
        # The hash over the bytes of the files, as some payers write it.
        told(LATIN, "ISO-8859-1", "iso-8859-1", "iso-8859-1"),
        told(LATIN, "UTF-8", "utf-8", "iso-8859-1"),
        told(MORE, "windows-1252", "windows-1252", "windows-1252"),
    ],
)
def test_a_demonstrativo_with_accents_is_read_in_the_encoding_it_declares(xml: bytes) -> None:
    assert demonstrativo_of(xml) == demonstrativo_of(good())


@pytest.mark.parametrize(
    "xml",
    [
        told(LATIN, "UTF-8", "iso-8859-1"),
        told(LATIN, None, "windows-1252"),
        told(LATIN, "ISO-8859-1", "utf-8"),
        told(LATIN, "windows-1252", "utf-8"),
        told(LATIN, "ISO-8859-1", "utf-8", before=BOM),
        told(LATIN, "US-ASCII", "utf-8"),
        told(LATIN, "nenhuma", "utf-8"),
        told(LATIN, "rot13", "utf-8"),
        told(LATIN, "UTF-8", "utf-8").replace("São".encode(), b"Sao"),
        told(LATIN, "ISO-8859-1", "iso-8859-1", "iso-8859-1").replace("São".encode("iso-8859-1"), b"Sao"),
    ],
)
def test_a_demonstrativo_in_another_encoding_than_it_declares_is_refused_and_says_so(
    client: Client, xml: bytes
) -> None:
    place = {"processInstanceId": "i-1", "activityId": "Task_Demonstrativo"}
    headers = {"Content-Type": "application/xml"}
    refused = client.post("/api/v1/import_statement", params=place, content=xml, headers=headers)

    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")
    assert "na codificação que declara" in refused.json()["detail"]


def test_entities_that_grow_are_refused_before_they_do() -> None:
    rows = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    with pytest.raises(InvalidMessage, match="DOCTYPE"):
        parsed(f'<!DOCTYPE a [<!ENTITY e0 "x">{rows}]><a>&e9;</a>'.encode())


def test_random_bytes_and_broken_messages_never_end_in_another_error() -> None:
    seed = random.randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    chance = random.Random(seed)
    whole = good()
    for _ in range(500):
        broken = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        try:
            demonstrativo_of(bytes(broken))
        except InvalidMessage:
            continue
        # What is still read says the same: a changed byte outside of the leaves' texts, as in a comment or a blank.
        assert demonstrativo_of(bytes(broken)) == demonstrativo_of(whole)


def test_a_lote_over_http_is_xml_and_a_bad_one_a_problem(client: Client) -> None:
    made = client.post("/api/v1/tiss/lote", json={"claimData": claim()})
    bad = client.post("/api/v1/tiss/lote", json={"claimData": claim(procedimento="1")})

    assert (made.status_code, made.headers["content-type"]) == (200, "application/xml")
    assert parsed(made.content).one("prestadorParaOperadora/loteGuias").leaf("numeroLote") == "L-1"
    assert re.search("ISO-8859-1", made.text)
    assert (bad.status_code, bad.headers["content-type"]) == (422, "application/problem+json")
