"""Passo: how one kind of act is written down around its call. The flow itself is one for all (operations.py)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from umavez_systems.database import Connection, Row
from umavez_systems.fiscal.domain import ABERTOS, Acao, Tipo
from umavez_systems.fiscal.ports import Ato, AutoridadeError, Resposta
from umavez_systems.fiscal.rules.catalogue import Catalogo

PARADA = 60.0
"""Seconds to leave a service alone that says it is paused."""
BLOQUEIO = 3600.0
"""Seconds to leave an authority alone that says we asked too often (656)."""


class Veredito(StrEnum):
    """What is known about an act after a look, a send or a question."""

    FEITO = "feito"
    """It is over: done, or refused for good."""
    NAO_FEITO = "nao_feito"
    """The authority does not have it: the same bytes may be sent."""
    NAO_SEI = "nao_sei"
    """Ask."""
    ESPERAR = "esperar"
    """Nothing was processed; later."""


class Cumprido(StrEnum):
    """How carrying an act ended."""

    FEITO = "feito"
    """By this call."""
    REPETIDO = "repetido"
    """Before this call, or by somebody it waited for."""
    ABERTO = "aberto"
    """Not yet; somebody will look again."""


@dataclass(frozen=True, slots=True)
class Conclusao:
    """A verdict, why, and how long to wait where that is the verdict."""

    veredito: Veredito
    motivo: str = ""
    espera: float = 0.0
    bloqueia: bool = False


FEITO = Conclusao(Veredito.FEITO)
NAO_FEITO = Conclusao(Veredito.NAO_FEITO)


@dataclass(slots=True)
class Contexto:
    """One act on its way: whose, what, and whether anything may have left before the send in progress."""

    org_id: str
    ato: Ato
    documento: str | None
    primeira: bool = True
    anotado: bool = False
    """That it is about to be sent stands in the books already, and nobody had to keep quiet a moment ago."""
    linha: Row | None = None
    """The document as the last answer left it."""
    levado: bytes | None = None
    """The message that carries it together with others, where it is not sent in its own bytes."""
    conhecida: Row | None = None
    """The document as whoever stored it a moment ago knows it: written over without being read, unless it changed."""


class Passo(Protocol):
    """The writings of one kind of act. Each takes an open transaction and leaves the books consistent in it."""

    acao: Acao

    def contexto(self, connection: Connection, org_id: str, nome: str) -> Contexto:
        """The stored act. Raises a 404 problem."""
        ...

    def sabido(self, connection: Connection, contexto: Contexto) -> Conclusao | None:
        """What our own books prove without asking anybody; None when they prove nothing."""
        ...

    def antes(self, connection: Connection, contexto: Contexto) -> Veredito:
        """Write down that the bytes are about to be sent: NAO_FEITO. FEITO: it is over. ESPERAR: they must not go."""
        ...

    def falhou(self, connection: Connection, contexto: Contexto, error: AutoridadeError) -> None:
        """Write down that no usable answer came."""
        ...

    def respondido(self, connection: Connection, contexto: Contexto, resposta: Resposta) -> Conclusao:
        """Write down the answer to the act and what it means."""
        ...

    def consultado(self, connection: Connection, contexto: Contexto, resposta: Resposta) -> Conclusao:
        """Write down what the authority says when asked."""
        ...

    def marcar(self, connection: Connection, contexto: Contexto, espera_ms: int) -> None:
        """Write down when it will be looked at again."""
        ...


@dataclass(frozen=True, slots=True)
class Regras:
    """What every act decides by, where sending again would destroy the first. `quarentena`: how long a document must
    stay absent before it is sent again; `conferir`: after how long a decided one is looked at once more."""

    catalogo: Catalogo
    quarentena: float = 60.0
    conferir: float = 120.0


def ato_da_linha(row: Row) -> Ato:
    """The emission stored in a document's row."""
    open_yet = row["estado"] in ABERTOS
    return Ato(
        Acao.EMITIR,
        row["id_idempotencia"],
        bytes(row["xml_assinado"]),
        Tipo(row["tipo"]),
        row["tp_emis"],
        row["chave_acesso"],
        row["digest"],
        documento=row["id_idempotencia"],
        insistir=row["ausente_em"] is not None if open_yet else row["tentativas"] > 1 or row["origem"] == "conciliacao",
        decidido=not open_yet,
    )
