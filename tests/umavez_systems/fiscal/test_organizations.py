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


def test_a_replaced_access_is_closed(loja_local: Loja, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Autoridade] = []
    first = registered(loja_local)
    monkeypatch.setattr(type(first), "close", _note(closed))
    made = [renewed(loja_local) for _ in range(3)]
    assert len({id(first), *map(id, made)}) == 4
    assert closed == [first, *made[:2]]


def test_no_more_accesses_are_open_than_allowed(loja_local: Loja, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several the one goes that nobody has asked for since; asked for again, it is opened anew."""
    monkeypatch.setattr(organizations, "MOST_OPEN", 2)
    closed: list[Autoridade] = []
    them = loja_local.sistema.organizacoes
    them.criar("local", {**DEMO_DATA, "cnpj": CNPJ}, loja_local.mundo.pfx, "segredo", "simulador")
    note = them.autoridade("local/demo", Tipo.NFE)
    monkeypatch.setattr(type(note), "close", _note(closed))
    service = them.autoridade("local/demo", Tipo.NFSE_ADN)
    assert them.autoridade("local/demo", Tipo.NFE) is note
    paulistana = them.autoridade("local/demo", Tipo.NFSE_SP)
    assert them.autoridade("local/demo", Tipo.NFE) is note
    assert them.autoridade("local/demo", Tipo.NFSE_SP) is paulistana
    assert them.autoridade("local/demo", Tipo.NFSE_ADN) is not service
    assert closed == [note]


def _note(closed: list[Autoridade]) -> Callable[[Autoridade], None]:
    """A method that keeps whose it was: a bound `append` would be asked without."""

    def close(access: Autoridade) -> None:
        closed.append(access)

    return close
