"""Sorting: a whole list in the order of its addresses, each of them once, within bounded memory.

An index that is filled in its own order is filled several times faster, and in a list that is in order an address
repeats beside itself. Each run is sorted by itself and set aside in a file without a name; then all are merged.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from umavez_systems.mailing.ingest.reading import Run, in_order

HELD = 4 << 20
"""Bytes of the list that wait in memory while runs are merged; about an eighth of them is merged at a time."""
PART = 32_000
"""Rows of a part: what is written in one commit."""
PART_BYTES = 8 << 20
SMALL = 20_000
"""Rows that are kept in the order of the file: with so few the order of the index gains nothing."""


class Moved(Exception):
    """The list is not the one that was begun: the place where to go on is not in it."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the addresses, with all the `lines` on which they stand."""

    rows: pa.Table
    lines: int


class SortedList:
    """A list in order. `lines` and `blank` are counted over all of it, before anything is written."""

    def __init__(self, found: Iterable[Run], size: int) -> None:
        """Read everything; `size` is about how many bytes that are."""
        self.lines = self.blank = self.rows = 0
        self._pieces = max(1, -(-size // HELD))
        self._batches: list[list[int]] = []
        self._ends: list[pa.Array] = []
        self._file = tempfile.TemporaryFile(prefix="umavez-")  # noqa: SIM115  # closed by our own end
        try:
            self._set_aside(found)
        except BaseException:
            self._file.close()
            raise

    def _set_aside(self, found: Iterable[Run]) -> None:
        """Each run in so many pieces that one of each run fits into memory."""
        writer: Any = None
        many = 0
        for run in found:
            self.lines += run.lines
            self.blank += run.blank
            self.rows += len(run.rows)
            size = max(1, -(-len(run.rows) // self._pieces))
            rows = run.rows.combine_chunks()
            pieces = rows.to_batches(size)
            self._ends += rows["email"].take(_ends(len(rows), size)).chunks
            writer = writer or pa.ipc.new_file(pa.PythonFile(self._file, "w"), run.rows.schema)
            for piece in pieces:
                writer.write_batch(piece)
            self._batches.append(list(range(many, many + len(pieces))))
            many += len(pieces)
        if writer is not None:
            writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def parts(self, after: int = 0, size: int = PART) -> Iterator[Part]:
        """The parts behind the first `after` lines of this order. Raises Moved where none ends there."""
        left: pa.Table | None = None
        for table in self._behind(after):
            left = table if left is None else pa.concat_tables([left, table])
            step = min(size, max(1, PART_BYTES * len(left) // max(1, left.nbytes)))
            whole = len(left) - len(left) % step
            for place in range(0, whole, step):
                yield self._part(left.slice(place, step), size)
            left = left.slice(whole)
        if left is not None and len(left):
            yield self._part(left, size)

    def _part(self, table: pa.Table, size: int) -> Part:
        table = table.combine_chunks()
        lines = int(table["vezes"].to_numpy().sum())
        return Part(table.sort_by("linha") if self.rows <= min(SMALL, size) else table, lines)

    def _behind(self, after: int) -> Iterator[pa.Table]:
        """All rows but those of the first `after` lines."""
        for table in self._merged():
            ends = np.cumsum(table["vezes"].to_numpy())
            skipped = int(np.searchsorted(ends, after, "right"))
            if after and (int(ends[skipped - 1]) if skipped else 0) != min(after, int(ends[-1])):
                raise Moved
            after = max(0, after - int(ends[-1]))
            if skipped < len(table):
                yield table.slice(skipped)
        if after:
            raise Moved

    def _merged(self) -> Iterator[pa.Table]:
        """All rows in order, some at a time."""
        if not self.rows:
            return
        reader = pa.ipc.open_file(pa.PythonFile(self._file, "r"))
        heads = [_Head(reader, batches) for batches in self._batches]
        for bound in self._bounds():
            # In the order of the runs, which is that of the lines: of equal ones the first line stays first.
            yield in_order(pa.Table.from_batches([piece for head in heads for piece in head.taken(bound)]))

    def _bounds(self) -> list[str]:
        """Addresses between which about as many rows stand each time, whichever runs they stand in.

        Every end of a piece would be such a bound, too: with as many steps as pieces, each over every run, a list of
        twice the size would take four times as long.
        """
        ends = pa.concat_arrays(self._ends)
        ends = ends.take(pc.array_sort_indices(ends))
        chosen = ends.take(_ends(len(ends), max(1, len(self._batches) // 8)))
        return list(dict.fromkeys(chosen.to_pylist()))


def _ends(many: int, size: int) -> pa.Array:
    """The last place of each piece, where `many` are in pieces of `size`."""
    places = [*range(size - 1, many - 1, size), many - 1] if many else []
    return pa.array(places, pa.int64())


class _Head:
    """What was not taken yet of a run, of which one piece is in memory."""

    def __init__(self, reader: Any, batches: list[int]) -> None:
        self._reader = reader
        self._left = iter(batches)
        self._piece: Any = None

    def taken(self, bound: str) -> list[Any]:
        """What stands up to `bound`, removed from here."""
        found = []
        while self._more():
            emails = self._piece.column("email")
            if emails[-1].as_py() > bound:
                many = bisect_right(emails, bound, key=lambda cell: cell.as_py())
                found.append(self._piece.slice(0, many))
                self._piece = self._piece.slice(many)
                break
            found.append(self._piece)
            self._piece = None
        return found

    def _more(self) -> bool:
        """Whether there is something left; the next piece is read when this one is taken."""
        if self._piece is None and (number := next(self._left, None)) is not None:
            self._piece = self._reader.get_batch(number)
        return self._piece is not None
