"""The real command in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

WITHOUT = "import sys; sys.modules[{name!r}] = None; from umavez.cli import main; sys.argv = ['umavez']; main()"
STOPPED = """
import sys, umavez.cli

def stopped(name):
    raise KeyboardInterrupt

umavez.cli.import_module = stopped
umavez.cli.main()
"""


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if name != "UMAVEZ_STORE"}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=60, env=known | environment, check=False
    )


def test_a_store_is_made_and_looked_at(sqlite_url: str) -> None:
    made = run("-m", "umavez.cli", "migrate", UMAVEZ_STORE=sqlite_url)
    assert (made.returncode, made.stderr) == (0, "")
    listed = run("-m", "umavez.cli", "records", "list", "--json", UMAVEZ_STORE=sqlite_url)
    assert json.loads(listed.stdout) == {"records": [], "more": False, "next": None}


def test_an_error_is_a_sentence_and_not_a_traceback(sqlite_url: str) -> None:
    run("-m", "umavez.cli", "migrate", UMAVEZ_STORE=sqlite_url)
    missing = run("-m", "umavez.cli", "records", "show", "a", "b", "c", "--store", sqlite_url)
    assert missing.returncode == 1
    assert missing.stderr == "umavez: Nothing is recorded for b 'c' of 'a'.\n"


def test_a_terminal_without_utf8_still_gets_the_table() -> None:
    words = ("-m", "umavez.cli", "doctor", "--store", "memory:", "--all")
    shown = run(*words, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "durability = none" in shown.stdout


def test_the_version_is_printed() -> None:
    assert run("-m", "umavez.cli", "--version").stdout.startswith("umavez ")


def test_without_the_extra_one_sentence_says_how_to_get_it() -> None:
    for name in ("typer", "rich"):
        bare = run("-c", WITHOUT.format(name=name))
        assert bare.returncode == 2
        assert bare.stderr.strip() == (
            f"The umavez command needs {name}, which is not installed; run: pip install 'umavez[cli]'"
        )


def test_who_stops_it_before_it_has_begun_is_shown_no_traceback() -> None:
    stopped = run("-c", STOPPED)
    assert (stopped.returncode, stopped.stderr) == (130, "")


def test_importing_the_package_loads_nothing_heavy() -> None:
    names = ("typer", "rich", "psycopg", "pymysql", "redis")
    loaded = f"import sys, umavez.cli; print([name for name in {names} if name in sys.modules])"
    assert run("-c", loaded).stdout.strip() == "[]"


def test_the_commands_load_no_driver() -> None:
    names = ("psycopg", "pymysql", "redis", "sqlite3")
    loaded = f"import sys, umavez.cli.app; print([name for name in {names} if name in sys.modules])"
    assert run("-c", loaded).stdout.strip() == "[]"
