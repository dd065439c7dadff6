"""What São Paulo answers: SOAP around escaped XML, bounded, and a code counts only where it belongs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from umavez_systems.fiscal.ports import Resposta, SemResposta
from umavez_systems.fiscal.rules.identifiers import id_idempotencia_sp
from umavez_systems.fiscal.wire.answers import tree_of
from umavez_systems.fiscal.wire.paulistana.rps import MOST, NS, digest_de
from umavez_systems.problems import Problem

_CODE = re.compile(r"^[0-9]{3,4}\Z", re.ASCII)
_NUMBER = re.compile(r"^[0-9]{1,12}\Z", re.ASCII)
REISSUED, CONVERTED, NOT_FOUND = "217", "216", "1106"


@dataclass(frozen=True, slots=True)
class Nota:
    """A note as the city tells it; `sobre` is the seed's identifier of its RPS. `situacao`: N, C, or what no table of
    ours has: layout 2 knows E (extraviada), which is a note all the same."""

    chave: str
    numero: str
    sobre: str | None
    situacao: str
    digest: str | None = None
    quando: str | None = None


@dataclass(frozen=True, slots=True)
class Retorno:
    """An answer: whether it succeeded, its errors and alerts as (code, words), and the notes that it names."""

    sucesso: bool
    erros: tuple[tuple[str, str], ...]
    alertas: tuple[tuple[str, str], ...]
    notas: tuple[Nota, ...]
    bruto: bytes
    nomeados: tuple[tuple[str, str, str, str], ...] = ()
    """The errors and alerts that name their RPS: tag, name, code, words."""


def retorno(raw: bytes, tag: str) -> Retorno:
    """The layout's answer `tag` inside a SOAP reply. Raises SemResposta for anything else."""
    told = [part for part in tree_of(raw).iter() if str(part.tag).rpartition("}")[2] == "RetornoXML"]
    if len(told) != 1 or not told[0].text:
        raise SemResposta("A resposta não traz RetornoXML.", raw)
    root = tree_of(told[0].text.encode())
    if root.tag != f"{{{NS}}}{tag}":
        raise SemResposta(f"A resposta não traz {tag}.", raw)
    said = root.findtext("Cabecalho/Sucesso")
    if said not in ("true", "false"):
        raise SemResposta("A resposta não diz se houve sucesso.", raw)
    issued, shown = root.findall("ChaveNFeRPS")[:MOST], root.findall("NFe")[:MOST]
    found = (*map(_issued, issued), *map(_told, shown))
    if None in found:
        # Passed over, it would be an absence: of the note that is asked for, or of the rest of its page.
        raise SemResposta("A resposta traz uma nota que não pôde ser lida.", raw)
    named = (*_named(root, "Erro"), *_named(root, "Alerta"))
    notes = tuple(note for note in found if note is not None)
    return Retorno(said == "true", _said(root, "Erro"), _said(root, "Alerta"), notes, raw, named)


def _said(root: Any, tag: str) -> tuple[tuple[str, str], ...]:
    found = []
    for part in root.findall(tag)[:MOST]:
        code = (part.findtext("Codigo") or "").strip()
        if _CODE.match(code):
            found.append((code, (part.findtext("Descricao") or "").strip()[:500]))
    return tuple(found)


def _named(root: Any, tag: str) -> Iterator[tuple[str, str, str, str]]:
    for part in root.findall(tag)[:MOST]:
        code, name = (part.findtext("Codigo") or "").strip(), _rps_key(part.find("ChaveRPS"))
        if _CODE.match(code) and name is not None:
            yield tag, name, code, (part.findtext("Descricao") or "").strip()[:500]


def _issued(part: Any) -> Nota | None:
    chave, number = _note_key(part.find("ChaveNFe"))
    return None if chave is None else Nota(chave, number, _rps_key(part.find("ChaveRPS")), "N")


def _told(part: Any) -> Nota | None:
    chave, number = _note_key(part.find("ChaveNFe"))
    situation = (part.findtext("StatusNFe") or "").strip()[:20]
    if chave is None or not situation:
        return None
    day, price = part.findtext("DataEmissaoRPS") or "", part.findtext("ValorServicos") or ""
    try:
        digest = digest_de(day[:10], Decimal(price)) if day and len(price) < 20 else None
    except InvalidOperation:
        digest = None
    return Nota(chave, number, _rps_key(part.find("ChaveRPS")), situation, digest, part.findtext("DataEmissaoNFe"))


def _note_key(part: Any) -> tuple[str | None, str]:
    if part is None:
        return None, ""
    ccm, number = (part.findtext("InscricaoPrestador") or "").strip(), (part.findtext("NumeroNFe") or "").strip()
    if not _NUMBER.match(ccm) or not _NUMBER.match(number):
        return None, ""
    code = re.sub(r"[^0-9A-Za-z]", "", part.findtext("CodigoVerificacao") or "")[:20]
    return f"{ccm.lstrip('0'):0>8}_{int(number)}_{code}", str(int(number))


def _rps_key(part: Any) -> str | None:
    if part is None:
        return None
    ccm, number = (part.findtext("InscricaoPrestador") or "").strip(), (part.findtext("NumeroRPS") or "").strip()
    if not _NUMBER.match(number):
        return None
    try:
        return id_idempotencia_sp(ccm, part.findtext("SerieRPS") or "", int(number))
    except Problem:
        return None


def autorizacao(found: Retorno, name: str) -> Resposta:
    """What an answer to EnvioRPS or EnvioLoteRPS says about one RPS. Raises SemResposta where it says nothing."""
    alerts = tuple(f"{code} {words}" for code, words in found.alertas)
    codes = {code for code, _ in found.alertas}
    note = next((note for note in found.notas if note.sobre == name), None)
    if note is not None and found.sucesso:
        code = REISSUED if REISSUED in codes else CONVERTED if CONVERTED in codes else "200"
        words = next((words for one, words in found.alertas if one == code), "RPS convertido em NFS-e.")
        return Resposta(
            "autorizacao", code, words, found.bruto, note.chave, note.numero, sobre=note.sobre, alertas=alerts
        )
    if found.erros:
        return Resposta("autorizacao", *found.erros[0], found.bruto, alertas=alerts)
    if CONVERTED in codes:
        return Resposta("autorizacao", CONVERTED, "RPS já convertido.", found.bruto, alertas=alerts)
    raise SemResposta("A resposta não fala deste RPS.", found.bruto)


def de_lote(found: Retorno, name: str) -> Resposta:
    """What an answer to EnvioLoteRPS says about one RPS of several. Raises SemResposta where it says nothing.

    An error or an alert counts for the RPS that it names only; a batch that was refused as a whole refuses all of it.
    """
    own = {
        tag: tuple((code, words) for kind, about, code, words in found.nomeados if (kind, about) == (tag, name))
        for tag in ("Erro", "Alerta")
    }
    if found.sucesso:
        return autorizacao(replace(found, erros=own["Erro"], alertas=own["Alerta"]), name)
    if found.notas:
        raise SemResposta("O lote foi recusado, e a resposta traz notas.", found.bruto)
    return autorizacao(replace(found, erros=own["Erro"] or found.erros, alertas=own["Alerta"]), name)


def cancelamento(found: Retorno) -> Resposta:
    """The answer to CancelamentoNFe of one note."""
    told = found.alertas if found.sucesso else found.erros
    already = next((one for one in (*found.alertas, *found.erros) if one[0] == "1301"), None)
    if already is not None:
        return Resposta("evento", *already, found.bruto)
    if found.sucesso:
        return Resposta("evento", "200", "NFS-e cancelada.", found.bruto)
    if not told:
        raise SemResposta("A recusa do cancelamento não diz por quê.", found.bruto)
    return Resposta("evento", *told[0], found.bruto)
