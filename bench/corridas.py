"""Matching at 1,000 fences and 100,000 drivers, against shapely and against searching through all, in one run.

python -m bench.corridas [--quick] [--points 100000]

agreement:  the same fences as shapely's `covers` for every point, edges and corners included     (0 differences)
point:      from a point to its fences                                                            (10-200 us)
nearest:    from a passenger to the nearest free drivers, anywhere and inside a fence             (10-200 us)
moves:      positions per second that the index takes, fences resolved                            (tens of thousands)
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import shapely
from shapely.geometry import Point, Polygon

from umavez_systems.corridas.fences import Fence, Fences
from umavez_systems.corridas.matching import Driver, Matching, vector_of

SEED = 7
CORNERS = 60
LAT, LNG, SPREAD = -23.55, -46.63, 0.35
ROUNDS = 5

Place = tuple[float, float]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--fences", type=int, default=1_000)
    parser.add_argument("--drivers", type=int, default=100_000)
    given = parser.parse_args()
    if given.quick:
        given.points, given.drivers = 10_000, 20_000
    chance = random.Random(SEED)
    areas = made(chance, given.fences)
    fences = Fences(Fence(f"f{n}", "", 0, [list(area.exterior.coords)]) for n, area in enumerate(areas))
    print(f"seed {SEED}: {len(areas)} fences of {CORNERS} corners, {given.drivers} drivers, {given.points} points")
    agreement(fences, areas, points(chance, areas, given.points))
    point_to_fences(fences, areas, [place(chance) for _ in range(2_000)])
    nearest(chance, fences, given.drivers)


def made(chance: random.Random, count: int) -> list[Polygon]:
    """Irregular fences, 0.5 to 2 km wide to each side, some over others."""
    found = []
    for _ in range(count):
        x, y, radius = LNG + spread(chance), LAT + spread(chance), chance.uniform(0.005, 0.02)
        turns = sorted(chance.uniform(0, math.tau) for _ in range(CORNERS))
        ring = []
        for turn in turns:
            part = radius * chance.uniform(0.6, 1)
            ring.append((x + math.cos(turn) * part, y + math.sin(turn) * part))
        found.append(Polygon(ring))
    return found


def spread(chance: random.Random) -> float:
    """A distance from the middle of the city."""
    return chance.uniform(-SPREAD, SPREAD)


def place(chance: random.Random) -> Place:
    """Somewhere in the city: longitude, latitude."""
    return LNG + spread(chance), LAT + spread(chance)


def points(chance: random.Random, areas: list[Polygon], count: int) -> list[Place]:
    """Half anywhere; the rest on corners, on edges as near as floats come, beside corners, and level with them."""
    edges = [pair for area in areas for pair in pairwise(area.exterior.coords)]
    found: list[Place] = []
    for number in range(count):
        (ax, ay), (bx, by) = chance.choice(edges)
        part = chance.random()
        kinds = {
            0: (ax, ay),
            1: (ax + (bx - ax) * part, ay + (by - ay) * part),
            2: (math.nextafter(ax, 0), ay),
            3: (ax + spread(chance) / 20, ay),
        }
        found.append(kinds.get(number % 8) or place(chance))
    return found


def agreement(fences: Fences, areas: list[Polygon], places: list[Place]) -> None:
    """Every point's fences, by us and by shapely."""
    tree = shapely.STRtree(areas)
    ready = shapely.points(places)
    which, fence = tree.query(ready, predicate="covered_by")
    expected: list[set[str]] = [set() for _ in places]
    for number, name in zip(which, fence, strict=True):
        expected[number].add(f"f{name}")
    different = edges = 0
    for (x, y), names in zip(places, expected, strict=True):
        different += {found.id for found in fences.at(y, x)} != names
    _, touched = tree.query(ready, predicate="touches")
    edges = len(touched)
    print(f"agreement   {different} differences in {len(places)} points; {edges} times a point was on an edge")
    assert different == 0


def point_to_fences(fences: Fences, areas: list[Polygon], places: list[Place]) -> None:
    """One point at a time."""
    tree = shapely.STRtree(areas)
    shapely.prepare(areas)
    every = list(fences.by_id.values())
    ready = [Point(*spot) for spot in places]
    rows = {
        "umavez grid + ray": timed(lambda spot: fences.at(spot[1], spot[0]), places),
        "shapely STRtree, Point made": timed(lambda spot: tree.query(Point(*spot), predicate="covered_by"), places),
        "shapely STRtree, Point ready": timed(lambda spot: tree.query(spot, predicate="covered_by"), ready),
        "through all fences": timed(lambda spot: [f for f in every if f.covers(*spot)], places[:200]),
    }
    show("point", rows)


def nearest(chance: random.Random, fences: Fences, count: int) -> None:
    """Nearest free drivers, and positions that move."""
    index = Matching(fences)
    drivers = [Driver(f"d{n}", *reversed(place(chance)), chance.random() < 0.6, None) for n in range(count)]
    began = time.process_time()
    index.put_all(drivers)
    print(f"fill        {count} drivers in {time.process_time() - began:.2f} s")
    free = [driver for driver in drivers if driver.free]
    vectors = np.array([vector_of(driver.lat, driver.lng) for driver in free])
    places = [place(chance) for _ in range(2_000)]

    def brute(spot: Place) -> str:
        apart = ((vectors - np.array(vector_of(spot[1], spot[0]))) ** 2).sum(axis=1)
        return free[int(apart.argmin())].id

    for spot in places[:300]:
        assert index.anywhere(spot[1], spot[0])[0].id == brute(spot)
    inside = [(fence, spot) for spot in places if (fence := fences.first(spot[1], spot[0])) is not None]
    rows = {
        "umavez, 8 nearest anywhere": timed(lambda spot: index.anywhere(spot[1], spot[0]), places),
        "umavez, 8 nearest in a fence": timed(lambda at: index.inside(at[0], at[1][1], at[1][0]), inside),
        "numpy through all, 1 nearest": timed(brute, places[:100]),
        "Python through all, 1 nearest": timed(lambda spot: _plain(free, spot), places[:3]),
    }
    show("nearest", rows)
    moves = [d._replace(lat=d.lat + chance.gauss(0, 1e-4), lng=d.lng + chance.gauss(0, 1e-4)) for d in drivers]
    began = time.process_time()
    for driver in moves:
        index.put(driver)
    rate = count / (time.process_time() - began)
    print(f"moves       {rate:,.0f} positions per second, {1e6 / rate:.1f} us each")


def _plain(free: Sequence[Driver], spot: Place) -> str:
    here = vector_of(spot[1], spot[0])
    return min(free, key=lambda d: sum((a - b) ** 2 for a, b in zip(vector_of(d.lat, d.lng), here, strict=True))).id


def timed(work: Callable[[Any], object], things: Sequence[Any]) -> list[float]:
    """Microseconds of processor for one call: the mean of each round. Other programs on the machine do not count."""
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for thing in things:
            work(thing)
        found.append((time.process_time() - began) / len(things) * 1e6)
    return found


def show(name: str, rows: dict[str, list[float]]) -> None:
    """The median of the rounds, with the least and the greatest."""
    for what, found in rows.items():
        print(f"{name:11} {what:32} {statistics.median(found):10.1f} us  ({min(found):.1f} to {max(found):.1f})")


if __name__ == "__main__":
    main()
