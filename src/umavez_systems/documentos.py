"""CPF and CNPJ: check digits, the alphanumeric CNPJ of 2026 included. Pure."""

from __future__ import annotations

import re

_CPF = re.compile(r"[0-9]{3}\.?[0-9]{3}\.?[0-9]{3}-?[0-9]{2}")
_CNPJ = re.compile(r"[0-9A-Z]{2}\.?[0-9A-Z]{3}\.?[0-9A-Z]{3}/?[0-9A-Z]{4}-?[0-9]{2}")
_CPF_WEIGHTS = (11, 10, 9, 8, 7, 6, 5, 4, 3, 2)
_CNPJ_WEIGHTS = (6, 5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2)


def valid_document(text: str) -> bool | None:
    """Whether a CPF or CNPJ is right; None when the text looks like neither."""
    text = text.strip().upper()
    bare = re.sub(r"[./-]", "", text)
    if _CPF.fullmatch(text):
        return _checked(bare, _CPF_WEIGHTS)
    if _CNPJ.fullmatch(text):
        return _checked(bare, _CNPJ_WEIGHTS)
    return None


def _checked(bare: str, weights: tuple[int, ...]) -> bool:
    # One character repeated passes the arithmetic and is never issued.
    if len(set(bare)) == 1:
        return False
    body = bare[:-2]
    for tail in (weights[1:], weights):
        body += str(_digit(body, tail))
    return body == bare


def _digit(body: str, weights: tuple[int, ...]) -> int:
    """Modulo 11 over character codes minus 48, by which digits count as themselves and letters from 17 on."""
    rest = sum((ord(mark) - 48) * weight for mark, weight in zip(body, weights, strict=True)) % 11
    return 0 if rest < 2 else 11 - rest
