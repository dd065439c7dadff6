"""The plan of a round: what is due, the right that is lost first in front, no organisation before its turn. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, zip_longest

from umavez_systems.fiscal.domain import Acao, Estado
from umavez_systems.fiscal.rules.deadlines import Situacao, pendencias

NEVER = 1 << 62
"""Where no right hangs on it."""


@dataclass(frozen=True, slots=True)
class Devido:
    """An act that is due, and what is known of its document; an act without one has no right to lose."""

    acao: Acao
    org_id: str
    nome: str
    situacao: Situacao | None = None

    @property
    def vence_em(self) -> int:
        """When the first right that hangs on it ends."""
        if self.situacao is None:
            return NEVER
        found = pendencias([self.situacao])
        return found[0].vence_em if found else NEVER

    @property
    def conferir(self) -> bool:
        """Whether it is only looked at again: the document is decided."""
        return self.acao is Acao.EMITIR and self.situacao is not None and self.situacao.estado is Estado.AUTORIZADO


def plano(devidos: Iterable[Devido]) -> list[Devido]:
    """One of each organisation in turn, each organisation's most pressing first."""
    queues: dict[str, list[Devido]] = {}
    for one in sorted(devidos, key=lambda due: (due.vence_em, due.org_id, due.nome)):
        queues.setdefault(one.org_id, []).append(one)
    turns = chain.from_iterable(zip_longest(*queues.values()))
    return [one for one in turns if one is not None]
