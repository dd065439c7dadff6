"""Headers: any text as ASCII in lines that every relay takes, and that readers show as it was written. Pure.

SMTP has lines of 998 octets at most, RFC 2047 encoded words of 75 characters. A word without a space has no place to
be folded at, whatever it is made of: it is written in encoded words, and so is what only looks like one.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator

LINE = 76
WORD = 75
_MARKS = len("=?utf-8?b??=")
_PLAIN = re.compile(r"[!-~]+(?: [!-~]+)*")


def folded(name: str, text: str) -> str:
    """The field `name` with `text`, in lines of 76 characters at most. Nothing in `text` can end the field."""
    if not text:
        return f"{name}: "  # an encoded word has a letter at least: one without is shown as it is written
    if _PLAIN.fullmatch(text) and "=?" not in text:
        lines = list(_lines(f"{name}: {text}".split(" ")))
        if lines[0] != f"{name}:" and max(map(len, lines)) < LINE:
            return "\r\n ".join(lines)
    return f"{name}: " + "\r\n ".join(words(text, LINE - len(name) - 2))


def is_plain(text: str) -> bool:
    """Whether readers show `text` as it is, without encoding."""
    return text.isascii() and "=?" not in text


def words(text: str, first: int = WORD) -> Iterator[str]:
    """`text` as encoded words, the first of `first` characters at most; no letter is cut in two."""
    room, part = _bytes(first), b""
    for letter in text:
        coded = letter.encode()
        if len(part) + len(coded) > room:
            yield _word(part)
            room, part = _bytes(WORD), b""
        part += coded
    yield _word(part)


def _word(part: bytes) -> str:
    return f"=?utf-8?b?{b64encode(part).decode()}?="


def _bytes(longest: int) -> int:
    """How many bytes an encoded word of so many characters holds."""
    return (longest - _MARKS) // 4 * 3


def _lines(parts: list[str]) -> Iterator[str]:
    """Parts as lines, each as full as it may be with the space that folds it; a part alone may be too long."""
    line = parts[0]
    for part in parts[1:]:
        if len(line) + 1 + len(part) >= LINE:
            yield line
            line = part
        else:
            line = f"{line} {part}"
    yield line
