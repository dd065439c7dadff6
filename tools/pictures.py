"""Draws the pictures of the documentation: each docs/pictures/NAME.txt becomes NAME.svg beside it.

    python tools/pictures.py           # draw every picture anew
    python tools/pictures.py --check   # draw nothing; exit 1 where one is out of date

A picture is a conversation. The first line is its title, the second names those who speak, from left to right; then,
a line each: `a -> b: words` (an arrow), `a: words` (something a does by itself), `a x words` (a ends there),
`-- words` (a rule across the picture).
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
COLUMN, ROW, LEFT, TOP = 230, 34, 120, 96
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2933}.title{font-size:15px;font-weight:600}.who{font-weight:600;"
    "text-anchor:middle}.said,.rule{text-anchor:middle}.rule{fill:#52606d;font-style:italic}"
    "line{stroke:#52606d}.life{stroke:#cbd2d9;stroke-dasharray:4 4}.end{stroke:#c81e1e;stroke-width:2}"
    ".note{fill:#fffbea;stroke:#f0b429}.box{fill:#f5f7fa;stroke:#52606d}.back{fill:#fff}"
)
_ARROW = re.compile(r"(\w+) -> (\w+): (.*)")
_END = re.compile(r"(\w+) x (.*)")
_NOTE = re.compile(r"(\w+): (.*)")


def svg(text: str) -> str:
    """The picture that `text` describes. Raises ValueError for a line that says nothing it knows."""
    title, who, *lines = [line.strip() for line in text.splitlines() if line.strip()]
    places = {name: LEFT + COLUMN * number for number, name in enumerate(who.split())}
    width, height = LEFT * 2 + COLUMN * (len(places) - 1), TOP + ROW * (len(lines) + 1)
    size = f'viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">',
        '<path d="M0,0 L9,4 L0,8 z" fill="#52606d"/></marker></defs>',
        f'<rect class="back" width="{width}" height="{height}"/>',
        f'<text class="title" x="20" y="28">{escape(title)}</text>',
    ]
    for name, x in places.items():
        parts.append(f'<line class="life" x1="{x}" y1="{TOP - 24}" x2="{x}" y2="{height - 12}"/>')
        parts.append(f'<rect class="box" x="{x - 75}" y="{TOP - 50}" width="150" height="26" rx="4"/>')
        parts.append(f'<text class="who" x="{x}" y="{TOP - 32}">{escape(name.replace("_", " "))}</text>')
    for number, line in enumerate(lines):
        parts += _drawn(line, places, TOP + ROW * number + 12, width)
    return "\n".join([*parts, "</svg>", ""])


def _drawn(line: str, places: dict[str, int], y: int, width: int) -> list[str]:
    if line.startswith("-- "):
        return [f'<text class="rule" x="{width // 2}" y="{y + 4}">{escape(line[3:])}</text>']
    if found := _ARROW.fullmatch(line):
        start, end = places[found[1]], places[found[2]]
        return [
            f'<line x1="{start}" y1="{y + 6}" x2="{end}" y2="{y + 6}" marker-end="url(#tip)"/>',
            f'<text class="said" x="{(start + end) // 2}" y="{y}">{escape(found[3])}</text>',
        ]
    if found := _END.fullmatch(line):
        x = places[found[1]]
        return [
            f'<line class="end" x1="{x - 8}" y1="{y - 8}" x2="{x + 8}" y2="{y + 8}"/>',
            f'<line class="end" x1="{x - 8}" y1="{y + 8}" x2="{x + 8}" y2="{y - 8}"/>',
            f'<text x="{x + 16}" y="{y + 5}">{escape(found[2])}</text>',
        ]
    if found := _NOTE.fullmatch(line):
        x, long = places[found[1]], 7 * len(found[2]) + 16
        return [
            f'<rect class="note" x="{x - long // 2}" y="{y - 12}" width="{long}" height="24" rx="4"/>',
            f'<text class="said" x="{x}" y="{y + 5}">{escape(found[2])}</text>',
        ]
    raise ValueError(f"{line!r} is no line of a picture")


def main(arguments: list[str]) -> int:
    """Draw, or check with --check."""
    stale = 0
    for source in sorted(FOLDER.glob("*.txt")):
        target = source.with_suffix(".svg")
        drawn = svg(source.read_text("utf-8"))
        if target.exists() and target.read_text("utf-8") == drawn:
            continue
        stale += 1
        if "--check" not in arguments:
            target.write_text(drawn, "utf-8")
        print(f"{'out of date' if '--check' in arguments else 'drew'} {target}")  # noqa: T201  # it is a command
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
