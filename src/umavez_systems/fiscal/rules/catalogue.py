"""Catalogue: what a code of an authority's service means, read from codes.toml. A code that is not there is unknown."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from umavez_systems.fiscal.domain import Desfecho

MANUAL = "manual"
SPEC = "spec-1.0"
PERFIS = (MANUAL, SPEC)
REFUSING = ("autorizacao", "evento", "inutilizacao")
"""Services in which a catalogued refusal refuses the act; in a query it refuses only the question."""


@dataclass(frozen=True, slots=True)
class Regra:
    """One line: what a code means, what to do about it, and who says so."""

    autoridade: str
    servico: str
    codigo: str
    desfecho: Desfecho
    acao: str
    fonte: str

    @property
    def nome(self) -> str:
        """How the proof log names it."""
        return f"{self.autoridade}/{self.servico}/{self.codigo}"


class Catalogo:
    """The rules of one profile."""

    def __init__(self, perfil: str, regras: dict[tuple[str, str, str], Regra]) -> None:
        self.perfil = perfil
        self.regras = regras

    def regra(self, autoridade: str, servico: str, codigo: str) -> Regra:
        """The rule for a code; one that is not catalogued proves nothing, and is never guessed."""
        found = self.regras.get((autoridade, servico, codigo))
        if found is not None:
            return found
        return Regra(
            autoridade,
            servico,
            codigo[:20],
            Desfecho.INDETERMINADO,
            "Código fora do catálogo: consultar, sem supor.",
            "catálogo",
        )


@cache
def catalogo(perfil: str = MANUAL) -> Catalogo:
    """The catalogue under `perfil`. Raises KeyError for a profile that is not there."""
    data = tomllib.loads(files("umavez_systems.fiscal.rules").joinpath("codes.toml").read_text(encoding="utf-8"))
    profiles = data.pop("perfis")
    regras: dict[tuple[str, str, str], Regra] = {}
    for autoridade, services in data.items():
        refusals = {services.pop("fonte_das_rejeicoes", ""): services.pop("rejeicoes", "")}
        refusals |= services.pop("rejeicoes_de_nt", {})
        for servico, lines in services.items():
            for source, codes in refusals.items():
                regras.update(_refusals(autoridade, servico, numbers(codes), source))
            regras.update(_lines(autoridade, servico, lines))
    if perfil != MANUAL:
        for autoridade, services in profiles[perfil].items():
            for servico, lines in services.items():
                regras.update(_lines(autoridade, servico, lines))
    return Catalogo(perfil, regras)


def numbers(text: str) -> list[str]:
    """The codes in a text like "201-203 205 E0001-E0009"; zeros in front are kept."""
    found: list[str] = []
    for letter, first, last in re.findall(r"([A-Z]?)(\d+)(?:-[A-Z]?(\d+))?", text):
        found += (f"{letter}{code:0{len(first)}d}" for code in range(int(first), int(last or first) + 1))
    return found


def _lines(autoridade: str, servico: str, lines: dict[str, Any]) -> dict[tuple[str, str, str], Regra]:
    return {
        (autoridade, servico, codigo): Regra(autoridade, servico, codigo, Desfecho(line[0]), line[1], line[2])
        for codigo, line in lines.items()
    }


def _refusals(autoridade: str, servico: str, codes: list[str], source: str) -> dict[tuple[str, str, str], Regra]:
    if servico in REFUSING:
        desfecho, acao = Desfecho.REJEITADO, "Corrigir e emitir de novo; nada foi registrado."
    else:
        desfecho, acao = Desfecho.INDETERMINADO, "A pergunta foi recusada; nada diz sobre o documento."
    return {(autoridade, servico, code): Regra(autoridade, servico, code, desfecho, acao, source) for code in codes}
