"""Reading: a stored list in runs of bounded size, each parsed, normalised, checked, sorted and without repetitions.

Vectorised; only what is unusual is looked at one by one.
"""

from __future__ import annotations

import csv as plain_csv
import io
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from umavez_systems.mailing.addresses import address_of
from umavez_systems.mailing.ingest.dialect import Dialect

# Whatever Arrow's own allocator keeps for later is memory of the worker: the system's gives it back.
pa.set_memory_pool(pa.system_memory_pool())
BLOCK = 2 << 20
"""Bytes of a run. A line above this is too long to be one."""
HANDS = 2
"""Runs that are parsed at the same time: the libraries work outside of Python's lock."""
LOST = "\ufffd"
USUAL = r"^[a-z0-9_+-]+(\.[a-z0-9_+-]+)*@[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\.[a-z]{2,24}$"
USUAL_LONGEST = 64
"""Within this no part of a usual address can be too long, so that the pattern alone decides."""
TOO_LONG = f"A linha tem mais de {BLOCK} bytes."
VALUES_LONGEST = 65_536
"""Bytes of a row's values: a worker holds a group of rows at a time, and their mails."""
MUCH = f"Os valores da linha têm mais de {VALUES_LONGEST} bytes."
NO_COLUMNS = "A linha tem um número de colunas diferente do esperado."
BROKEN = "A linha tem bytes que não são texto na codificação do arquivo, ou NUL."
EMPTY = "A linha não tem e-mail."
CONTROLS = r"[\x00-\x1f]"
GIVEN = ("email", "motivo", "linha", "variaveis")


@dataclass(frozen=True, slots=True)
class Run:
    """Some lines of a list. `rows`: e-mail, reason (null where valid), line, values, and on how many lines it stands;

    by e-mail, each e-mail once.
    """

    rows: pa.Table
    lines: int
    blank: int


def runs(stream: BinaryIO, dialect: Dialect, line: int, size: int = BLOCK) -> Generator[Run, None, None]:
    """The runs of a list from where `stream` stands; `line` is the number of the first line."""
    newline = dialect.newline.encode()
    with ThreadPoolExecutor(HANDS, thread_name_prefix="umavez-reading") as pool:
        waiting: deque[Future[Run]] = deque()
        for block in _blocks(stream, newline, size):
            waiting.append(pool.submit(_run_of, block, dialect, line))
            many = _lines_in(block, newline)
            line += waiting[-1].result().lines if many is None else many
            if len(waiting) > HANDS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _run_of(block: bytes | None, dialect: Dialect, line: int) -> Run:
    return _refusal(line) if block is None else _parsed(block, dialect, line)


def _lines_in(block: bytes | None, newline: bytes) -> int | None:
    """How many lines a block has; None where only its reader can tell."""
    if block is None or b'"' in block:
        return None
    # Looked for first: to count what is in pairs takes longer than all the rest, and most lists have none.
    if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
        return None
    # By numpy, outside of Python's lock: whoever parses another block needs that, too.
    many = np.count_nonzero(np.frombuffer(block, np.uint8) == newline[0])
    return int(many) + (not block.endswith(newline))


def _blocks(stream: BinaryIO, newline: bytes, size: int) -> Iterator[bytes | None]:
    """Whole records; None for one line that is too long to be kept."""
    rest = b""
    while True:
        block = rest + _read(stream, size - len(rest))
        if not block:
            return
        end = _cut(block, newline)
        if len(block) < size:
            yield block
            return
        if end == 0:
            rest = _skipped(stream, newline)
            yield None
            continue
        yield block[:end]
        rest = block[end:]


def _read(stream: BinaryIO, size: int) -> bytes:
    parts, left = [], size
    while left > 0 and (part := stream.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _skipped(stream: BinaryIO, newline: bytes) -> bytes:
    """Pass over the rest of a line that is too long; what was read beyond it."""
    while part := stream.read(1 << 20):
        end = part.find(newline)
        if end >= 0:
            return part[end + 1 :]
    return b""


def _cut(block: bytes, newline: bytes) -> int:
    """Where the last whole record ends: at a line break that stands outside quotes, or at the last one if none does."""
    last = end = block.rfind(newline) + 1
    odd = b'"' in block and block.count(b'"', 0, end) % 2
    while odd and end > 0:
        before = block.rfind(newline, 0, end - 1) + 1
        odd ^= block.count(b'"', before, end) % 2
        end = before
    return end or last


def _refusal(line: int) -> Run:
    return Run(_table([f"(linha {line})"], [TOO_LONG], [line], [None]), 1, 0)


def _parsed(block: bytes, dialect: Dialect, line: int) -> Run:
    text, broken = _utf8(block, dialect.encoding)
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not text.endswith(b"\n"):
        text += b"\n"
    table, uneven = _read_csv(text, dialect, _well_quoted(text, dialect.delimiter))
    many = len(table) + len(uneven)
    numbers = np.arange(line, line + many)
    if uneven:
        numbers = np.delete(numbers, [place for place, _ in uneven])
    emails = pc.utf8_trim_whitespace(table.column(dialect.email))
    others = [table.column(place) for place in range(len(dialect.columns)) if place != dialect.email]
    values = _values(others)
    filled = _filled(emails, others)
    keep = pc.or_(pc.not_equal(emails, ""), filled)
    blank = len(table) - (pc.sum(keep).as_py() or 0)
    rows = _judged(emails, numbers, values, broken).filter(keep)
    bad = [(place + line, text) for place, text in uneven if text.strip(" \t\r\n,;\"'")]
    if bad:
        rows = pa.concat_tables([rows, _uneven_rows(bad)])
    return Run(in_order(rows), many, blank + len(uneven) - len(bad))


def _utf8(block: bytes, encoding: str) -> tuple[bytes, bool]:
    """The block as UTF-8 without NUL, and whether something in it was lost."""
    try:
        text = block.decode(encoding)
    except UnicodeDecodeError:
        text = block.decode(encoding, "replace")
    if "\0" in text:
        text = text.replace("\0", LOST)
    return (block if encoding == "utf-8" and LOST not in text else text.encode()), LOST in text


def _well_quoted(text: bytes, delimiter: str) -> bool:
    """Whether quotes may hold line breaks here: one without a partner would swallow the lines after it."""
    marks = text.count(b'"')
    if marks == 0:
        return True
    if marks % 2:
        return False
    try:
        for _ in plain_csv.reader(io.StringIO(text.decode(), newline=""), delimiter=delimiter, strict=True):
            pass
    except plain_csv.Error:
        return False
    return True


def _read_csv(text: bytes, dialect: Dialect, quoted: bool) -> tuple[pa.Table, list[tuple[int, str]]]:
    """The rows, and those with another number of columns: their places from 0 and their texts."""
    uneven: list[tuple[int, str]] = []

    def note(row: Any) -> str:
        uneven.append((row.number - 1, row.text))
        return "skip"

    table = csv.read_csv(
        pa.BufferReader(text),
        csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=list(dialect.columns)),
        csv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char='"' if quoted else False,
            newlines_in_values=quoted,
            ignore_empty_lines=False,
            invalid_row_handler=note,
        ),
        csv.ConvertOptions(
            column_types=dict.fromkeys(dialect.columns, pa.string()),
            strings_can_be_null=False,
            quoted_strings_can_be_null=False,
        ),
    )
    return table.combine_chunks(), uneven


def _filled(emails: pa.ChunkedArray, others: list[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Whether a row has anything beside an e-mail."""
    filled = pc.equal(emails, "\0")
    for column in others:
        filled = pc.or_(filled, pc.not_equal(pc.utf8_trim_whitespace(column), ""))
    return filled


def _values(columns: list[pa.ChunkedArray]) -> pa.ChunkedArray | None:
    """The values of each row as a JSON list; None where there is only the e-mail."""
    if not columns:
        return None
    coded = []
    for column in columns:
        text = pc.utf8_trim_whitespace(column)
        text = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
        coded.append(pc.replace_substring(pc.replace_substring(text, "\n", "\\n"), "\t", "\\t"))
    joined = coded[0] if len(coded) == 1 else pc.binary_join_element_wise(*coded, '","')
    return pc.binary_join_element_wise('["', pc.replace_substring_regex(joined, CONTROLS, " "), '"]', "")


def _judged(emails: Any, numbers: Any, values: Any, broken: bool) -> pa.Table:
    """Every row with its e-mail as it is kept, and why it cannot be sent to, if it cannot."""
    low = pc.utf8_lower(emails)
    usual = pc.and_(pc.match_substring_regex(low, USUAL), pc.less_equal(pc.binary_length(low), USUAL_LONGEST))
    places = np.flatnonzero(~np.asarray(usual))
    # Where no row has the expected columns, a column has not one chunk.
    low = low.combine_chunks() if isinstance(low, pa.ChunkedArray) else low
    nothing = pa.nulls(len(low), pa.string())
    values = nothing if values is None else values
    lines, once = pa.array(numbers, pa.int64()), pa.array(np.ones(len(low), np.int64))
    table = pa.table({"email": low, "motivo": nothing, "linha": lines, "variaveis": values, "vezes": once})
    much = np.asarray(pc.greater(pc.fill_null(pc.binary_length(table["variaveis"]), 0), VALUES_LONGEST))
    if much.any():
        places = np.union1d(places, np.flatnonzero(much))
        kept = pc.if_else(pa.array(much), pa.scalar(f'["{MUCH}"]'), table["variaveis"])
        table = table.set_column(table.column_names.index("variaveis"), "variaveis", kept)
    if broken:
        lost = pc.fill_null(pc.match_substring(table["variaveis"], LOST), False)
        places = np.union1d(places, np.flatnonzero(np.asarray(lost)))
    if not len(places):
        return table
    odd = table.take(pa.array(places))
    judged = [_judge(*row) for row in zip(*(odd[name].to_pylist() for name in GIVEN), strict=True)]
    mask = np.zeros(len(low), dtype=bool)
    mask[places] = True
    for place, column in enumerate(zip(*judged, strict=True)):
        name = ("email", "motivo")[place]
        given = pa.array(column, pa.string())
        table = table.set_column(place, name, pc.replace_with_mask(table[name], pa.array(mask), given))
    return table


def _judge(email: str, _: None, line: int, values: str | None) -> tuple[str, str | None]:
    if not email:
        return f"(linha {line})", EMPTY
    if LOST in email or (values is not None and LOST in values):
        return _kept(email), BROKEN
    if values is not None and MUCH in values:
        return _kept(email), MUCH
    address, reason = address_of(email)
    return address if reason is None else _kept(email), reason


def _kept(text: str) -> str:
    """Text that fits into the column and stays unlike every other that differs."""
    plain = "".join(sign if sign.isprintable() else LOST for sign in text)
    return plain if len(plain) <= 200 else f"{plain[:180]}…#{sha256(text.encode()).hexdigest()[:16]}"


def _uneven_rows(bad: list[tuple[int, str]]) -> pa.Table:
    texts = [_kept(text.strip()) for _, text in bad]
    return _table(texts, [NO_COLUMNS] * len(bad), [number for number, _ in bad], [None] * len(bad))


def _table(emails: list[str], reasons: list[str | None], lines: list[int], values: list[str | None]) -> pa.Table:
    kinds = (pa.string(), pa.string(), pa.int64(), pa.string(), pa.int64())
    given = (emails, reasons, lines, values, [1] * len(emails))
    columns = (pa.array(column, kind) for column, kind in zip(given, kinds, strict=True))
    return pa.table(dict(zip((*GIVEN, "vezes"), columns, strict=True)))


def in_order(rows: pa.Table) -> pa.Table:
    """By e-mail, the first line of each; `vezes` says on how many it stands."""
    rows = rows.combine_chunks()
    if len(rows) < 2:
        return rows
    # The sort is stable: of equal ones the first line stays first.
    order = pc.array_sort_indices(rows["email"].chunk(0))
    emails = rows["email"].chunk(0).take(order)
    first = pa.concat_arrays([pa.array([True]), pc.not_equal(emails.slice(1), emails.slice(0, len(emails) - 1))])
    starts = np.flatnonzero(np.asarray(first))
    times = np.add.reduceat(rows["vezes"].to_numpy()[order.to_numpy()], starts)
    if len(starts) < len(rows):
        order, emails = order.filter(first), emails.filter(first)
    others = rows.select(("motivo", "linha", "variaveis")).take(order)
    return others.add_column(0, "email", emails).append_column("vezes", pa.array(times, pa.int64()))
