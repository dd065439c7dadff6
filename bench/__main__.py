"""Runs the measurements: `python -m bench [group ...] [--quick]`, for instance `python -m bench engine --quick`.

A group is the folder bench/NAME, run as bench.NAME, or every file bench/NAME.py and bench/NAME_*.py. Each is a process
of its own, so that none pays for what another imported. From the first option on, everything is handed to all of them,
but `--quick` only to those that know it.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import takewhile
from pathlib import Path

HERE = Path(__file__).parent


def main(words: list[str]) -> int:
    """Run the groups named in `words`, or all; returns 1 if one of them failed."""
    groups = found()
    wanted = list(takewhile(lambda word: not word.startswith("-"), words))
    options = words[len(wanted) :]
    if options and options[0] in ("-h", "--help") and not wanted:
        print(f"{__doc__}\nGroups: all, {', '.join(groups)}.")
        return 0
    if options == ["--list"]:
        print("\n".join(groups))
        return 0
    unknown = [name for name in wanted if name not in groups and name != "all"]
    if unknown:
        print(f"There is no group {unknown[0]!r}; there are: all, {', '.join(groups)}.", file=sys.stderr)
        return 2
    chosen = groups if not wanted or "all" in wanted else wanted
    return max([run(path, options) for name in chosen for path in groups[name]])


def found() -> dict[str, list[Path]]:
    """The groups, each with the entry files of its measurements."""
    groups: dict[str, list[Path]] = {}
    for path in sorted(HERE.iterdir()):
        entry = path / "__main__.py" if path.is_dir() else path
        if path.name.startswith(("_", ".")) or entry.suffix != ".py" or not entry.exists():
            continue
        groups.setdefault(path.stem.partition("_")[0], []).append(entry)
    return groups


def run(entry: Path, options: list[str]) -> int:
    """Run one measurement; 1 if it failed."""
    folder = entry.parent if entry.name == "__main__.py" else entry.with_suffix("")
    module = ".".join(("bench", *folder.relative_to(HERE).parts))
    knows_quick = any(mark in entry.read_text() for mark in ("--quick", "is_quick"))
    words = [word for word in options if word != "--quick" or knows_quick]
    print(f"\n== {module} {' '.join(words)}".rstrip(), flush=True)
    done = subprocess.run([sys.executable, "-m", module, *words], cwd=HERE.parent, check=False)
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
