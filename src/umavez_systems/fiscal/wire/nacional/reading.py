"""What SEFIN Nacional answers, read without believing its published form: both spellings, lists and objects, proxies.

A refusal counts only when it names a code of SEFIN's own; a success only when it brings the key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from umavez import BoundedJson
from umavez_systems.fiscal.ports import Evento, Resposta, SemResposta
from umavez_systems.fiscal.rules.identifiers import chave_nfse, id_de_dps
from umavez_systems.fiscal.wire.answers import LARGEST, tree_of
from umavez_systems.fiscal.wire.nacional.dps import NS
from umavez_systems.fiscal.wire.nacional.packing import desembalar
from umavez_systems.fiscal.wire.signing import DS

_JSON = BoundedJson(size=LARGEST)
_CODE = re.compile(r"^E[0-9]{4}\Z", re.ASCII)
MOST = 50
"""Errors or events of one answer that are read."""
DECIDING = ("E0014", "E0840")
"""Codes that decide even when others stand beside them."""


@dataclass(frozen=True, slots=True)
class Nota:
    """What an NFS-e says about itself and about the DPS that it was made from."""

    chave: str
    dps: str | None
    digest: str | None
    numero: str | None
    quando: str | None
    xml: str


def objeto(raw: bytes) -> dict[str, Any]:
    """The JSON object of an answer. Raises SemResposta."""
    try:
        found = _JSON.parse(raw)
    except ValueError:
        raise SemResposta("A resposta não é JSON.", raw) from None
    if not isinstance(found, dict):
        raise SemResposta("A resposta não é um objeto.", raw)
    return found


def campo(data: Any, name: str) -> Any:
    """A member by its name in either spelling; None when it is missing or there are two."""
    if not isinstance(data, dict):
        return None
    found = [value for key, value in data.items() if key.lower() == name.lower()]
    return found[0] if len(found) == 1 else None


def erros(data: dict[str, Any]) -> list[tuple[str, str]]:
    """The errors that carry a code of SEFIN's own; a proxy's words are none."""
    found: list[tuple[str, str]] = []
    for name in ("erros", "erro"):
        told = campo(data, name)
        for entry in (told if isinstance(told, list) else [told])[:MOST]:
            code = campo(entry, "codigo")
            if isinstance(code, str) and _CODE.match(code.strip().upper()):
                parts = (campo(entry, "descricao"), campo(entry, "complemento"))
                found.append((code.strip().upper(), " ".join(part for part in parts if isinstance(part, str))[:500]))
    return found


def recusa(servico: str, raw: bytes) -> Resposta:
    """A refusal. Raises SemResposta unless it is SEFIN's own."""
    found = erros(objeto(raw))
    if not found:
        raise SemResposta("A recusa não traz código da SEFIN; pode ser de um intermediário.", raw)
    code, reason = next((one for one in found if one[0] in DECIDING), found[0])
    return Resposta(servico, code, reason, raw)


def autorizacao(status: int, raw: bytes) -> Resposta:
    """The answer to POST /nfse."""
    if status == 409:
        return Resposta("autorizacao", "409", "Já processada.", raw)
    if status >= 400:
        return recusa("autorizacao", raw)
    data = objeto(raw)
    chave, packed = campo(data, "chaveAcesso"), campo(data, "nfseXmlGZipB64")
    if not chave_nfse(chave):
        raise SemResposta("A resposta não traz a chave da nota.", raw)
    note = None if not packed else nota(desembalar(packed))
    if note is not None and note.chave != chave:
        raise SemResposta("A chave e a nota da resposta não são da mesma.", raw)
    named = campo(data, "idDps")
    return Resposta(
        "autorizacao",
        "201",
        "NFS-e gerada.",
        raw,
        chave=chave,
        protocolo=None if note is None else note.numero,
        dig_val=None if note is None else note.digest,
        quando=None if note is None else note.quando,
        sobre=(None if note is None else note.dps) or (id_de_dps(named) if isinstance(named, str) else None),
        documento=None if note is None else note.xml,
    )


def registro(status: int, raw: bytes, chave: str) -> Resposta:
    """The answer to POST /nfse/{chave}/eventos."""
    if status >= 400:
        return recusa("evento", raw)
    event = evento(desembalar(campo(objeto(raw), "eventoXmlGZipB64")), chave)
    return Resposta(
        "evento", "201", "Evento registrado.", raw, chave=chave, protocolo=event.protocolo, eventos=(event,)
    )


def eventos(raw: bytes, chave: str) -> list[Evento]:
    """The events in an answer to GET …/eventos/{tipo}/{seq}, in either of the forms that are known."""
    data = objeto(raw)
    single, many = campo(data, "eventoXmlGZipB64"), campo(data, "eventos")
    entries = [campo(entry, "arquivoXml") for entry in many[:MOST]] if isinstance(many, list) else []
    if isinstance(single, str):
        entries.append(single)
    if not entries:
        raise SemResposta("A resposta não traz o evento.", raw)
    return [evento(desembalar(entry), chave) for entry in entries]


def nota(xml: bytes) -> Nota:
    """An NFS-e. Raises SemResposta when it has no key where that belongs."""
    root = tree_of(xml)
    info = root.find(_q("infNFSe"))
    identity = "" if info is None else info.get("Id") or ""
    if not chave_nfse(identity[3:]) or not identity.startswith("NFS"):
        raise SemResposta("O documento da resposta não é uma NFS-e.", xml[:1000])
    dps = info.find(_q("DPS"))
    named = None if dps is None else dps.find(_q("infDPS"))
    signed = None if dps is None else dps.find(f"{{{DS}}}Signature/{{{DS}}}SignedInfo/{{{DS}}}Reference")
    digest = None if signed is None else signed.findtext(f"{{{DS}}}DigestValue")
    return Nota(
        identity[3:],
        None if named is None else id_de_dps(named.get("Id") or ""),
        None if digest is None else digest.strip()[:60] or None,
        (info.findtext(_q("nNFSe")) or "").strip()[:20] or None,
        info.findtext(_q("dhProc")),
        xml.decode("utf-8", "replace"),
    )


def evento(xml: bytes, chave: str) -> Evento:
    """A registered event about `chave`. Raises SemResposta for any other."""
    info = tree_of(xml).find(_q("infEvento"))
    asked = None if info is None else info.find(f"{_q('pedRegEvento')}/{_q('infPedReg')}")
    if asked is None or asked.findtext(_q("chNFSe")) != chave:
        raise SemResposta("O evento da resposta não é desta nota.", xml[:1000])
    for detail in asked:
        found = re.match(r"^e([0-9]{6})\Z", str(detail.tag).rpartition("}")[2], re.ASCII)
        if found is not None:
            number, told = info.findtext(_q("nDFSe")), detail.findtext(_q("xMotivo"))
            return Evento(found.group(1), 1, "registrado", number, told, info.findtext(_q("dhProc")))
    raise SemResposta("O evento da resposta não diz o que é.", xml[:1000])


def _q(name: str) -> str:
    return f"{{{NS}}}{name}"
