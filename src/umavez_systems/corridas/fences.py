"""Fences: which communities cover a point. Pure Python; the same answers as shapely's `covers`, edges included.

Edges are straight lines between longitudes and latitudes, as RFC 7946 says. A point on an edge is inside, on the
edge of a hole too. Signs that rounding could turn are computed again in exact fractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import islice, pairwise
from math import floor, frexp
from typing import Any

Point = tuple[float, float]
"""Longitude, latitude."""
Edge = tuple[float, float, float, float]

FINEST = -20
"""The power of two that is the side of the smallest grid cell in degrees, about ten centimetres."""
PER_SLAB = 4
MOST_SLABS = 1024
MOST_ENTRIES = 8
"""How often an edge stands in slabs, on average over a fence: its memory follows its corners, whatever its shape."""
_ROUNDING = 4.0e-16
"""Above this share of its terms the sign of the determinant is certain in double arithmetic."""


class Fence:
    """One community's area: a polygon or several, with holes."""

    __slots__ = ("_height", "_low", "_slabs", "box", "corners", "id", "name", "priority")

    def __init__(self, number: str, name: str, priority: int, rings: Iterable[Sequence[Point]]) -> None:
        edges = [(*a, *b) for ring in rings for a, b in pairwise(ring)]
        xs, ys = [edge[0] for edge in edges], [edge[1] for edge in edges]
        self.id = number
        self.name = name
        self.priority = priority
        self.corners = len(edges)
        self.box = (min(xs), min(ys), max(xs), max(ys))
        self._low = self.box[1]
        self._slabs, self._height = _slabs(edges, self.box[1], self.box[3])

    def covers(self, x: float, y: float) -> bool:
        """Whether the point at longitude `x`, latitude `y` is inside or on an edge."""
        west, south, east, north = self.box
        if not (west <= x <= east and south <= y <= north):
            return False
        slabs = self._slabs
        inside = False
        # Only the edges that may stand at this latitude are looked at, however many corners the fence has.
        for ax, ay, bx, by in slabs[min(int((y - self._low) / self._height), len(slabs) - 1)]:
            if (ay > y) is (by > y):
                if (
                    (ay == y == by and min(ax, bx) <= x <= max(ax, bx))
                    or (ax == x and ay == y)
                    or (bx == x and by == y)
                ):
                    return True
                continue
            if x > ax and x > bx:
                continue
            side = _side(ax, ay, bx, by, x, y)
            if side == 0:
                return True
            if (side > 0) is (by > ay):
                inside = not inside
        return inside


def _slabs(edges: list[Edge], low: float, high: float) -> tuple[tuple[tuple[Edge, ...], ...], float]:
    """The edges by horizontal slab, and a slab's height.

    Slabs overlap by a hair: rounding must not put an edge beside its slab. Long edges stand in many slabs, so a fence
    that is made of them gets fewer.
    """
    count = max(1, min(len(edges) // PER_SLAB, MOST_SLABS))
    rise = sum(abs(edge[3] - edge[1]) for edge in edges)
    while count > 1 and rise / (high - low) * count > MOST_ENTRIES * len(edges):
        count //= 2
    height = (high - low) / count or 1.0
    slabs: list[list[Edge]] = [[] for _ in range(count)]
    for edge in edges:
        bottom, top = min(edge[1], edge[3]), max(edge[1], edge[3])
        first = max(0, int((bottom - low) / height - 1e-6))
        last = min(count - 1, int((top - low) / height + 1e-6))
        for number in range(first, last + 1):
            slabs[number].append(edge)
    return tuple(tuple(slab) for slab in slabs), height


def _side(ax: float, ay: float, bx: float, by: float, x: float, y: float) -> int:
    """1 when the point lies left of a→b, -1 when right of it, 0 on it; exact."""
    left, right = (bx - ax) * (y - ay), (by - ay) * (x - ax)
    turn = left - right
    if abs(turn) > _ROUNDING * (abs(left) + abs(right)):
        return 1 if turn > 0 else -1
    ax_, ay_ = Fraction(ax), Fraction(ay)
    exact = (Fraction(bx) - ax_) * (Fraction(y) - ay_) - (Fraction(by) - ay_) * (Fraction(x) - ax_)
    return (exact > 0) - (exact < 0)


_Entry = tuple[int, float, float, float, float, Fence]


class Fences:
    """Every fence, found by point. Immutable: a change of fences makes another.

    A grid for each size of fence, the cells a quarter as wide: none stands in more than 25 cells, so that the index
    grows with the number of fences alone, however large they are.
    """

    def __init__(self, fences: Iterable[Fence] = ()) -> None:
        # In the order in which overlapping fences claim a point: by priority, then by id.
        ordered = sorted(fences, key=lambda fence: (-fence.priority, fence.id))
        self.by_id = {fence.id: fence for fence in ordered}
        self._grids: dict[float, dict[tuple[int, int], list[_Entry]]] = {}
        for rank, fence in enumerate(ordered):
            self._place((rank, *fence.box, fence))

    def _place(self, entry: _Entry) -> None:
        _, west, south, east, north, _ = entry
        side = 2.0 ** max(FINEST, frexp(max(east - west, north - south))[1] - 2)
        grid = self._grids.setdefault(side, {})
        for column in range(floor(west / side), floor(east / side) + 1):
            for row in range(floor(south / side), floor(north / side) + 1):
                grid.setdefault((column, row), []).append(entry)

    def _near(self, x: float, y: float) -> list[_Entry]:
        """The fences whose box holds a point, the one that claims it first."""
        found: list[_Entry] = []
        for side, grid in self._grids.items():
            if cell := grid.get((floor(x / side), floor(y / side))):
                found += [entry for entry in cell if entry[1] <= x <= entry[3] and entry[2] <= y <= entry[4]]
        # Every rank is another, so that no fence is ever compared.
        found.sort()
        return found

    def _covering(self, lat: float, lng: float) -> Iterator[Fence]:
        return (entry[5] for entry in self._near(lng, lat) if entry[5].covers(lng, lat))

    def at(self, lat: float, lng: float, most: int | None = None) -> list[Fence]:
        """The fences that cover a point, the one that claims it first; at most `most` of them."""
        return list(islice(self._covering(lat, lng), most))

    def first(self, lat: float, lng: float) -> Fence | None:
        """The fence that claims a point, or None."""
        return next(self._covering(lat, lng), None)

    def touches(self, lat: float, lng: float) -> bool:
        """Whether any fence's box holds the point."""
        return bool(self._near(lng, lat))


def rings_of(geometry: dict[str, Any]) -> list[list[Point]]:
    """Every ring of a GeoJSON Polygon or MultiPolygon that was validated."""
    polygons = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
    return [[(float(place[0]), float(place[1])) for place in ring] for polygon in polygons for ring in polygon]
