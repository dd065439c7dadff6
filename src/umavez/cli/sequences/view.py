"""Series of numbers as JSON and as tables."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from umavez.cli.durations import written
from umavez.cli.screen.table import columns, fields, indent, plain
from umavez.cli.screen.table import print_list as print_table
from umavez.sequences.administration import Voided
from umavez.sequences.ranges import ENDLESS
from umavez.sequences.standing import Piece, Standing

VOIDED_SHOWN = 20
"""Voided numbers that people are shown; `--json` has them all."""


def brief(standing: Standing) -> dict[str, Any]:
    """A series for machines. `left` and a range's `last` are null where there is no end."""
    return {
        "organisation": standing.series.organisation,
        "series": standing.series.series,
        "next_number": standing.next_number,
        "last_number": standing.last_number,
        "left": standing.left,
        "open": [_piece(piece) for piece in standing.pieces if piece.kind == "OPEN"],
        "blocked": [_piece(piece) | {"reason": piece.reason} for piece in standing.pieces if piece.kind == "BLOCKED"],
    }


def full(standing: Standing, voided: list[Voided]) -> dict[str, Any]:
    """A series with the numbers that were given and will not be used."""
    return brief(standing) | {"voided": [one._asdict() for one in voided]}


def _piece(piece: Piece) -> dict[str, Any]:
    return {
        "first": piece.first,
        "last": None if piece.last >= ENDLESS else piece.last,
        "created_at": written(piece.created_at),
    }


def numbers(first: int, last: int) -> str:
    """A range in words, to begin a sentence."""
    if first == last:
        return f"Number {first}"
    return f"Numbers from {first} on" if last >= ENDLESS else f"Numbers {first} to {last}"


def span(first: int, last: int) -> str:
    """A range in a table."""
    if first == last:
        return str(first)
    return f"{first}–…" if last >= ENDLESS else f"{first}–{last}"


def print_list(found: list[Standing], *, more: bool) -> None:
    """A table of series."""
    table = columns("ORGANISATION", "SERIES", "NEXT>", "LAST GIVEN>", "LEFT>", "BLOCKED")
    for standing in found:
        walls = ", ".join(span(*wall) for wall in standing.blocked)
        table.add_row(*(Text(plain(name)) for name in standing.series), *_counts(standing), walls)
    many = "series; there are more, see --limit" if more else "series"
    print_table(table, many, many)


def _counts(standing: Standing) -> tuple[Text, Text, Text]:
    following = standing.next_number
    left = standing.left
    return (
        Text("none left", style="bold yellow") if following is None else Text(str(following)),
        Text("none yet" if standing.last_number is None else str(standing.last_number)),
        Text("no end" if left is None else str(left)),
    )


def print_series(standing: Standing, voided: list[Voided]) -> None:
    """One series in full: its ranges, and the numbers that will not be used."""
    console = Console()
    console.print(Text.assemble((plain(standing.series.series), "bold"), " of ", plain(standing.series.organisation)))
    console.print(fields(zip(("next", "last given", "left"), _counts(standing), strict=True)))
    ranges = columns("RANGE", "NUMBERS>", "SINCE", "REASON")
    for piece in standing.pieces:
        reason = Text(plain(piece.reason or ""))
        ranges.add_row(piece.kind.lower(), span(piece.first, piece.last), written(piece.created_at), reason)
    console.print(indent(ranges, above=1))
    if voided:
        _print_voided(console, voided)


def _print_voided(console: Console, voided: list[Voided]) -> None:
    table = columns("VOIDED>", "BY", "REASON", "KEY")
    for one in voided[:VOIDED_SHOWN]:
        table.add_row(str(one.number), *(Text(plain(text or "")) for text in one[1:]))
    console.print(indent(table, above=1))
    if len(voided) > VOIDED_SHOWN:
        console.print(Text(f"  {len(voided) - VOIDED_SHOWN:,} more are voided, see --json", style="dim"))
