"""The systems' commands: what is wrong is one sentence without a secret, and looking makes no file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from umavez.cli.app import app

LOOKING = [
    ("mailing", "list"),
    ("mailing", "pause", "00000000-0000-0000-0000-000000000000"),
    ("fiscal", "documentos"),
    ("fiscal", "numeracao"),
    ("processos", "list"),
    ("corridas", "sweep"),
    ("propostas", "sweep"),
]
"""Commands that look, or decide about what must be there already."""


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `umavez` in an empty folder with an environment that says nothing."""
    for name in [name for name in os.environ if name.startswith("UMAVEZ_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, list(words), prog_name="umavez")


@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_a_mistyped_database_is_told_and_not_made(run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run(*words, "--database", "sqlite:///none/typo.db")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "There is no file none/typo.db" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("serve",), *LOOKING], ids=" ".join)
@pytest.mark.parametrize("url", ["postgresql://u:geheim%@h/d", "oracle://u:geheim@h/d"])
def test_a_url_that_cannot_be_read_is_one_sentence_without_its_password(
    run: Run, words: tuple[str, ...], url: str
) -> None:
    done = run(*words, "--database", url)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "geheim" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("mailing", "upload", "lista.csv", "--texto", "latin1.txt"), 2, "UTF-8"),
        (("mailing", "upload", "lista.csv", "--texto", "."), 2, "directory"),
        (("mailing", "sink", "--ledger", "none/ledger"), 1, "none/ledger: No such file or directory"),
        (("processos", "tiss", "."), 2, "directory"),
        (("fiscal", "certificado-demo", "none/a1.pfx", "--cnpj", "11222333000181", "--state", "sim"), 1, "none/a1.pfx"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_words(
    run: Run, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "lista.csv").write_text("email\na@b.com\n")
    (tmp_path / "latin1.txt").write_bytes(b"ol\xe1")
    done = run(*words)
    assert done.exit_code == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
