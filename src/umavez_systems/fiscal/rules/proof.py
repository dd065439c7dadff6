"""Proof: entries about one document, each bound to the one before by its digest. Pure, and checkable offline.

What is checked: that nothing was changed since, and that what is told may have happened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from umavez import BoundedJson
from umavez_systems.fiscal.domain import Estado, pode_passar

INICIO = "0" * 64
_BOUNDED = BoundedJson()
_WRITTEN = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode
"""Made once: `json.dumps` makes another for every entry."""
LONGEST_RAW = 200_000
"""Bytes of an answer that are kept word for word; of a longer one the digest and the beginning."""


@dataclass(frozen=True, slots=True)
class Entrada:
    """One entry: what happened (`tipo`), when (milliseconds), its content, and how it hangs on the one before."""

    documento: str
    sequencia: int
    tipo: str
    quando: int
    conteudo: str
    anterior: str
    resumo: str


def escrita(documento: str, sequencia: int, tipo: str, quando: int, conteudo: Any, anterior: str) -> Entrada:
    """The next entry of a chain."""
    text = _WRITTEN(conteudo)
    return Entrada(
        documento, sequencia, tipo, quando, text, anterior, _digest(documento, sequencia, tipo, quando, text, anterior)
    )


def _digest(documento: str, sequencia: int, tipo: str, quando: int, conteudo: str, anterior: str) -> str:
    # Lengths stand before the parts, so that no two different entries are written alike.
    parts = (documento, str(sequencia), tipo, str(quando), conteudo, anterior)
    return sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()


def falhas(entradas: Iterable[Entrada], cabeca: str | None = None) -> list[str]:
    """What is wrong with a chain, in words; empty when nothing is. `cabeca`: the digest it must end with."""
    entries = list(entradas)
    return _broken(entries, cabeca) + _incoherent(entries)


def _broken(entradas: list[Entrada], cabeca: str | None) -> list[str]:
    """What was changed, removed, added or moved after it was written."""
    found: list[str] = []
    before, expected = INICIO, 1
    for entry in entradas:
        where = f"entrada {entry.sequencia} ({entry.tipo})"
        if entry.sequencia != expected:
            found.append(f"{where}: esperava a de número {expected}; falta ou sobra uma entrada.")
        if entry.anterior != before:
            found.append(f"{where}: não segue a anterior.")
        content = (entry.documento, entry.sequencia, entry.tipo, entry.quando, entry.conteudo, entry.anterior)
        if _digest(*content) != entry.resumo:
            found.append(f"{where}: o conteúdo foi mudado.")
        before, expected = entry.resumo, entry.sequencia + 1
    if cabeca is not None and before != cabeca:
        found.append("o fim da cadeia não é o que o documento guarda; faltam entradas.")
    return found


def _incoherent(entradas: list[Entrada]) -> list[str]:
    """What a whole chain must not tell: bytes sent that were not stored before, a state that no rule leads to."""
    found: list[str] = []
    stored: set[str] = set()
    state = Estado.RASCUNHO.value
    for entry in entradas:
        where = f"entrada {entry.sequencia} ({entry.tipo})"
        told = _told(entry) if entry.tipo in ("bytes", "envio", "estado") else {}
        if entry.tipo == "bytes":
            stored.add(str(told.get("sha256")))
        elif entry.tipo == "envio" and told.get("sha256") not in stored:
            found.append(f"{where}: foram enviados bytes que não estavam guardados.")
        elif entry.tipo == "estado":
            before, state = state, str(told.get("para"))
            if told.get("de") != before or not _allowed(before, state):
                found.append(f"{where}: de {before} não se passa a {state}.")
    return found


def _told(entry: Entrada) -> dict[str, Any]:
    try:
        found = _BOUNDED.parse(entry.conteudo.encode())
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _allowed(de: str, para: str) -> bool:
    known = {state.value for state in Estado}
    return de in known and para in known and pode_passar(Estado(de), Estado(para))


def bruto(resposta: bytes) -> dict[str, Any]:
    """A raw answer as it is kept: whole where it is short, always with digest and size."""
    return {
        "sha256": sha256(resposta).hexdigest(),
        "bytes": len(resposta),
        "texto": resposta[:LONGEST_RAW].decode("utf-8", "backslashreplace").replace("\x00", "\\x00"),
    }
