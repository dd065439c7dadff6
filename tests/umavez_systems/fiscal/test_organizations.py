"""Organisations: what is registered again and again leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.umavez_systems.fiscal.conftest import CNPJ, Loja
from umavez_systems.fiscal import organizations
from umavez_systems.fiscal.assembly import DEMO_DATA
from umavez_systems.fiscal.domain import Tipo
from umavez_systems.fiscal.ports import Autoridade


def registered(loja: Loja) -> Autoridade:
    """Register the same organisation with the same certificate again; returns its access."""
    them = loja.sistema.organizacoes
    them.criar("local", {**DEMO_DATA, "cnpj": CNPJ}, loja.mundo.pfx, "segredo", "simulador")
    return them.autoridade("local/demo", Tipo.NFE)


def renewed(loja: Loja) -> Autoridade:
    """The same after the certificate has ended, so that this one takes its place."""
    with loja.banco.transaction() as connection:
        connection.rows("UPDATE fiscal_organizacoes SET certificado_vence_em = 1")
    return registered(loja)


def test_an_organisation_registered_again_keeps_its_access(loja_local: Loja) -> None:
    first = registered(loja_local)
    assert all(registered(loja_local) is first for _ in range(5))


def test_a_replaced_access_is_closed_once_nobody_can_be_sending_through_it(
    loja_local: Loja, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    closed: list[Autoridade] = []
    monkeypatch.setattr(organizations, "elapsed", lambda: now)
    monkeypatch.setattr(type(registered(loja_local)), "close", _note(closed))
    made = []
    for _ in range(4):
        made.append(renewed(loja_local))
        now += organizations.LONGEST_USE / 2 + 1
    assert len(set(map(id, made))) == 4
    assert closed[1:] == made[:1], "the one before all, and the first; the rest may be in use"
    assert len(closed) == 2


def _note(closed: list[Autoridade]) -> Callable[[Autoridade], None]:
    """A method that keeps whose it was: a bound `append` would be asked without."""

    def close(access: Autoridade) -> None:
        closed.append(access)

    return close
