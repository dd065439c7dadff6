"""Dialect: how a list is written, found out from its beginning: encoding, delimiter, header, e-mail's column. Pure."""

from __future__ import annotations

import codecs
import csv
import json
import re
import unicodedata
from dataclasses import asdict, dataclass

from umavez_systems.mailing.domain import invalid
from umavez_systems.problems import Problem

SAMPLE = 1 << 20
"""Bytes looked at; also the longest first line that is taken."""
MOST_COLUMNS = 100
DELIMITERS = (",", ";", "\t")
NAMES = {"email", "e_mail", "mail", "correio", "email_address", "endereco_de_email", "endereco_de_e_mail"}
MAIL = "email"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How to read a list. `start`: where its first data line begins, in bytes; `line`: that line's number."""

    encoding: str
    delimiter: str
    columns: tuple[str, ...]
    email: int
    header: bool
    newline: str
    start: int
    line: int
    blank: int

    @property
    def variables(self) -> tuple[str, ...]:
        """The names that texts may use beside `email`."""
        return tuple(name for place, name in enumerate(self.columns) if place != self.email)

    def written(self) -> str:
        """As it is kept."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Dialect:
        """As it was kept."""
        kept = json.loads(text)
        return cls(**{**kept, "columns": tuple(kept["columns"])})


def dialect_of(sample: bytes, *, whole: bool) -> Dialect:
    """The dialect of a file that begins with `sample`, which may be all of it. Raises 422 problems."""
    if sample[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raise _unreadable("codificacao", "O arquivo está em UTF-16; salve-o como CSV em UTF-8 e envie de novo.")
    if sample[:4] == b"PK\x03\x04":
        raise _unreadable("formato", "O arquivo é uma planilha ou um ZIP; salve-o como CSV e envie de novo.")
    begin = len(codecs.BOM_UTF8) if sample.startswith(codecs.BOM_UTF8) else 0
    newline = "\n" if b"\n" in sample or b"\r" not in sample else "\r"
    encoding = "utf-8" if begin or _is_utf8(sample, whole) else "cp1252"
    lines, offsets = _lines(sample, begin, newline, whole)
    filled = [number for number, line in enumerate(lines) if line.strip(b" \t\r\n;,\"'")]
    if not filled:
        raise _unreadable("vazio", "O arquivo está vazio: não há nenhuma linha com dados.")
    rows = [lines[number].decode(encoding, "replace") for number in filled[:20]]
    delimiter = _delimiter(rows[0])
    records = [_record(row, delimiter) for row in rows]
    email, header = _email_column(records)
    columns = _names(records[0], email, header)
    data = filled[0] + (1 if header else 0)
    # Behind the header where the first data line does not end in the sample, wherever the sample ends.
    start = offsets[data] if data < len(offsets) else min(len(sample), offsets[-1] + len(lines[-1]) + 1)
    return Dialect(encoding, delimiter, columns, email, header, newline, start, data + 1, filled[0] if header else 0)


def _is_utf8(sample: bytes, whole: bool) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(sample)
    except UnicodeDecodeError:
        return False
    # A half character at the end is the place where a beginning was cut, unless nothing else speaks for UTF-8.
    half, _ = decoder.getstate()
    return not (whole and half) or not text.isascii()


def _lines(sample: bytes, begin: int, newline: str, whole: bool) -> tuple[list[bytes], list[int]]:
    """The lines of the sample and where each begins; the last one only if the file ends with it."""
    mark = newline.encode()
    lines, offsets, at = [], [], begin
    while (end := sample.find(mark, at)) >= 0:
        lines.append(sample[at:end])
        offsets.append(at)
        at = end + 1
        if len(lines) > 200_000:
            break
    if whole and at < len(sample):
        lines.append(sample[at:])
        offsets.append(at)
    if not lines and not whole:
        raise _unreadable("linha-longa", f"A primeira linha tem mais de {SAMPLE} bytes; isto não é uma lista em CSV.")
    return lines, offsets


def _record(row: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([row], delimiter=delimiter), [])
    except csv.Error as error:
        raise _unreadable(
            "linha-ilegivel", "Uma linha não é CSV: tem uma quebra de linha sem aspas, ou um campo longo demais."
        ) from error


def _delimiter(line: str) -> str:
    plain = re.sub(r'"[^"]*"', "", line)
    counts = {mark: plain.count(mark) for mark in DELIMITERS}
    best = max(counts, key=lambda mark: counts[mark])
    return best if counts[best] else ","


def _email_column(records: list[list[str]]) -> tuple[int, bool]:
    """The place of the e-mail, and whether the first record is a header."""
    first = records[0]
    if len(first) > MOST_COLUMNS:
        raise _unreadable("colunas-demais", f"O arquivo tem {len(first)} colunas; o limite é de {MOST_COLUMNS}.")
    for place, name in enumerate(first):
        if _slug(name) in NAMES:
            return place, True
    if "@" in first[0]:
        return 0, False
    if len(records) > 1 and records[1] and "@" in records[1][0]:
        return 0, True
    raise _unreadable(
        "sem-email", "Não há coluna de e-mail: chame uma coluna de 'email', ou ponha os endereços na primeira."
    )


def _names(first: list[str], email: int, header: bool) -> tuple[str, ...]:
    names: list[str] = []
    for place, text in enumerate(first):
        name = MAIL if place == email else (_slug(text) if header else "") or f"coluna_{place + 1}"
        while name in names or (name == MAIL and place != email):
            name += "_"
        names.append(name)
    return tuple(names)


def _slug(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:60]
    return f"_{name}" if name[:1].isdigit() else name


def _unreadable(kind: str, detail: str) -> Problem:
    return invalid(detail, arquivo=kind)
