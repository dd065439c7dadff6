"""The number ledger: for every number of a series, what became of it, and which may be voided. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from umavez_systems.fiscal.domain import Estado


class Destino(StrEnum):
    """What became of a number."""

    ALOCADO = "alocado"
    ENVIADO = "enviado"
    AUTORIZADO = "autorizado"
    CANCELADO = "cancelado"
    INUTILIZADO = "inutilizado"
    REJEITADO = "rejeitado"
    DENEGADO = "denegado"
    DESCONHECIDO = "desconhecido"
    DIVERGENTE = "divergente"
    LACUNA = "lacuna"


_OF = {
    Estado.RASCUNHO: Destino.ALOCADO,
    Estado.TRANSMITIDO: Destino.ENVIADO,
    Estado.AUTORIZADO: Destino.AUTORIZADO,
    Estado.CANCELAMENTO_PENDENTE: Destino.AUTORIZADO,
    Estado.CANCELADO: Destino.CANCELADO,
    Estado.INUTILIZADO: Destino.INUTILIZADO,
    Estado.REJEITADO: Destino.REJEITADO,
    Estado.DENEGADO: Destino.DENEGADO,
    Estado.INDETERMINADO: Destino.DESCONHECIDO,
    Estado.DIVERGENTE: Destino.DIVERGENTE,
}
FECHADOS = frozenset({Destino.AUTORIZADO, Destino.CANCELADO, Destino.INUTILIZADO, Destino.DENEGADO})
"""Nothing is left to do about such a number."""


@dataclass(frozen=True, slots=True)
class Livro:
    """A series: the fate of every number from the first to the last given."""

    destinos: Mapping[int, Destino]
    provados: frozenset[int]
    """Numbers whose absence at the authority is proven, or that were never sent."""
    anula: bool = True
    """Whether the authority voids numbers. Where not, a refused or skipped one is explained by its fate alone."""

    @property
    def contagem(self) -> Counter[str]:
        """How many numbers met each fate."""
        return Counter(destino.value for destino in self.destinos.values())

    @property
    def abertos(self) -> list[int]:
        """Numbers that somebody must still explain."""
        closed = FECHADOS if self.anula else FECHADOS | {Destino.REJEITADO, Destino.LACUNA}
        return [number for number, fate in self.destinos.items() if fate not in closed]

    @property
    def inutilizaveis(self) -> list[tuple[int, int]]:
        """Ranges that may be proposed for voiding: refused or never used, and proven absent."""
        able = {Destino.REJEITADO, Destino.ALOCADO, Destino.LACUNA} if self.anula else set()
        return faixas(n for n, fate in self.destinos.items() if fate in able and n in self.provados)


def livro(
    primeiro: int,
    ultimo: int,
    estados: Mapping[int, Estado],
    provados: Iterable[int],
    anulados: Iterable[int] = (),
    *,
    anula: bool = True,
) -> Livro:
    """The ledger of numbers `primeiro` to `ultimo`; a number without a document is a gap unless it was voided."""
    voided = set(anulados)
    fates = {
        number: _OF[estados[number]]
        if number in estados
        else (Destino.INUTILIZADO if number in voided else Destino.LACUNA)
        for number in range(primeiro, ultimo + 1)
    }
    gaps = {number for number, fate in fates.items() if fate is Destino.LACUNA}
    return Livro(fates, frozenset(provados) | gaps, anula)


def faixas(numeros: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers in order, as ranges."""
    found: list[tuple[int, int]] = []
    for number in numeros:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
