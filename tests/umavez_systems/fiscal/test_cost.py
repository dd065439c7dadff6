"""What an emission costs the database, and that a used key costs it neither a number nor a wait."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.umavez_systems.fiscal.conftest import Loja, Mundo
from umavez.sequences import Sequences
from umavez_systems.fiscal.organizations import bloquear
from umavez_systems.postgres.patience import PatientConnection
from umavez_systems.problems import Problem

ROUND_TRIPS = 7
"""BEGIN with the number, the document with its proof, the claim, COMMIT; BEGIN with the answer, the end, COMMIT."""


@pytest.fixture
def loja_pg(postgres_url: str, mundo: Mundo) -> Iterator[Loja]:
    made = Loja(postgres_url, mundo)
    yield made
    made.fechar()


@pytest.mark.postgres
def test_an_emission_waits_seven_times_for_the_database(loja_pg: Loja, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(4):  # until every statement is prepared
        loja_pg.emitir()
    waits: list[str] = []
    waiting = PatientConnection.wait

    def wait(self: PatientConnection, gen: Any, *args: Any, **options: Any) -> Any:
        waits.append(gen.__name__)
        return waiting(self, gen, *args, **options)

    monkeypatch.setattr(PatientConnection, "wait", wait)
    made = loja_pg.emitir()

    assert made.row["estado"] == "AUTORIZADO"
    assert len(waits) == ROUND_TRIPS, waits


def test_a_used_key_is_answered_while_its_series_is_held_and_takes_no_number(loja: Loja) -> None:
    first = loja.emitir("a")
    if not loja.url.startswith("sqlite"):  # where a transaction holds the whole file
        with loja.banco.transaction() as connection, ThreadPoolExecutor(1) as other:
            loja.atos.numeracao.reter(connection, first.row["org_id"], "55", [loja.serie])
            again = other.submit(loja.emitir, "a").result(5)
        assert (again.row["id"], again.repetida, again.origem) == (first.row["id"], True, "cache")

    assert loja.emitir("a").row["id"] == first.row["id"]
    assert loja.emitir("b").row["numero"] == first.row["numero"] + 1


def test_a_used_key_is_answered_whatever_stands_in_the_way_of_a_new_document(loja: Loja) -> None:
    first = loja.emitir("a")
    with loja.banco.transaction() as connection:
        bloquear(connection, first.row["org_id"], "55", loja.serie, True)

    assert loja.emitir("a").row["id"] == first.row["id"]
    with pytest.raises(Problem) as blocked:
        loja.emitir("b")
    assert blocked.value.name == "serie-bloqueada"
    with pytest.raises(Problem) as other:
        loja.emitir("a", natureza="Outra venda")
    assert other.value.name == "chave-reutilizada"
    with loja.banco.transaction() as connection:
        bloquear(connection, first.row["org_id"], "55", loja.serie, False)
    assert loja.emitir("b").row["numero"] == first.row["numero"] + 1


def test_a_stretch_of_numbers_that_is_used_up_is_gone_past(loja: Loja) -> None:
    first = loja.emitir()
    with loja.banco.transaction() as connection:
        at = first.row["numero"] + 1
        place = (connection.raw, first.row["org_id"], f"55/{loja.serie}")
        Sequences().block_range(*place, at, at + 2, reason="teste")

    assert [loja.emitir().row["numero"] for _ in range(2)] == [at + 3, at + 4]
    with loja.banco.statements() as connection:
        row = connection.row("SELECT ultimo_numero FROM faixas_numeracao WHERE serie = ?", (loja.serie,))
    assert row == {"ultimo_numero": at + 4}
