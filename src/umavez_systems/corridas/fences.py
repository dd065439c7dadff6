"""Fences: which communities cover a point. Pure Python; the same answers as shapely's `covers`, edges included.

Edges are straight lines between longitudes and latitudes, as RFC 7946 says. A point on an edge is inside, on the
edge of a hole too. Signs that rounding could turn are computed again in exact fractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import floor
from typing import Any

Point = tuple[float, float]
"""Longitude, latitude."""
Edge = tuple[float, float, float, float]

CELL = 0.01
"""Side of a grid cell in degrees, about a kilometre."""
LARGE = 4096
"""A fence over more cells than this is tested by its box instead, so that no import can fill the memory."""
PER_SLAB = 4
_ROUNDING = 4.0e-16
"""Above this share of its terms the sign of the determinant is certain in double arithmetic."""


class Fence:
    """One community's area: a polygon or several, with holes."""

    __slots__ = ("_height", "_low", "_slabs", "box", "id", "name", "priority")

    def __init__(self, number: str, name: str, priority: int, rings: Iterable[Sequence[Point]]) -> None:
        edges = [(*a, *b) for ring in rings for a, b in pairwise(ring)]
        xs, ys = [edge[0] for edge in edges], [edge[1] for edge in edges]
        self.id = number
        self.name = name
        self.priority = priority
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
    """The edges by horizontal slab. Slabs overlap by a hair: rounding must not put an edge beside its slab."""
    count = max(1, min(len(edges) // PER_SLAB, 1024))
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


class Fences:
    """Every fence, found by point through a grid. Immutable: a change of fences makes another."""

    def __init__(self, fences: Iterable[Fence] = ()) -> None:
        # In the order in which overlapping fences claim a point: by priority, then by id.
        ordered = sorted(fences, key=lambda fence: (-fence.priority, fence.id))
        self.by_id = {fence.id: fence for fence in ordered}
        self._large: list[tuple[int, Fence]] = []
        self._cells: dict[tuple[int, int], list[tuple[int, Fence]]] = {}
        for rank, fence in enumerate(ordered):
            self._place(rank, fence)

    def _place(self, rank: int, fence: Fence) -> None:
        west, south, east, north = (floor(side / CELL) for side in fence.box)
        if (east - west + 1) * (north - south + 1) > LARGE:
            self._large.append((rank, fence))
            return
        for column in range(west, east + 1):
            for row in range(south, north + 1):
                self._cells.setdefault((column, row), []).append((rank, fence))

    def at(self, lat: float, lng: float) -> list[Fence]:
        """The fences that cover a point, the one that claims it first."""
        near = self._cells.get((floor(lng / CELL), floor(lat / CELL)), ())
        if not self._large:
            return [fence for _, fence in near if fence.covers(lng, lat)]
        return [fence for _, fence in sorted([*near, *self._large], key=_rank) if fence.covers(lng, lat)]

    def first(self, lat: float, lng: float) -> Fence | None:
        """The fence that claims a point, or None."""
        if self._large:
            return next(iter(self.at(lat, lng)), None)
        for _, fence in self._cells.get((floor(lng / CELL), floor(lat / CELL)), ()):
            if fence.covers(lng, lat):
                return fence
        return None


def _rank(entry: tuple[int, Fence]) -> int:
    return entry[0]


def rings_of(geometry: dict[str, Any]) -> list[list[Point]]:
    """Every ring of a GeoJSON Polygon or MultiPolygon that was validated."""
    polygons = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
    return [[(float(place[0]), float(place[1])) for place in ring] for polygon in polygons for ring in polygon]
