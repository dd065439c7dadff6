"""Reading: every line is accounted for, whatever the file looks like."""

from __future__ import annotations

import io
from typing import Any

import pytest

from umavez_systems.mailing.ingest.dialect import SAMPLE, dialect_of
from umavez_systems.mailing.ingest.reading import NO_COLUMNS, runs


def read(content: bytes, size: int = 12 << 20) -> tuple[list[dict[str, Any]], int, int]:
    """The rows of a list, its lines and its blank ones."""
    dialect = dialect_of(content, whole=True)
    stream = io.BytesIO(content)
    stream.seek(dialect.start)
    found = list(runs(stream, dialect, dialect.line, size))
    rows = [row for run in found for row in run.rows.to_pylist()]
    assert all(run.lines == run.blank + sum(run.rows["vezes"].to_pylist()) for run in found)
    return rows, sum(run.lines for run in found), sum(run.blank for run in found)


@pytest.mark.parametrize(
    ("content", "emails"),
    [
        (b"email\na@b.com\n", ["a@b.com"]),
        (b"a@b.com\nc@d.com", ["a@b.com", "c@d.com"]),
        (b"\xef\xbb\xbfE-mail;Nome\r\nA@B.com ;Ana\r\n", ["a@b.com"]),
        ("nome\te-mail\nJoão\tj@b.com\n".encode("latin-1"), ["j@b.com"]),
        (b"a@b.com\rc@d.com\r", ["a@b.com", "c@d.com"]),
        (b'nome,email\n"Silva, Ana","a@b.com"\n"duas\nlinhas",c@d.com\n', ["a@b.com", "c@d.com"]),
        ("email\nana@exämple.com\n".encode(), ["ana@xn--exmple-cua.com"]),
    ],
    ids=["plain", "no header", "bom", "latin-1", "old mac", "quotes", "idn"],
)
def test_s2_03_delimiters_encodings_and_headers_are_found_out(content: bytes, emails: list[str]) -> None:
    rows, _, _ = read(content)
    assert [row["email"] for row in rows] == emails
    assert not [row for row in rows if row["motivo"]]


def test_s2_03_what_is_not_valid_is_kept_with_line_and_reason() -> None:
    rows, lines, blank = read(
        b"email,nome\nok@b.com,x\nsem arroba,x\n,Ana\na@b.com,x,y\nnul@b.com,a\x00b\n\n , \n"
        b"\xff\xfe@b.com,x\nok@b.com,z\n"
    )
    bad = {row["linha"]: row["motivo"] for row in rows if row["motivo"]}
    assert sorted(bad) == [3, 4, 5, 6]
    assert (lines, blank) == (9, 2)
    assert len(rows) == 6


@pytest.mark.parametrize("content", [b"email,nome,\na@b.com,Ana\nc@d.com,Bia\n", b"email\na@b.com,x\n\nc@d.com,y\n"])
@pytest.mark.parametrize("size", [12, 1000])
def test_s2_03_of_a_list_no_line_may_have_the_columns_of_its_header(content: bytes, size: int) -> None:
    rows, lines, blank = read(content, size)
    assert [row["motivo"] for row in rows] == [NO_COLUMNS] * 2
    assert lines - blank == 2


@pytest.mark.parametrize("length", [SAMPLE, 2 * SAMPLE])
def test_s2_03_a_first_line_beyond_the_sample_is_one_line(length: int) -> None:
    """What stands within a value is nobody's address, wherever the sample ends."""
    head = b"email,nome\n"
    line = b"a@b.com;" + b"x" * (SAMPLE - len(head) - 8) + b"c@d.com,x" + b"x" * (length - SAMPLE) + b"\n"
    content = head + line + b"e@f.com,y\n"
    dialect = dialect_of(content[:SAMPLE], whole=False)
    assert (dialect.start, dialect.line) == (len(head), 2)
    found = list(runs(io.BytesIO(content[dialect.start :]), dialect, dialect.line))
    rows = [row for run in found for row in run.rows.to_pylist()]
    assert [row["email"] for row in rows if row["motivo"] is None] == ["e@f.com"]
    assert [row["linha"] for row in rows if row["motivo"]] == [2]


def test_other_columns_become_values_and_controls_do_not_survive() -> None:
    rows, _, _ = read('email,nome,cidade\na@b.com,"A ""B"" \\ \x07",São Paulo\n'.encode())
    assert rows[0]["variaveis"] == '["A \\"B\\" \\\\  ","São Paulo"]'


@pytest.mark.parametrize("size", [40, 64, 1000])
@pytest.mark.parametrize(
    "form", [b'u%d@b.com,"x\n%d"\n', b"u%d@b.com,%d\n\n", b"u%d@b.com,%d\r\n", b"u%d@b.com\r,%d\n"]
)
def test_the_size_of_a_run_changes_nothing(size: int, form: bytes) -> None:
    # What stands at the beginning is looked at more closely.
    begin = b"email,n\n" + b"".join(b"p%d@b.com,x\n" % number for number in range(20))
    content = begin + b"".join(form % (number, number) for number in range(50)) + b"fim@b.com,x"
    small, whole = (read(content, many) for many in (size, 12 << 20))
    assert sorted((row["linha"], row["email"]) for row in small[0]) == sorted(
        (row["linha"], row["email"]) for row in whole[0]
    )
    assert small[1:] == whole[1:]


def test_a_line_that_never_ends_costs_one_line_and_little_memory() -> None:
    rows, lines, _ = read(b"email\na@b.com\n" + b"z" * 5000 + b"\nb@b.com\n", size=256)
    assert [(row["linha"], row["motivo"] is None) for row in rows] == [(2, True), (3, False), (4, True)]
    assert lines == 3


def test_a_quote_without_a_partner_loses_no_line() -> None:
    rows, lines, _ = read(b'email,n\na@b.com,O"Brien\nb@b.com,"x\nc@b.com,y\n')
    assert lines == 3
    assert len(rows) == 3


def test_values_that_no_mail_could_hold_cost_their_line_alone() -> None:
    begin = b"email,n\n" + b"".join(b"p%d@b.com,x\n" % number for number in range(20))
    rows, lines, _ = read(begin + b"much@b.com," + b"y" * 70_000 + b"\nfim@b.com,z\n")
    bad = [row for row in rows if row["motivo"]]
    assert [(row["email"], row["linha"]) for row in bad] == [("much@b.com", 22)]
    assert (lines, max(len(row["variaveis"]) for row in rows) < 100) == (22, True)


def test_s2_03_a_name_has_64_characters_at_most() -> None:
    """RFC 5321, 4.5.3.1.1: no server takes a longer one."""
    rows, _, _ = read(f"email\n{'a' * 64}@b.com\n{'a' * 65}@b.com\n".encode())
    assert [row["motivo"] is None for row in rows] == [True, False]
