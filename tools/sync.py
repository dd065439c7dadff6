"""Writes the synchronous modules from the asynchronous ones, so that both are one text.

    python tools/sync.py           # write every module of PAIRS anew
    python tools/sync.py --check   # write nothing; exit 1 and show the difference where one is out of date

A name or a word in a comment loses its mark of asynchrony (`AsyncOnce` becomes `Once`, `async_wait` becomes
`wait`); `async` and `await` go. What cannot be said by that rule stands in RENAMED. Where waiting itself
differs, not only its spelling, both texts are written by hand, in `umavez/concurrency`.
"""

from __future__ import annotations

import difflib
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "umavez"
RUFF = Path(sys.executable).with_name("ruff")


def _pairs() -> dict[Path, Path]:
    """Each source with where its text goes: a module `_async.py`, or any module of a folder `_async`."""
    sources = [*SOURCE.rglob("_async.py"), *SOURCE.rglob("_async/*.py")]
    return {
        source: SOURCE / str(source.relative_to(SOURCE)).replace("_async", "_sync")
        for source in sorted(sources)
        if source.name != "__init__.py"
    }


PAIRS = _pairs()

RENAMED = {
    "_async": "_sync",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "aread": "read",
    "AsyncByteStream": "SyncByteStream",
    "asynccontextmanager": "contextmanager",
    "asyncio": "threading",
    "handle_async_request": "handle_request",
    "open_async_store": "open_store",
    "StopAsyncIteration": "StopIteration",
    "iscoroutinefunction": "isfunction",
}
PHRASES = {
    "anyio.sleep": "time.sleep",
    "asyncio.sleep": "time.sleep",
    "for tasks": "for threads",
    "on a connection whose verbs are awaited": "on a connection of the standard library's driver",
    "shared by the tasks of one loop": "shared by threads",
    "an Async": "a ",
}


def synchronous(text: str, source: str) -> str:
    """The synchronous text of an asynchronous module."""
    for phrase, plain in PHRASES.items():
        text = text.replace(phrase, plain)
    if "time.sleep" in text:
        text = text.replace("import asyncio\n", "import asyncio\nimport time\n", 1)
    text = _without_awaitable(_without_keywords(text))
    text = re.sub(r"\w+", lambda word: _plain(word.group()), text)
    head = f"# Written by tools/sync.py from {source}: change that, then run `make format`.\n"
    return _formatted(head + text)


def _plain(word: str) -> str:
    if word in RENAMED:
        return RENAMED[word]
    word = re.sub(r"^(_*)Async(?=[A-Z])", r"\1", word)
    return re.sub(r"^(_*)async_(?=[a-z])", r"\1", word)


def _without_keywords(text: str) -> str:
    """`text` without the keywords async and await, which are tokens and so never part of a string or a comment."""
    lines = text.splitlines(keepends=True)
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(text).readline))):
        if token.type == tokenize.NAME and token.string in ("async", "await"):
            (row, start), (_, end) = token.start, token.end
            line = lines[row - 1]
            lines[row - 1] = line[:start] + line[end:].removeprefix(" ")
    return "".join(lines)


def _without_awaitable(text: str) -> str:
    """`Awaitable[X]` and `Coroutine[Any, Any, X]` are X, and the imports of the words go."""
    text = re.sub(r"\bAwaitable, |, Awaitable\b(?!\[)", "", text)
    for wrapping in ("Awaitable[", "Coroutine[Any, Any, "):
        while (start := text.find(wrapping)) >= 0:
            inside = start + len(wrapping)
            opened, at = 1, inside
            while opened:
                opened += {"[": 1, "]": -1}.get(text[at], 0)
                at += 1
            text = text[:start] + text[inside : at - 1] + text[at:]
    return text


def _formatted(text: str) -> str:
    """`text` as ruff would have it: lines of the right length, imports sorted, none without use, loops as they go."""
    named = ["--quiet", "--stdin-filename", "src/umavez/_sync/x.py", "-"]
    checked = ["check", "--fix-only", "--unsafe-fixes", "--select", "I,F401,UP028", *named]
    for arguments in (checked, ["format", *named]):
        done = subprocess.run(  # noqa: S603  # our own formatter, found beside this Python
            [str(RUFF), *arguments], input=text, capture_output=True, text=True, check=True, cwd=ROOT
        )
        text = done.stdout
    return text


def main(arguments: list[str]) -> int:
    """Write, or check with --check."""
    stale = 0
    for source, target in PAIRS.items():
        wanted = synchronous(source.read_text("utf-8"), str(source.relative_to(ROOT)))
        found = target.read_text("utf-8") if target.exists() else ""
        if wanted == found:
            continue
        stale += 1
        if "--check" not in arguments:
            target.write_text(wanted, "utf-8")
            print(f"wrote {target}")  # noqa: T201  # it is a command
        else:
            sys.stdout.writelines(difflib.unified_diff(found.splitlines(True), wanted.splitlines(True), str(target)))
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
