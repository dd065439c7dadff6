"""Proof: entries about one document, each bound to the one before by its digest. Pure, and checkable offline."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

INICIO = "0" * 64
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
    text = json.dumps(conteudo, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return Entrada(
        documento, sequencia, tipo, quando, text, anterior, _digest(documento, sequencia, tipo, quando, text, anterior)
    )


def _digest(documento: str, sequencia: int, tipo: str, quando: int, conteudo: str, anterior: str) -> str:
    # Lengths stand before the parts, so that no two different entries are written alike.
    parts = (documento, str(sequencia), tipo, str(quando), conteudo, anterior)
    return sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()


def falhas(entradas: Iterable[Entrada], cabeca: str | None = None) -> list[str]:
    """What is wrong with a chain, in words; empty when nothing is. `cabeca`: the digest it must end with."""
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


def bruto(resposta: bytes) -> dict[str, Any]:
    """A raw answer as it is kept: whole where it is short, always with digest and size."""
    return {
        "sha256": sha256(resposta).hexdigest(),
        "bytes": len(resposta),
        "texto": resposta[:LONGEST_RAW].decode("utf-8", "backslashreplace").replace("\x00", "\\x00"),
    }
