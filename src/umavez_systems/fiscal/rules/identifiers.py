"""Identifiers: the seed's id_idempotencia for each kind, access keys with check digit, ids of events. Pure.

A CNPJ has letters since 2026: nothing here asks whether one is a number or makes it one.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from umavez_systems.documentos import valid_document
from umavez_systems.problems import Problem

_CHAVE = re.compile(r"^[0-9]{6}[0-9A-Z]{12}[0-9]{26}\Z", re.ASCII)
_CNPJ = re.compile(r"^[0-9A-Z]{12}[0-9]{2}\Z", re.ASCII)
_CPF = re.compile(r"^[0-9]{11}\Z", re.ASCII)
_DIGITS = re.compile(r"^[0-9]+\Z", re.ASCII)
UFS = {
    "RO": "11", "AC": "12", "AM": "13", "RR": "14", "PA": "15", "AP": "16", "TO": "17", "MA": "21", "PI": "22",
    "CE": "23", "RN": "24", "PB": "25", "PE": "26", "AL": "27", "SE": "28", "BA": "29", "MG": "31", "ES": "32",
    "RJ": "33", "SP": "35", "PR": "41", "SC": "42", "RS": "43", "MS": "50", "MT": "51", "GO": "52", "DF": "53",
}  # fmt: skip
TP_EMIS = frozenset(["1", "2", "3", "4", "5", "6", "7", "9"])
OBVIOUS_CNF = frozenset(
    [str(digit) * 8 for digit in range(10)]
    + ["".join(str((first + step) % 10) for step in range(8)) for first in range(10)]
)
"""Codes that rule B03-10 refuses with 897: one digit repeated, or digits that count up."""


def cnpj_limpo(texto: str) -> str:
    """A CNPJ without its marks, checked. Raises a 422 problem."""
    limpo = re.sub(r"[./\s-]", "", texto).upper()
    if not _CNPJ.match(limpo) or not valid_document(limpo):
        raise invalid("cnpj: não confere; são 12 letras ou dígitos e 2 dígitos verificadores.")
    return limpo


def cpf_limpo(texto: str) -> str:
    """A CPF without its marks, checked. Raises a 422 problem."""
    limpo = re.sub(r"[.\s-]", "", texto)
    if not _CPF.match(limpo) or not valid_document(limpo):
        raise invalid("cpf: não confere; são 11 dígitos.")
    return limpo


@lru_cache(maxsize=100)
def digito(corpo: str) -> str:
    """The check digit of an access key: weights 2 to 9 from the right, characters worth their code minus 48."""
    soma = sum((ord(mark) - 48) * (2 + place % 8) for place, mark in enumerate(reversed(corpo)))
    resto = soma % 11
    return str(0 if resto < 2 else 11 - resto)


@dataclass(frozen=True, slots=True)
class Chave:
    """The parts of an access key of 44 positions."""

    cuf: str
    aamm: str
    cnpj: str
    mod: str
    serie: int
    nnf: int
    tp_emis: str
    cnf: str

    def __post_init__(self) -> None:
        if not _CHAVE.match(self._corpo + "0") or self.tp_emis not in TP_EMIS or self.cuf not in UFS.values():
            raise invalid("chave de acesso: uma das partes não tem a forma oficial.")
        if not 1 <= int(self.aamm[2:]) <= 12 or self.mod not in ("55", "65"):
            raise invalid("chave de acesso: mês de 01 a 12 e modelo 55 ou 65.")
        if not (0 <= self.serie <= 999 and 1 <= self.nnf <= 999_999_999):
            raise invalid("chave de acesso: série de 0 a 999 e número de 1 a 999999999.")

    @property
    def _corpo(self) -> str:
        return f"{self.cuf}{self.aamm}{self.cnpj:0>14}{self.mod}{self.serie:03d}{self.nnf:09d}{self.tp_emis}{self.cnf}"

    def __str__(self) -> str:
        return self._corpo + digito(self._corpo)

    @property
    def dv(self) -> str:
        """The check digit."""
        return digito(self._corpo)

    @classmethod
    def lida(cls, texto: str) -> Chave:
        """The parts of a written key. Raises a 422 problem when it is not one."""
        if not _CHAVE.match(texto) or digito(texto[:43]) != texto[43]:
            raise invalid("chave de acesso: são 44 posições e o dígito verificador confere.")
        parts = texto[:2], texto[2:6], texto[6:20], texto[20:22], int(texto[22:25]), int(texto[25:34])
        return cls(*parts, texto[34], texto[35:43])

    @property
    def id_idempotencia(self) -> str:
        """The seed's identifier of an NF-e or NFC-e (§3.2), each part in its width of the access key."""
        return "_".join(
            (
                self.cuf,
                f"{self.cnpj:0>14}",
                self.mod,
                f"{self.serie:03d}",
                f"{self.nnf:09d}",
                self.tp_emis,
                self.cnf,
            )
        )

    def natural(self, ambiente: str) -> str:
        """What the authority itself holds unique: not cNF and not the month; for 65 the mode of emission too."""
        parts = (ambiente, self.cuf, f"{self.cnpj:0>14}", self.mod, f"{self.serie:03d}", f"{self.nnf:09d}")
        return "_".join((*parts, self.tp_emis) if self.mod == "65" else parts)


def id_idempotencia_sp(ccm: str, serie: str, numero_rps: int) -> str:
    """`{ccm}_{serie}_{numeroRPS}`: 8 (in layout 2 up to 12), up to 5 and 12 positions. The series keeps its case."""
    serie = serie.strip()
    if not _DIGITS.match(ccm) or len(ccm) > 12 or not re.match(r"^[0-9A-Za-z-]{1,5}\Z", serie, re.ASCII):
        raise invalid("RPS: CCM com até 12 dígitos e série com 1 a 5 letras ou dígitos.")
    if not 1 <= numero_rps <= 999_999_999_999:
        raise invalid("RPS: número de 1 a 999999999999.")
    return f"{ccm.lstrip('0'):0>8}_{serie}_{numero_rps:012d}"


def id_idempotencia_adn(municipio: str, inscricao: str, serie: int, numero_dps: int) -> str:
    """`{cLocEmi}_{tpInsc}_{inscFed}_{serie}_{nDPS}`: 7, 1, 14, 5 and 15 positions; tpInsc 1 is CPF, 2 is CNPJ."""
    if not re.match(r"^[0-9]{7}\Z", municipio, re.ASCII):
        raise invalid("DPS: código IBGE do município com 7 dígitos.")
    if not 1 <= serie <= 49_999:
        raise invalid("DPS: séries de aplicativo próprio vão de 1 a 49999.")
    if not 1 <= numero_dps <= 999_999_999_999_999:
        raise invalid("DPS: número de 1 a 999999999999999.")
    cpf = len(re.sub(r"[./\s-]", "", inscricao)) == 11
    quem = f"1_{cpf_limpo(inscricao):0>14}" if cpf else f"2_{cnpj_limpo(inscricao)}"
    return f"{municipio}_{quem}_{serie:05d}_{numero_dps:015d}"


def id_dps(id_idempotencia: str) -> str:
    """The Id of a DPS, 45 positions, from the seed's identifier: the same parts without their separators."""
    return "DPS" + id_idempotencia.replace("_", "")


_DPS = re.compile(r"^DPS([0-9]{7})([12])([0-9A-Z]{12}[0-9]{2})([0-9]{5})([0-9]{15})\Z", re.ASCII)
_NFSE = re.compile(r"^[0-9]{9}[0-9A-Z]{12}[0-9]{29}\Z", re.ASCII)


def id_de_dps(texto: str) -> str | None:
    """The seed's identifier in the Id of a DPS; None for what is none."""
    found = _DPS.match(texto)
    return None if found is None else "_".join(found.groups())


def chave_nfse(texto: Any) -> bool:
    """Whether a text has the form of a national NFS-e's key: 50 positions, a CNPJ's letters at 10 to 21.

    How its check digit is made is not published, so that none is asked for.
    """
    return isinstance(texto, str) and bool(_NFSE.match(texto))


def id_pedido_evento(chave: str, tp_evento: str) -> str:
    """The Id of an event request about a national NFS-e, 59 positions: the same act has the same one."""
    if not chave_nfse(chave) or not re.match(r"^[0-9]{6}\Z", tp_evento, re.ASCII):
        raise invalid("evento: chave com 50 posições e tipo com 6 dígitos.")
    return f"PRE{chave}{tp_evento}"


def cnf_valido(cnf: str, nnf: int) -> bool:
    """Whether the authority takes this random code for this number (rule B03-10, rejection 897)."""
    return bool(_DIGITS.match(cnf)) and len(cnf) == 8 and cnf not in OBVIOUS_CNF and int(cnf) != nnf


def sortear_cnf(nnf: int, sorteio: Callable[[int], int] = secrets.randbelow) -> str:
    """A random code for a number; drawn once in a document's life."""
    while not cnf_valido(cnf := f"{sorteio(100_000_000):08d}", nnf):
        continue
    return cnf


def id_evento(tp_evento: str, chave: str, sequencia: int) -> str:
    """The Id of an event: the same act has the same one, so that a repeat is recognised."""
    if not re.match(r"^[0-9]{6}\Z", tp_evento, re.ASCII) or not 1 <= sequencia <= 99:
        raise invalid("evento: tipo com 6 dígitos e sequência de 1 a 99.")
    return f"ID{tp_evento}{chave}{sequencia:02d}"


def id_inutilizacao(cuf: str, ano: str, cnpj: str, mod: str, serie: int, primeiro: int, ultimo: int) -> str:
    """The Id of a voiding request."""
    if not (1 <= primeiro <= ultimo <= 999_999_999 and 0 <= serie <= 999 and re.match(r"^[0-9]{2}\Z", ano, re.ASCII)):
        raise invalid("inutilização: série de 0 a 999 e números em ordem, de 1 a 999999999.")
    return f"ID{cuf}{ano}{cnpj}{mod}{serie:03d}{primeiro:09d}{ultimo:09d}"


def invalid(detail: str) -> Problem:
    """A 422 problem."""
    return Problem(422, "dados-invalidos", "Dados inválidos", detail)
