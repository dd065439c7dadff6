"""CPF and CNPJ check digits, the alphanumeric CNPJ of 2026 included."""

from __future__ import annotations

import pytest

from umavez_systems.documentos import valid_document


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("123.456.789-09", True),
        ("12345678909", True),
        ("123.456.789-00", False),
        ("111.111.111-11", False),
        ("11.222.333/0001-81", True),
        ("11222333000181", True),
        ("11.222.333/0001-80", False),
        ("12.ABC.345/01DE-35", True),
        ("12abc34501de35", True),
        ("12.ABC.345/01DE-36", False),
        ("00.000.000/0000-00", False),
        ("RG 1234", None),
        ("", None),
    ],
)
def test_check_digits(text: str, valid: bool | None) -> None:
    assert valid_document(text) is valid
