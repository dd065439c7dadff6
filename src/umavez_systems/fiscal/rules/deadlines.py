"""Deadlines: which right is about to be lost, and when. Pure; the periods are data, for states change them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

from umavez_systems.fiscal.domain import ABERTOS, Estado

HORA = 3_600_000
BRASILIA = timezone(timedelta(hours=-3))


def brasilia(agora: int) -> str:
    """A moment in milliseconds as the layouts write it: local time to the second, with its offset."""
    moment = datetime.fromtimestamp(agora // 1000, UTC).astimezone(BRASILIA)
    return moment.isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class Prazos:
    """Periods in milliseconds. Defaults are the national ones; each state may shorten them."""

    cancelar_nfe: int = 24 * HORA
    cancelar_nfce: int = HORA // 2
    cancelar_nfse: int = 24 * HORA
    """Each city has its own, told by a refusal (E0822, 324); this is the most cautious of those known."""
    epec: int = 168 * HORA
    offline: int = 24 * HORA
    transmitir: int = 7 * 24 * HORA
    """A stored note older than this is refused (NT 2025.001)."""
    consultar: int = 180 * 24 * HORA
    """The situation query answers no longer than this (526)."""
    dia_da_inutilizacao: int = 10

    def cancelar(self, modelo: str) -> int:
        """How long after authorisation a note may be cancelled."""
        return {"65": self.cancelar_nfce, "55": self.cancelar_nfe}.get(modelo, self.cancelar_nfse)


POR_UF = {"MT": Prazos(cancelar_nfe=2 * HORA)}
"""States that differ; data, to be changed without touching code."""


def prazos_de(uf: str) -> Prazos:
    """The periods of a state."""
    return POR_UF.get(uf, Prazos())


@dataclass(frozen=True, slots=True)
class Situacao:
    """What the watch needs to know of a document; times in milliseconds."""

    id: str
    modelo: str
    uf: str
    estado: Estado
    tp_emis: str
    emitido_em: int
    autorizado_em: int | None
    epec_em: int | None = None
    incidente: bool = False


@dataclass(frozen=True, slots=True)
class Pendencia:
    """Something open, the right that hangs on it, and when that right ends."""

    documento: str
    estado: Estado
    direito: str
    acao: str
    vence_em: int

    def vencida(self, agora: int) -> bool:
        """Whether it is too late."""
        return agora >= self.vence_em


def pendencias(documentos: list[Situacao]) -> list[Pendencia]:
    """Everything open, the right that is lost first in front."""
    found = [pending for document in documentos for pending in _of(document)]
    return sorted(found, key=lambda pending: (pending.vence_em, pending.documento))


def _of(document: Situacao) -> list[Pendencia]:
    periods = prazos_de(document.uf)
    found: list[tuple[str, str, int]] = []
    if document.estado is Estado.CANCELAMENTO_PENDENTE:
        end = (document.autorizado_em or document.emitido_em) + periods.cancelar(document.modelo)
        found.append(("cancelar", "Conciliar: o cancelamento ainda não tem resposta.", end))
    if document.epec_em is not None and document.estado in (*ABERTOS, Estado.REJEITADO, Estado.DIVERGENTE):
        found.append(("EPEC", "Enviar a nota completa com a mesma chave.", document.epec_em + periods.epec))
    if document.tp_emis == "9" and document.estado in (Estado.RASCUNHO, Estado.TRANSMITIDO, Estado.INDETERMINADO):
        found.append(
            ("transmitir offline", "Transmitir a NFC-e emitida offline.", document.emitido_em + periods.offline)
        )
    elif document.estado is Estado.RASCUNHO:
        found.append(
            ("transmitir", "Transmitir antes que a data de emissão expire.", document.emitido_em + periods.transmitir)
        )
    elif document.estado in (Estado.TRANSMITIDO, Estado.INDETERMINADO):
        end = document.emitido_em + periods.cancelar(document.modelo)
        found.append(("conciliar", "Conciliar: se autorizada, só até aqui pode ser cancelada.", end))
    found += _to_explain(document, fim_da_inutilizacao(document.emitido_em, periods))
    return [Pendencia(document.id, document.estado, right, act, end) for right, act, end in found]


def _to_explain(document: Situacao, end: int) -> list[tuple[str, str, int]]:
    """What a human must look at. The number of a service invoice is never voided, so that a refusal needs nothing."""
    found: list[tuple[str, str, int]] = []
    voids = document.modelo in ("55", "65")
    if document.estado is Estado.DIVERGENTE or (voids and document.estado is Estado.REJEITADO):
        right = "inutilizar" if voids else "explicar"
        found.append((right, "Inutilizar ou explicar o número." if voids else "Conferir e explicar o número.", end))
    if document.incidente:
        found.append(("incidente", "O município cancelou a nota e emitiu outra: conferir e avisar o tomador.", end))
    return found


def fim_da_inutilizacao(emitido_em: int, periods: Prazos | None = None) -> int:
    """The end of the 10th day of the month after emission, in Brasília."""
    day = (periods or Prazos()).dia_da_inutilizacao
    moment = datetime.fromtimestamp(emitido_em / 1000, UTC).astimezone(BRASILIA)
    year, month = (moment.year + 1, 1) if moment.month == 12 else (moment.year, moment.month + 1)
    end = datetime(year, month, day, tzinfo=BRASILIA) + timedelta(days=1)
    return int(end.timestamp() * 1000)
