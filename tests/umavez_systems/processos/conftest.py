"""A payer's portal in a process of its own, and claims to hand in."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from umavez_systems.settings import Settings


def claim(number: str = "1", **changed: Any) -> dict[str, Any]:
    """A lote of one guia, as JSON."""
    guia = {
        "numeroGuiaPrestador": f"G-{number}",
        "carteira": "00123456789",
        "beneficiario": "Maria Souza",
        "procedimento": "10101012",
        "valor": "150.00",
        "dataAtendimento": "2026-07-01",
        **changed,
    }
    lote = {"operadora": "326305", "prestador": "2077469", "numeroLote": f"L-{number}", "tipoGuia": "sp_sadt"}
    return {**lote, "guias": [guia]}


class Payer:
    """The simulator as a test sees it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = httpx.Client(base_url=url, timeout=10)

    def meets(self, *faults: str) -> None:
        """Let the next requests meet `faults`, one each."""
        self._client.post("/simulator/faults", json={"next": list(faults)}).raise_for_status()

    def places(self, protocolo: str, situacao: int) -> None:
        """Let the payer's analysis of a protocolo stand at `situacao`."""
        body = {"protocolo": protocolo, "situacao": situacao}
        self._client.post("/simulator/situacao", json=body).raise_for_status()

    def denies(self, protocolo: str, guia: str, codigo: str, valor: str) -> None:
        """Let the payer's analysis end with a glosa."""
        body = {"protocolo": protocolo, "guia": guia, "codigo": codigo, "valor": valor}
        self._client.post("/simulator/glosa", json=body).raise_for_status()

    def decides(self, recurso: str, situacao: str, acatado: str) -> None:
        """Let the payer decide a recurso."""
        body = {"recurso": recurso, "situacao": situacao, "acatado": acatado}
        self._client.post("/simulator/recurso", json=body).raise_for_status()

    def refuses_duplicates(self) -> None:
        """Let the payer refuse what it has already."""
        self._client.post("/simulator/duplicados", json={"duplicates": True}).raise_for_status()

    def appeals_elsewhere(self, operadora: str, protocolo: str, numero: str) -> None:
        """Let somebody else hand in a recurso of that number."""
        name = {"operadora": operadora, "protocolo": protocolo, "numeroRecurso": numero}
        self._client.post("/recursos", json={**name, "referencia": "other", "itens": []}).raise_for_status()

    @property
    def appeals(self) -> list[dict[str, Any]]:
        return self._ledger("appeals")

    @property
    def submissions(self) -> list[dict[str, Any]]:
        return self._ledger("submissions")

    @property
    def payments(self) -> list[dict[str, Any]]:
        return self._ledger("payments")

    def _ledger(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._client.get("/simulator/ledger").json()[name]
        return found

    def close(self) -> None:
        self._client.close()


def simulated(folder: Path, *options: str) -> Iterator[Payer]:
    """A simulator with `options`, ended afterwards."""
    command = [sys.executable, "-m", "umavez_systems.processos.portal.simulator", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--database", str(folder / "portal.db"), *options], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    payer = Payer(process.stdout.readline().strip())
    try:
        yield payer
    finally:
        payer.close()
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def payer(tmp_path: Path) -> Iterator[Payer]:
    """A portal that does as it is told, and holds for a moment where it is told to hang."""
    yield from simulated(tmp_path, "--hold", "1.0")


@pytest.fixture
def settings(database: str, payer: Payer) -> Settings:
    """Settings for the portal, without waiting: a request that is lost here is never on its way."""
    return Settings(
        database=database,
        portal_url=payer.url,
        portal_quiet_seconds=0,
        portal_timeout_seconds=0.5,
        processos_pause_seconds=0.01,
        processos_lease_seconds=5,
    )
