"""Matching: free drivers by place and by fence, in process. An index, not the truth: the database gives a driver away.

Distance is the chord between two points of the sphere: it orders as the great circle does, across the date line too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import cache
from itertools import islice
from math import asin, cos, floor, radians, sin
from typing import NamedTuple, TypeVar

from umavez_systems.corridas.fences import Fence, Fences

LEVELS = (0.004, 0.04, 0.4)
"""Sides of grid cells in degrees, about 400 m, 4 km and 40 km: the sparser the drivers, the larger the cells."""
REACH = 5
"""Rings of cells that are looked at on one level before the next."""
FEW = 200
"""Up to so many drivers are compared one by one: quicker than walking cells."""
CANDIDATES = 8
MOST_FENCES = 64
"""Fences that a driver is kept under, those that claim its place first; who asks in another is told by the database."""
AT_ONCE = 500
"""Drivers that are looked at again before others get their turn at the index."""

K = TypeVar("K")
Vector = tuple[float, float, float]
Cell = tuple[int, int]
Held = dict[str, Vector]


class Driver(NamedTuple):
    """A driver's place and whether a ride may be given to it."""

    id: str
    lat: float
    lng: float
    free: bool
    community: str | None


class _Placed(NamedTuple):
    driver: Driver
    cells: tuple[Cell, ...]
    fences: tuple[str, ...]


class Matching:
    """The fences and the drivers as this process knows them. Safe to use from threads."""

    def __init__(self, fences: Fences | None = None) -> None:
        self._lock = threading.Lock()
        self._fences = Fences() if fences is None else fences
        self._placed: dict[str, _Placed] = {}
        self._free: Held = {}
        self._inside: dict[str, Held] = {}
        self._grids: tuple[dict[Cell, Held], ...] = tuple({} for _ in LEVELS)

    @property
    def fences(self) -> Fences:
        """The fences."""
        return self._fences

    def fence(self, fences: Fences) -> None:
        """Put other fences in place; the drivers near those that changed are looked at again, some at a time."""
        with self._lock:
            before, self._fences = self._fences.by_id, fences
            names = iter(list(self._placed))
            if not self._placed:
                return
        after = fences.by_id
        gone = [fence for name, fence in before.items() if after.get(name) is not fence]
        come = [fence for name, fence in after.items() if before.get(name) is not fence]
        changed = Fences([*gone, *come])
        while some := list(islice(names, AT_ONCE)):
            with self._lock:
                for driver in [self._placed[name].driver for name in some]:
                    if changed.touches(driver.lat, driver.lng):
                        self._put(driver)

    def put(self, driver: Driver) -> None:
        """Know a driver where it is now."""
        with self._lock:
            self._put(driver)

    def put_all(self, drivers: Iterable[Driver]) -> None:
        """Know many drivers where they are now."""
        with self._lock:
            for driver in drivers:
                self._put(driver)

    def engage(self, name: str, *, free: bool) -> None:
        """Mark a driver as free or not, where it is known."""
        with self._lock:
            placed = self._placed.get(name)
            if placed is not None and placed.driver.free != free:
                self._put(placed.driver._replace(free=free))

    def _put(self, driver: Driver) -> None:
        name = driver.id
        before = self._placed.get(name)
        if before is not None and before.driver.free:
            self._withdraw(name, before)
        if not driver.free:
            # Only a free driver is ever looked for.
            self._placed[name] = _Placed(driver, (), ())
            return
        _, lat, lng, _, community = driver
        cells = tuple([_cell(lat, lng, side) for side in LEVELS])
        fences = tuple([fence.id for fence in self._serving(lat, lng, community)])
        self._placed[name] = _Placed(driver, cells, fences)
        self._free[name] = vector = vector_of(lat, lng)
        for grid, cell in zip(self._grids, cells, strict=True):
            grid.setdefault(cell, {})[name] = vector
        for fence in fences:
            self._inside.setdefault(fence, {})[name] = vector

    def _serving(self, lat: float, lng: float, community: str | None) -> list[Fence]:
        """The fences for which a driver counts: those that it stands in, or its own community's alone."""
        if community is None:
            return self._fences.at(lat, lng, MOST_FENCES)
        own = self._fences.by_id.get(community)
        return [own] if own is not None and own.covers(lng, lat) else []

    def _withdraw(self, name: str, placed: _Placed) -> None:
        del self._free[name]
        for grid, cell in zip(self._grids, placed.cells, strict=True):
            _drop(grid, cell, name)
        for fence in placed.fences:
            _drop(self._inside, fence, name)

    def inside(self, fence: Fence, lat: float, lng: float, count: int = CANDIDATES) -> list[Driver]:
        """The nearest free drivers inside `fence` that serve its community, the nearest first."""
        with self._lock:
            return self._nearest(self._inside.get(fence.id, {}), lat, lng, count)

    def anywhere(self, lat: float, lng: float, count: int = CANDIDATES) -> list[Driver]:
        """The nearest free drivers wherever they are, the nearest first."""
        with self._lock:
            return self._nearest(self._free, lat, lng, count)

    def _nearest(self, held: Held, lat: float, lng: float, count: int) -> list[Driver]:
        here = vector_of(lat, lng)
        if len(held) > FEW:
            for side, grid in zip(LEVELS, self._grids, strict=True):
                found = self._around(held, grid, side, (lat, lng), count)
                if found is not None:
                    return self._drivers(found[:count])
        return self._drivers(_apart(held, here)[:count])

    def _around(
        self, held: Held, grid: dict[Cell, Held], side: float, at: tuple[float, float], count: int
    ) -> list[tuple[float, str]] | None:
        """The drivers of the cells around a place, by distance; None when too few of them are surely the nearest."""
        here, (column, row), columns = vector_of(*at), _cell(*at, side), round(360 / side)
        every = held is self._free
        found: Held = {}
        for ring in range(REACH + 1):
            for across, up in _ring(ring):
                there = grid.get(((column + across) % columns, row + up))
                if there:
                    found.update(there if every else {name: there[name] for name in there if name in held})
            if ring and len(found) >= count:
                ordered = _apart(found, here)
                if ordered[count - 1][0] <= _sure(at[0], ring * side):
                    return ordered
        return None

    def _drivers(self, found: list[tuple[float, str]]) -> list[Driver]:
        return [self._placed[name].driver for _, name in found]


def _drop(held: dict[K, Held], where: K, name: str) -> None:
    """Take a driver out of one cell or fence; an empty one is not kept."""
    there = held[where]
    del there[name]
    if not there:
        del held[where]


def _apart(held: Held, here: Vector) -> list[tuple[float, str]]:
    """The drivers of `held` by the square of their chord from `here`, the nearest first."""
    a, b, c = here
    return sorted(
        [((x - a) * (x - a) + (y - b) * (y - b) + (z - c) * (z - c), name) for name, (x, y, z) in held.items()]
    )


def vector_of(lat: float, lng: float) -> Vector:
    """The point of the unit sphere."""
    phi, lam = radians(lat), radians(lng)
    flat = cos(phi)
    return flat * cos(lam), flat * sin(lam), sin(phi)


EARTH_KM = 6371.0088


def kilometres(lat: float, lng: float, other_lat: float, other_lng: float) -> float:
    """How far two places are from each other, along the great circle."""
    (a, b, c), (x, y, z) = vector_of(lat, lng), vector_of(other_lat, other_lng)
    chord = ((x - a) ** 2 + (y - b) ** 2 + (z - c) ** 2) ** 0.5
    return 2 * EARTH_KM * asin(min(1.0, chord / 2))


def _cell(lat: float, lng: float, side: float) -> Cell:
    return floor(lng / side) % round(360 / side), floor(lat / side)


def _sure(lat: float, degrees: float) -> float:
    """The squared chord within which nobody can stand beyond `degrees` of latitude or longitude.

    The nearest place out there is no closer than the meridian at the edge of what was seen.
    """
    return (2 * sin(asin(cos(radians(lat)) * sin(radians(degrees))) / 2)) ** 2


@cache
def _ring(ring: int) -> tuple[Cell, ...]:
    """The steps from the middle to the cells of a ring."""
    steps = range(-ring, ring + 1)
    return tuple((across, up) for across in steps for up in steps if max(abs(across), abs(up)) == ring)
