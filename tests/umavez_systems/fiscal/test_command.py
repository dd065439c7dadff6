"""`umavez fiscal`: from an order in a file to its proof, checked offline; and the commands that stand alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.umavez_systems.fiscal.conftest import _SERIES, Mundo, prepared
from tests.umavez_systems.fiscal.test_web import CITY, SERVICE
from umavez_systems.fiscal.web import EXAMPLE

UMAVEZ = Path(sys.executable).parent / "umavez"


class Shell:
    """Runs the command line on one database."""

    def __init__(self, folder: Path, world: Mundo) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "UMAVEZ_DATABASE": f"sqlite:///{folder}/loja.db",
            "UMAVEZ_FISCAL_DIR": str(world.folder),
            "UMAVEZ_FISCAL_SETTLE_SECONDS": "0",
        }

    def run(self, *words: str, fails: bool = False) -> str:
        done = subprocess.run(
            [UMAVEZ, "fiscal", *words],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def shell(tmp_path: Path, mundo: Mundo) -> Shell:
    prepared(f"sqlite:///{tmp_path}/loja.db", mundo.folder)
    return Shell(tmp_path, mundo)


def test_an_order_is_emitted_shown_and_its_proof_checked_offline(shell: Shell) -> None:
    order: dict[str, Any] = {**EXAMPLE, "serie": next(_SERIES)}
    (shell.folder / "pedido.json").write_text(json.dumps(order))
    made = json.loads(shell.run("emitir", "pedido.json", "--key", "k", "--json"))
    assert (made["estado"], made["numero"]) == ("AUTORIZADO", 1)
    shell.run("prova", "exportar", made["id"], "--para", "prova.json")
    assert "A prova está inteira" in shell.run("prova", "verificar", "prova.json")
    proof = json.loads((shell.folder / "prova.json").read_text())
    proof["entradas"][2]["conteudo"] = "{}"
    (shell.folder / "prova.json").write_text(json.dumps(proof))
    assert "o conteúdo foi mudado" in shell.run("prova", "verificar", "prova.json", fails=True)
    assert "autorizado 1" in shell.run("numeracao")


def test_a_file_of_all_four_kinds_is_emitted_and_listed_together(shell: Shell) -> None:
    serie = next(_SERIES)
    kinds = [EXAMPLE, {**EXAMPLE, "tipo": "NFCE"}, SERVICE, CITY]
    (shell.folder / "pedidos.json").write_text(json.dumps([{**kind, "serie": serie} for kind in kinds]))
    made = json.loads(shell.run("emitir", "pedidos.json", "--key", "k", "--json"))
    assert {one["estado"] for one in made} == {"AUTORIZADO"}
    again = json.loads(shell.run("emitir", "pedidos.json", "--key", "k", "--json"))
    assert [one["id"] for one in again] == [one["id"] for one in made]
    listed = json.loads(shell.run("documentos", "--json"))
    assert {row["tipo"] for row in listed} == {"NFE", "NFCE", "NFSE_ADN", "NFSE_SP"}
    shell.run("cancelar", made[3]["id"], "--justificativa", "Pedido desfeito pelo cliente")
    asked = shell.run("conciliar", made[3]["id"])
    assert "CANCELADO" in asked
    assert made[3]["id"] in asked, "whole, to be copied"


def test_files_of_the_city_go_in_one_message_and_a_repeat_shows_the_same_documents(shell: Shell, mundo: Mundo) -> None:
    serie = next(_SERIES)
    (shell.folder / "um.json").write_text(json.dumps({**CITY, "serie": serie}))
    (shell.folder / "dois.json").write_text(json.dumps([{**CITY, "serie": serie}] * 2))
    words = ("emitir", "--lote", "um.json", "dois.json", "--key", "k")

    def messages() -> int:
        return sum(row["vezes"] for row in mundo.livro()["chamadas"] if row["servico"] == "sp/autorizacao")

    before = messages()
    told = shell.run(*words)
    assert "3 documento(s) no lote: 3 AUTORIZADO." in told
    assert messages() - before == 1
    again = json.loads(shell.run(*words, "--transacao", "--json"))
    assert [(one["numero"], one["origem"]) for one in again] == [(number, "cache") for number in (1, 2, 3)]
    assert all(one["id"] in told for one in again)
    (shell.folder / "nota.json").write_text(json.dumps({**EXAMPLE, "serie": serie}))
    assert "NFSE_SP" in shell.run("emitir", "--lote", "um.json", "nota.json", fails=True)
    assert "--lote" in shell.run("emitir", "um.json", "--transacao", fails=True)


def test_a_mistake_is_one_sentence(shell: Shell) -> None:
    (shell.folder / "ruim.json").write_text("{")
    (shell.folder / "outro.json").write_text('{"tipo": "X"}')
    assert shell.run("emitir", "ruim.json", fails=True).startswith("umavez: ruim.json: O corpo não é JSON")
    assert shell.run("emitir", "outro.json", "ruim.json", fails=True).startswith("umavez: outro.json: tipo: um de NFE")


def test_a_demonstration_certificate_opens_with_its_password(tmp_path: Path) -> None:
    from umavez_systems.fiscal.wire.certificate import Certificado

    words = ["certificado-demo", "a1.pfx", "--cnpj", "12.ABC.345/01DE-35", "--state", "sim"]
    done = subprocess.run([UMAVEZ, "fiscal", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = Certificado.lido((tmp_path / "a1.pfx").read_bytes(), "demonstracao")
    assert made.cnpj == "12ABC34501DE35"
    assert (tmp_path / "a1.pfx").stat().st_mode & 0o077 == 0
