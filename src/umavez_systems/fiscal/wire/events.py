"""Events, voidings and questions: the small requests, written in the order of their schemas. Nothing here sends."""

from __future__ import annotations

from typing import Any

from lxml import etree  # type: ignore[import-untyped]  # ships no type information

from umavez_systems.fiscal.wire.nfe import NS

CANCELAMENTO = "110111"
SUBSTITUICAO = "110112"
CORRECAO = "110110"
EPEC = "110140"
NATIONAL = "91"
"""The national environment, which takes EPEC whoever the state is."""
CONDICOES = (
    "A Carta de Correcao e disciplinada pelo paragrafo 1o-A do art. 7o do Convenio S/N, de 15 de dezembro de 1970 e"
    " pode ser utilizada para regularizacao de erro ocorrido na emissao de documento fiscal, desde que o erro nao"
    " esteja relacionado com: I - as variaveis que determinam o valor do imposto tais como: base de calculo, aliquota,"
    " diferenca de preco, quantidade, valor da operacao ou da prestacao; II - a correcao de dados cadastrais que"
    " implique mudanca do remetente ou do destinatario; III - a data de emissao ou de saida."
)
"""The law's own words; the schema takes no others."""


def _element(tag: str, *parts: Any, **attributes: str) -> Any:
    made = etree.Element(f"{{{NS}}}{tag}", nsmap={None: NS}, **attributes)
    for part in parts:
        made.append(part)
    return made


def _texts(**texts: str) -> list[Any]:
    made = []
    for name, text in texts.items():
        element = _element(name)
        element.text = text
        made.append(element)
    return made


def evento(
    identity: str, orgao: str, ambiente: str, cnpj: str, chave: str, quando: str, tipo: str, sequencia: int, detail: Any
) -> Any:
    """An unsigned event about a key."""
    inside = _texts(
        cOrgao=orgao,
        tpAmb=ambiente,
        CNPJ=cnpj,
        chNFe=chave,
        dhEvento=quando,
        tpEvento=tipo,
        nSeqEvento=str(sequencia),
        verEvento="1.00",
    )
    return _element("evento", _element("infEvento", *inside, detail, Id=identity), versao="1.00")


def cancelamento(protocolo: str, justificativa: str) -> Any:
    """What a cancellation says."""
    return _element(
        "detEvento", *_texts(descEvento="Cancelamento", nProt=protocolo, xJust=justificativa), versao="1.00"
    )


def substituicao(orgao: str, protocolo: str, justificativa: str, substituta: str) -> Any:
    """What a cancellation by substitution says (NFC-e whose other mode was authorised instead)."""
    texts = _texts(
        descEvento="Cancelamento por substituicao",
        cOrgaoAutor=orgao,
        tpAutor="1",
        verAplic="umavez",
        nProt=protocolo,
        xJust=justificativa,
        chNFeRef=substituta,
    )
    return _element("detEvento", *texts, versao="1.00")


def correcao(texto: str) -> Any:
    """What a correction letter says."""
    texts = _texts(descEvento="Carta de Correcao", xCorrecao=texto, xCondUso=CONDICOES)
    return _element("detEvento", *texts, versao="1.00")


def epec(signed: Any, orgao: str) -> Any:
    """What an EPEC says: the note's summary, taken from the note itself."""

    def text(path: str) -> str:
        found = signed.find(".//" + "/".join(f"{{{NS}}}{name}" for name in path.split("/")))
        return "" if found is None else found.text or ""

    buyer = "CNPJ" if text("dest/CNPJ") else "CPF"
    dest = _element(
        "dest",
        *_texts(
            **{"UF": text("dest/enderDest/UF") or text("emit/enderEmit/UF"), buyer: text(f"dest/{buyer}")},
            vNF=text("ICMSTot/vNF"),
            vICMS=text("ICMSTot/vICMS"),
            vST=text("ICMSTot/vST"),
        ),
    )
    texts = _texts(
        descEvento="EPEC",
        cOrgaoAutor=orgao,
        tpAutor="1",
        verAplic="umavez",
        dhEmi=text("ide/dhEmi"),
        tpNF="1",
        IE=text("emit/IE"),
    )
    return _element("detEvento", *texts, dest, versao="1.00")


def inutilizacao(
    identity: str, cuf: str, ambiente: str, ano: str, cnpj: str, mod: str, faixa: tuple[int, int, int], why: str
) -> Any:
    """An unsigned voiding of (series, first, last)."""
    serie, primeiro, ultimo = faixa
    inside = _texts(
        tpAmb=ambiente,
        xServ="INUTILIZAR",
        cUF=cuf,
        ano=ano,
        CNPJ=cnpj,
        mod=mod,
        serie=str(serie),
        nNFIni=str(primeiro),
        nNFFin=str(ultimo),
        xJust=why,
    )
    return _element("inutNFe", _element("infInut", *inside, Id=identity), versao="4.00")


def consulta(ambiente: str, chave: str) -> bytes:
    """The question about a key's situation."""
    return _bytes(_element("consSitNFe", *_texts(tpAmb=ambiente, xServ="CONSULTAR", chNFe=chave), versao="4.00"))


def status(ambiente: str, cuf: str) -> bytes:
    """The question whether the service is up."""
    return _bytes(_element("consStatServ", *_texts(tpAmb=ambiente, cUF=cuf, xServ="STATUS"), versao="4.00"))


def lote_nfe(xml: bytes, numero: int) -> bytes:
    """A synchronous batch around one signed note, whose bytes are left as they are."""
    head = f'<enviNFe xmlns="{NS}" versao="4.00"><idLote>{numero}</idLote><indSinc>1</indSinc>'
    return head.encode() + xml + b"</enviNFe>"


def lote_evento(xml: bytes) -> bytes:
    """A batch around one signed event."""
    return f'<envEvento xmlns="{NS}" versao="1.00"><idLote>1</idLote>'.encode() + xml + b"</envEvento>"


def _bytes(tree: Any) -> bytes:
    made: bytes = etree.tostring(tree)
    return made
