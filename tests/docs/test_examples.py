"""Every Python block in the README and the docs is run, file by file, in an empty folder.

A block belongs to its file: names made in one are there in the next. Server addresses in the text are
those of this test run. A block fenced as `python async` runs inside a coroutine; a ```console block
shows commands, and those that start with `umavez` are run as they stand.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("README*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(?P<kind>[a-z]+)(?P<note>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
SERVERS = {
    "postgresql://localhost/loja": "postgres_url",
    "mariadb://localhost/loja": "mariadb_url",
    "redis://localhost/0": "redis_url",
    "amqp://localhost/": "rabbitmq_url",
}


def blocks(page: Path) -> list[tuple[str, str, int, str]]:
    text = page.read_text()
    return [
        (match["kind"], match["note"].strip(), text[: match.start()].count("\n") + 2, match["text"])
        for match in FENCE.finditer(text)
    ]


def placed(text: str, request: pytest.FixtureRequest) -> str:
    """`text` with this run's servers in place of the documented addresses."""
    for address, fixture in SERVERS.items():
        if address in text:
            text = text.replace(address, request.getfixturevalue(fixture))
    return text


def run_python(page: Path, line: int, note: str, text: str, names: dict[str, Any]) -> None:
    source = "\n" * (line - 1) + textwrap.dedent(text)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if note == "async" else 0
    result = eval(compile(source, str(page), "exec", flags=flags), names)  # noqa: S307  # our own documentation
    if inspect.iscoroutine(result):
        names["__loop__"].run_until_complete(result)


def run_console(text: str) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
    for line in text.splitlines():
        if line.startswith("$ umavez "):
            done = subprocess.run(
                shlex.split(line[2:]), capture_output=True, text=True, check=False, env=environment, timeout=60
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(
    page: Path, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page, request, monkeypatch)
    if "tutorial" in page.parts:
        # A reader tries again, in the folder where the records of the first time are.
        run_page(page, request, monkeypatch)


def run_page(page: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"__name__": f"page_{page.stem.replace('-', '_')}", "__loop__": asyncio.new_event_loop()}
    # Dataclasses made on a page are looked up by module name when they are replayed.
    module = type(sys)(names["__name__"])
    module.__dict__.update(names)
    monkeypatch.setitem(sys.modules, names["__name__"], module)
    try:
        for kind, note, line, text in blocks(page):
            if kind == "python" and note != "sketch":
                run_python(page, line, note, placed(text, request), module.__dict__)
            elif kind == "console":
                run_console(placed(text, request))
    finally:
        module.__dict__["__loop__"].close()


def test_there_are_pages_with_examples() -> None:
    assert sum(kind == "python" for page in PAGES for kind, *_ in blocks(page)) > 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} points to {target}"


def test_a_shell_takes_every_command_as_it_is_written() -> None:
    """A question mark is a pattern to zsh, which runs nothing where no file matches it."""
    bare = re.compile(r"^[^`\n]*?\bumavez [^`'\n]*\s(?![A-Z_]+=)[^\s`'\"]*\?[a-z]+=", re.MULTILINE)
    found = [f"{page.name}: {match[0]}" for page in PAGES for match in bare.finditer(page.read_text())]
    assert not found
