"""The period: every page of a taxpayer's notes, read once for many questions and gone on with where it broke off.

A busy taxpayer has a hundred pages. Were each document's question to read all of them, the work would grow with the
square of the notes; were a page that got no answer the end of the reading, no reading would ever be whole.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from hashlib import sha256

from umavez_systems.fiscal.ports import SemResposta
from umavez_systems.fiscal.wire.asking import Pergunta
from umavez_systems.fiscal.wire.paulistana.reading import NOT_FOUND, Nota, Retorno
from umavez_systems.fiscal.wire.paulistana.rps import MOST

MOST_PAGES = 200
LONGEST_PERIOD = 31
"""Days (error 1403)."""
LONGEST_READING = 60.0
"""Seconds that one question reads pages; the next question goes on."""
LIFE = 120.0
"""Seconds after which a reading that broke off is begun anew, and a whole one is forgotten."""
PATIENCE = 30.0
"""Seconds to wait for another thread that reads the same pages."""

Pagina = Callable[[Pergunta, date, date, int], Retorno]
"""Reads one page of the notes of two days and all between; pages begin at 1."""


@dataclass(slots=True)
class Leitura:
    """Pages that were read: the notes by the name of their RPS, as they were when it began or later."""

    began: float
    first: date
    last: date
    pages: int = 0
    ended: bool = False
    notas: dict[str, list[Nota]] = field(default_factory=dict)
    digest: str = ""
    """Of the pages' bytes, one after the other."""

    def keep(self, answer: Retorno) -> None:
        """Add a page."""
        self.pages += 1
        for note in answer.notas:
            self.notas.setdefault(note.sobre or "", []).append(note)
        self.digest = sha256(self.digest.encode() + answer.bruto).hexdigest()
        self.ended = len(answer.notas) < MOST

    def told(self) -> str:
        """For the proof: what was read, and how long ago that began."""
        ago = time.monotonic() - self.began
        return f"periodo {self.first} a {self.last}: {self.pages} paginas, lidas desde {ago:.1f} s atras, {self.digest}"


class Periodo:
    """The notes of one taxpayer. Safe for threads: one reads, the others use what it read."""

    def __init__(self, pagina: Pagina, hoje: Callable[[], date]) -> None:
        self._pagina = pagina
        self._hoje = hoje
        self._lock = threading.Lock()
        self._whole: Leitura | None = None
        self._part: Leitura | None = None

    def notas(self, asked: Pergunta, name: str, first: date, idade: float = 0.0) -> tuple[list[Nota], bool]:
        """The notes of an RPS since a day, and whether all of that time could be looked at.

        They were read by a reading that began at most `idade` seconds ago. Raises as the pages do, and SemResposta.
        """
        oldest = time.monotonic() - min(idade, LIFE)
        if not self._lock.acquire(timeout=PATIENCE):
            raise SemResposta("Outra consulta ainda lê o período.")
        try:
            found = self._whole
            if found is None or not _serves(found, first, oldest):
                found = self._read(asked, first, oldest)
        finally:
            self._lock.release()
        asked.notar(found.told())
        earliest = found.last - timedelta(days=LONGEST_PERIOD - 1)
        return found.notas.get(name, []), found.ended and first >= earliest

    def _read(self, asked: Pergunta, first: date, oldest: float) -> Leitura:
        """A reading that serves. One that broke off is ended first, even where it serves others only: begun anew by
        every question that is younger, none would ever end."""
        ends = time.monotonic() + LONGEST_READING
        part = self._part
        if part is not None and _serves(part, first, time.monotonic() - LIFE):
            self._whole = self._ended(asked, part, ends)
            if _serves(part, first, oldest):
                return part
        today = self._hoje()
        since = max(first, today - timedelta(days=LONGEST_PERIOD - 1))
        self._part = Leitura(time.monotonic(), since, today)
        self._whole = self._ended(asked, self._part, ends)
        return self._whole

    def _ended(self, asked: Pergunta, part: Leitura, ends: float) -> Leitura:
        """Read on until the last page. Pages shift to later places only, for the city takes no note away: what moves
        between two pages is read twice, never missed."""
        while not part.ended and part.pages < MOST_PAGES:
            if time.monotonic() > ends:
                raise SemResposta("O período ainda não foi lido inteiro; a próxima consulta continua.")
            asked.recomecar()
            answer = self._pagina(asked, part.first, part.last, part.pages + 1)
            if not answer.sucesso and not all(code == NOT_FOUND for code, _ in answer.erros):
                raise SemResposta("A consulta por período foi recusada.", answer.bruto)
            part.keep(answer)
        self._part = None
        return part


def _serves(found: Leitura, first: date, oldest: float) -> bool:
    """Whether a reading began late enough and at an early enough day; or as early as may be asked."""
    earliest = found.last - timedelta(days=LONGEST_PERIOD - 1)
    return found.began >= oldest and found.first <= max(first, earliest)
