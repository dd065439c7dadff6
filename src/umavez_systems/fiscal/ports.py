"""Autoridade: what the system needs from a tax authority, what it answers, and how each way of failing reads.

Four implementations share it: SEFAZ for NF-e and NFC-e, SEFIN Nacional and São Paulo for NFS-e, and test doubles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from umavez_systems.fiscal.domain import Acao, Pedido, Tipo


@dataclass(frozen=True, slots=True)
class Evento:
    """An event that the authority keeps with a document."""

    tipo: str
    sequencia: int
    codigo: str
    protocolo: str | None = None
    texto: str | None = None
    quando: str | None = None


@dataclass(frozen=True, slots=True)
class Resposta:
    """An authority's answer, read but not judged. `bruto` is what came, for the proof log."""

    servico: str
    codigo: str
    motivo: str
    bruto: bytes
    chave: str | None = None
    protocolo: str | None = None
    dig_val: str | None = None
    quando: str | None = None
    eventos: tuple[Evento, ...] = ()
    outra_chave: str | None = None
    sobre: str | None = None
    """The id_idempotencia of the document that the answer names, where its key is the authority's to give."""
    documento: str | None = None
    """What the authority made of the document, to be kept with it."""
    anteriores: tuple[str, ...] = ()
    """Documents of the same name that the authority had issued and has cancelled: each is a loss to be shown."""
    alertas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Numerado:
    """A document that has its number: everything its bytes are made from, fixed once."""

    pedido: Pedido
    numero: int
    cnf: str
    emissao: str
    """dhEmi as it is written: local time with its offset."""
    tp_emis: str
    contingencia: str | None = None
    """When contingency began (dhCont), in modes that say so."""


@dataclass(frozen=True, slots=True)
class Montado:
    """Signed bytes and the names by which the authority will know them."""

    xml: bytes
    id_idempotencia: str
    chave: str | None
    natural: str
    digest: str
    """digVal: what the authority repeats when it means these very bytes."""
    total: str
    """What the document says it is worth: more than its products where a tax is added to them."""


@dataclass(frozen=True, slots=True)
class Ato:
    """One stored request: what it asks, about which document, with the bytes that are sent every time."""

    acao: Acao
    nome: str
    """Its identity at the authority: id_idempotencia, the Id of an event, the Id of a voiding."""
    xml: bytes
    tipo: Tipo
    tp_emis: str = "1"
    chave: str | None = None
    digest: str | None = None
    texto: str | None = None
    sequencia: int = 1
    documento: str | None = None
    """The id_idempotencia of the document it is about."""
    insistir: bool = False
    """Look wherever it and its like could be: it was absent before, or more than one of it may have been made."""
    decidido: bool = False
    """It is decided, and only what was destroyed for it is looked for: what was read a moment ago will do."""
    lido_ha: float = 0.0
    """Seconds since it could be called absent for good: a look at everything that began since then counts for it, too,
    if it was made for another document."""


class AutoridadeError(Exception):
    """The authority gave no usable answer. `bruto` is whatever came."""

    def __init__(self, message: str, bruto: bytes = b"") -> None:
        super().__init__(message)
        self.bruto = bruto


class NadaEnviado(AutoridadeError):
    """No byte of the request reached the authority: sending again is safe."""


class Ocupada(AutoridadeError):
    """The authority said "not now" before doing anything; `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: float, bruto: bytes = b"") -> None:
        super().__init__(message, bruto)
        self.retry_after = retry_after


class SemResposta(AutoridadeError):
    """It may have been received and no usable answer came. Ask before anything else, and not before `retry_after`
    seconds where the authority named a pause."""

    def __init__(self, message: str, bruto: bytes = b"", retry_after: float | None = None) -> None:
        super().__init__(message, bruto)
        self.retry_after = retry_after


class Recusada(AutoridadeError):
    """Refused before any service saw it (certificate, address, form of the request): a human must mend it."""

    def __init__(self, message: str, status: int, bruto: bytes = b"") -> None:
        super().__init__(message, bruto)
        self.status = status


class Autoridade(Protocol):
    """One taxpayer's access to one authority. Building signs and sends nothing; the last three verbs go out.

    Those raise NadaEnviado, Ocupada, SemResposta or Recusada, and nothing else for whatever the far side does.
    """

    nome: str

    def montar(self, numerado: Numerado) -> Montado:
        """The document's signed bytes, valid by the authority's own schema. Raises a 422 problem."""
        ...

    def montar_cancelamento(
        self, ato: Ato, protocolo: str, justificativa: str, quando: str, substituta: str | None = None
    ) -> Ato:
        """The cancellation of the document emitted by `ato`; `substituta` is the document that took its place."""
        ...

    def montar_correcao(self, ato: Ato, texto: str, sequencia: int, quando: str) -> Ato:
        """A correction letter about the document emitted by `ato`. Raises a 422 problem where there is none."""
        ...

    def montar_epec(self, ato: Ato, quando: str) -> Ato:
        """The advance notice of the note emitted by `ato`. Raises a 422 problem where there is none."""
        ...

    def montar_inutilizacao(
        self, tipo: Tipo, ano: str, serie: int, primeiro: int, ultimo: int, justificativa: str
    ) -> Ato:
        """The voiding of numbers. Raises a 422 problem where there is none."""
        ...

    def transmitir(self, ato: Ato) -> Resposta:
        """Send the act's stored bytes."""
        ...

    def consultar(self, ato: Ato) -> Resposta:
        """What the authority knows about the document and its events. Changes nothing, but is counted."""
        ...

    def situacao(self, tp_emis: str = "1") -> Resposta:
        """Whether the service is up. Not more often than every three minutes."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...


class AutoridadeDeLotes(Autoridade, Protocol):
    """An authority that takes several documents in one message. Raises as the verbs that go out do."""

    def montar_lote(self, atos: list[Ato], *, transacao: bool = False) -> bytes:
        """The message around stored documents, the same bytes every time. Raises 422 problems."""
        ...

    def transmitir_lote(
        self, atos: list[Ato], *, transacao: bool = False, xml: bytes | None = None
    ) -> list[Resposta | SemResposta]:
        """Send it; what the answer says about each document, in their order."""
        ...

    def consultar_lote(self, atos: list[Ato]) -> list[Resposta]:
        """One question about all of them; what it tells of each, in their order."""
        ...
