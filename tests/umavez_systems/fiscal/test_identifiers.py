"""Identifiers of fiscal documents: composed exactly, checked, never through a number where letters may stand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umavez_systems.fiscal.rules.identifiers import (
    TP_EMIS,
    UFS,
    Chave,
    cnf_valido,
    cnpj_limpo,
    digito,
    id_evento,
    id_idempotencia_adn,
    id_idempotencia_sp,
    id_inutilizacao,
    sortear_cnf,
)
from umavez_systems.problems import Problem

QUICK = settings(deadline=None, max_examples=60)
"""A loaded machine is no fault of the code."""
CNPJS = st.text("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=12, max_size=12).map(lambda body: f"{body}00")
CHAVES = st.builds(
    Chave,
    st.sampled_from(sorted(UFS.values())),
    st.builds("{:02d}{:02d}".format, st.integers(6, 99), st.integers(1, 12)),
    CNPJS,
    st.sampled_from(["55", "65"]),
    st.integers(0, 999),
    st.integers(1, 999_999_999),
    st.sampled_from(sorted(TP_EMIS)),
    st.integers(0, 99_999_999).map("{:08d}".format),
)


@QUICK
@given(CHAVES)
def test_s4_01_a_key_has_44_positions_and_reads_back_as_itself(chave: Chave) -> None:
    assert len(str(chave)) == 44
    assert Chave.lida(str(chave)) == chave


@QUICK
@given(CHAVES, st.integers(0, 43), st.sampled_from("0123456789"))
def test_s4_01_a_key_with_one_digit_changed_is_refused_by_its_check_digit(chave: Chave, place: int, mark: str) -> None:
    text = str(chave)
    changed = text[:place] + mark + text[place + 1 :]
    if changed != text and digito(changed[:43]) != changed[43]:
        with pytest.raises(Problem):
            Chave.lida(changed)


@QUICK
@given(CHAVES)
def test_s4_01_the_seeds_identifier_has_every_part_of_the_key_but_the_month(chave: Chave) -> None:
    parts = chave.id_idempotencia.split("_")
    text = str(chave)
    assert [len(part) for part in parts] == [2, 14, 2, 3, 9, 1, 8]
    assert "".join(parts) == text[:2] + text[6:43]


@QUICK
@given(CHAVES, CHAVES)
def test_s4_01_different_identifiers_are_different_documents(one: Chave, other: Chave) -> None:
    same = (one.cuf, one.cnpj, one.mod, one.serie, one.nnf, one.tp_emis, one.cnf) == (
        other.cuf, other.cnpj, other.mod, other.serie, other.nnf, other.tp_emis, other.cnf,
    )  # fmt: skip
    assert (one.id_idempotencia == other.id_idempotencia) is same


def test_s4_01_check_digits_of_letters_count_from_seventeen() -> None:
    assert digito("35261112ABC34501DE3555001000000012140817263") == "0"


def test_s4_01_the_official_alphanumeric_cnpj_is_accepted_and_a_wrong_one_is_not() -> None:
    assert cnpj_limpo("12.ABC.345/01DE-35") == "12ABC34501DE35"
    with pytest.raises(Problem):
        cnpj_limpo("12.ABC.345/01DE-36")


def test_s4_01_the_natural_key_leaves_out_what_a_second_attempt_would_change() -> None:
    chave = Chave("35", "2611", "12ABC34501DE35", "55", 1, 7, "1", "40817263")
    later = Chave("35", "2612", "12ABC34501DE35", "55", 1, 7, "1", "11817264")
    assert chave.natural("2") == later.natural("2") != chave.natural("1")
    assert Chave("35", "2611", "12ABC34501DE35", "65", 1, 7, "1", "40817263").natural("2")[-2:] == "_1"


def test_s4_01_identifiers_of_service_invoices_have_the_seeds_widths() -> None:
    assert id_idempotencia_sp("1234567", " OL03 ", 42) == "01234567_OL03_000000000042"
    assert (
        id_idempotencia_adn("3550308", "12.ABC.345/01DE-35", 7, 9) == "3550308_2_12ABC34501DE35_00007_000000000000009"
    )
    assert id_idempotencia_adn("3550308", "529.982.247-25", 7, 9).split("_")[1:3] == ["1", "00052998224725"]


@pytest.mark.parametrize("serie", [0, 50_000, 70_000])
def test_s4_01_series_of_other_applications_are_refused(serie: int) -> None:
    with pytest.raises(Problem):
        id_idempotencia_adn("3550308", "529.982.247-25", serie, 1)


@pytest.mark.parametrize(
    "cnf", ["00000000", "77777777", "12345678", "90123456", "01234567", "1234567", "1234567A", "²2345679"]
)
def test_codes_that_the_authority_refuses_with_897_are_never_valid(cnf: str) -> None:
    assert not cnf_valido(cnf, 1)


@QUICK
@given(st.integers(1, 999_999_999), st.lists(st.integers(0, 99_999_999), min_size=1))
def test_the_drawn_code_is_never_one_that_897_refuses(nnf: int, draws: list[int]) -> None:
    after = iter([*draws, 11_111_111, nnf % 100_000_000, 40_817_263, 58_231_904])
    assert cnf_valido(sortear_cnf(nnf, lambda _: next(after)), nnf)


def test_ids_of_events_and_voidings_have_their_official_lengths() -> None:
    chave = str(Chave("35", "2611", "12ABC34501DE35", "55", 1, 7, "1", "40817263"))
    assert len(id_evento("110111", chave, 1)) == 54
    assert len(id_inutilizacao("35", "26", "12ABC34501DE35", "55", 1, 7, 9)) == 43
