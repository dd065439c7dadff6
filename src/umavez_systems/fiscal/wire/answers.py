"""Answers: an authority's reply as a Resposta, and nothing believed that is not where it belongs.

A reply is a stranger's text: bounded, without entities or DTD, and a code counts only as the direct child of the
element that owns it. The situation query carries one cStat of its own and one in every event; taking the first that
comes is how 135 came to be read as "does not exist".
"""

from __future__ import annotations

import re
from typing import Any

from lxml import etree  # type: ignore[import-untyped]  # ships no type information

from umavez_systems.fiscal.ports import Evento, Resposta, SemResposta
from umavez_systems.fiscal.wire.nfe import NS

LARGEST = 2_000_000
MOST_EVENTS = 200
_CODE = re.compile(r"^[0-9]{3,4}\Z", re.ASCII)
"""As the layout has it (TStat): the refusals about IBS and CBS have four digits."""
_NUMBER = re.compile(r"^[0-9]{1,9}\Z", re.ASCII)
_SEQUENCE = re.compile(r"^[0-9]{1,2}\Z", re.ASCII)
_KEY = re.compile(r"\[chNFe:\s*([0-9]{6}[0-9A-Z]{12}[0-9]{26})", re.ASCII)
_SOAP = ("http://www.w3.org/2003/05/soap-envelope", "http://schemas.xmlsoap.org/soap/envelope/")


def tree_of(raw: bytes) -> Any:
    """The reply's tree. Raises SemResposta for what is too large, not XML, or has a DTD."""
    if len(raw) > LARGEST:
        raise SemResposta(f"A resposta passa de {LARGEST} bytes.", raw[:1000])
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_comments=True, remove_pis=True
    )
    try:
        root = etree.fromstring(raw, parser)
    except (etree.XMLSyntaxError, ValueError):
        raise SemResposta("A resposta não é XML.", raw) from None
    if root is None or root.getroottree().docinfo.doctype:
        raise SemResposta("A resposta traz uma DTD.", raw)
    return root


def _inside(raw: bytes, tag: str) -> Any:
    """The one element `tag` of the layout in the body of a SOAP envelope."""
    root = tree_of(raw)
    space, _, name = str(root.tag).rpartition("}")
    if name != "Envelope" or space.lstrip("{") not in _SOAP:
        raise SemResposta("A resposta não é um envelope SOAP.", raw)
    body = root.find(f"{space}}}Body")
    found = [] if body is None else [part for part in body.iter(f"{{{NS}}}{tag}") if _shallow(part, body)]
    if len(found) != 1:
        raise SemResposta(f"A resposta não traz {tag}.", raw)
    return found[0]


def _shallow(part: Any, body: Any) -> bool:
    parent = part.getparent()
    return parent is body or (parent is not None and parent.getparent() is body)


def _text(element: Any, name: str, longest: int = 500) -> str | None:
    """The text of a direct child, or None when it is missing, empty or there is more than one."""
    if element is None:
        return None
    found = element.findall(f"{{{NS}}}{name}")
    text = (found[0].text or "").strip() if len(found) == 1 else ""
    return text[:longest] or None


def _child(element: Any, *path: str) -> Any:
    for name in path:
        found = [] if element is None else element.findall(f"{{{NS}}}{name}")
        element = found[0] if len(found) == 1 else None
    return element


def _code(element: Any, raw: bytes) -> str:
    code = _text(element, "cStat")
    if code is None or not _CODE.match(code):
        raise SemResposta("A resposta não traz cStat onde ele deve estar.", raw)
    return code


def _nested(raw: bytes, outer: Any, inner: Any, envelope: str) -> tuple[str, Any]:
    """The code that counts and the element it stands in: the inner one where the outer says "processed".

    Two that contradict each other give a code that no catalogue has.
    """
    code = _code(outer, raw)
    if inner is None:
        return code, outer
    within = _code(inner, raw)
    return (within, inner) if code == envelope else (f"{code}/{within}", outer)


def autorizacao(raw: bytes) -> Resposta:
    """The reply to a synchronous batch of one note."""
    outer = _inside(raw, "retEnviNFe")
    inner = _child(outer, "protNFe", "infProt")
    code, owner = _nested(raw, outer, inner, "104")
    reason = _text(owner, "xMotivo") or ""
    other = _KEY.search(reason)
    return Resposta(
        "autorizacao",
        code,
        reason,
        raw,
        chave=_text(inner, "chNFe"),
        protocolo=_text(inner, "nProt"),
        dig_val=_text(inner, "digVal"),
        quando=_text(inner, "dhRecbto"),
        outra_chave=None if other is None else other.group(1),
    )


def consulta(raw: bytes) -> Resposta:
    """The reply to the situation query: the note's own code, its protocol, its events."""
    outer = _inside(raw, "retConsSitNFe")
    prot = _child(outer, "protNFe", "infProt")
    reason = _text(outer, "xMotivo") or ""
    other = _KEY.search(reason)
    return Resposta(
        "consulta",
        _code(outer, raw),
        reason,
        raw,
        chave=_text(outer, "chNFe") or _text(prot, "chNFe"),
        protocolo=_text(prot, "nProt"),
        dig_val=_text(prot, "digVal"),
        quando=_text(prot, "dhRecbto"),
        eventos=_events(outer),
        outra_chave=None if other is None else other.group(1),
    )


def _events(outer: Any) -> tuple[Evento, ...]:
    found: list[Evento] = []
    for process in outer.findall(f"{{{NS}}}procEventoNFe")[:MOST_EVENTS]:
        asked = _child(process, "evento", "infEvento")
        answered = _child(process, "retEvento", "infEvento")
        code, kind = _text(answered, "cStat"), _text(answered, "tpEvento") or _text(asked, "tpEvento")
        sequence = _text(answered, "nSeqEvento") or _text(asked, "nSeqEvento") or ""
        if code is None or kind is None or not _SEQUENCE.match(sequence):
            continue
        text = _text(_child(asked, "detEvento"), "xCorrecao", 1000)
        found.append(Evento(kind, int(sequence), code, _text(answered, "nProt"), text, _text(answered, "dhRegEvento")))
    return tuple(found)


def evento(raw: bytes) -> Resposta:
    """The reply to a batch of one event."""
    outer = _inside(raw, "retEnvEvento")
    inner = _child(outer, "retEvento", "infEvento")
    code, owner = _nested(raw, outer, inner, "128")
    return Resposta(
        "evento",
        code,
        _text(owner, "xMotivo") or "",
        raw,
        chave=_text(inner, "chNFe"),
        protocolo=_text(inner, "nProt"),
        quando=_text(inner, "dhRegEvento"),
        eventos=_told(inner, code),
    )


def _told(inner: Any, code: str) -> tuple[Evento, ...]:
    """Which event an answer names, where it names one."""
    kind, sequence = _text(inner, "tpEvento"), _text(inner, "nSeqEvento")
    if kind is None or sequence is None or not _SEQUENCE.match(sequence):
        return ()
    return (Evento(kind, int(sequence), code, _text(inner, "nProt"), None, _text(inner, "dhRegEvento")),)


def inutilizacao(raw: bytes) -> Resposta:
    """The reply to a voiding."""
    inner = _child(_inside(raw, "retInutNFe"), "infInut")
    return Resposta(
        "inutilizacao",
        _code(inner, raw),
        _text(inner, "xMotivo") or "",
        raw,
        protocolo=_text(inner, "nProt"),
        quando=_text(inner, "dhRecbto"),
        sobre=_range(inner),
    )


def _range(inner: Any) -> str | None:
    """Which voiding an answer names, as its request's Id; None where it does not name one whole."""
    told = [_text(inner, name) or "" for name in ("cUF", "ano", "CNPJ", "mod", "serie", "nNFIni", "nNFFin")]
    if not all(told) or not all(_NUMBER.match(part) for part in told[4:]):
        return None
    serie, first, last = map(int, told[4:])
    return f"ID{''.join(told[:4])}{serie:03d}{first:09d}{last:09d}"


def status(raw: bytes) -> Resposta:
    """The reply to the question whether the service is up."""
    outer = _inside(raw, "retConsStatServ")
    return Resposta("status", _code(outer, raw), _text(outer, "xMotivo") or "", raw)
