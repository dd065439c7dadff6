"""Numbers of a series (seed 004 §9.2) under sixteen processes: each given once, none left out, rollbacks given back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.umavez_systems.fiscal.conftest import prepared
from umavez_systems.database import open_database

PROGRAMME = """
import os, sys
from umavez_systems.database import open_database
from umavez_systems.fiscal.database import Dialect
from umavez_systems.fiscal.numbering import Numeracao

def take():
    database = open_database(sys.argv[1], 1)
    numbers = Numeracao(Dialect(database))
    for turn in range(8):
        try:
            with database.transaction() as connection:
                number = numbers.proximo(connection, "local/demo", "55", 1)
                if turn % 4 == 3:
                    raise KeyError("the transaction is rolled back, and its number goes to somebody else")
                os.write(1, f"{number}\\n".encode())
        except KeyError:
            continue

children = []
for _ in range(16):
    child = os.fork()
    if child == 0:
        take()
        os._exit(0)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.slow
def test_s4_10_sixteen_processes_get_every_number_once_and_leave_no_gap(database: str, tmp_path: Path) -> None:
    prepared(database, tmp_path)
    link = open_database(database, 1)
    with link.transaction() as connection:
        connection.rows(
            "INSERT INTO fiscal_organizacoes (id, principal, nome, cnpj, uf, ambiente, emitente, certificado,"
            " certificado_vence_em, criado_em)"
            " VALUES ('local/demo', 'local', 'demo', '', 'SP', 'simulador', '', '', 0, 0)"
        )
    command = [sys.executable, "-c", PROGRAMME, database]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    given = [int(line) for line in done.stdout.split()]

    assert sorted(given) == list(range(1, 16 * 6 + 1))
    with link.statements() as connection:
        row = connection.row("SELECT ultimo_numero FROM faixas_numeracao") or {}
    assert row["ultimo_numero"] == 16 * 6
    link.close()
