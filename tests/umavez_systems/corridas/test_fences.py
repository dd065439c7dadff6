"""Fences and matching against shapely and against brute force."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import pytest
import shapely
from shapely.geometry import Point, shape

from tests.umavez_systems.corridas.conftest import square
from umavez_systems.corridas.fences import Fence, Fences, rings_of
from umavez_systems.corridas.geojson import communities_of
from umavez_systems.corridas.matching import MOST_FENCES, Driver, Matching
from umavez_systems.problems import Problem

SEED = 20240101


def star(chance: random.Random, x: float, y: float, radius: float, corners: int) -> list[list[float]]:
    """An irregular ring around a place; never crosses itself."""
    turns = sorted(chance.uniform(0, math.tau) for _ in range(corners))
    ring = [
        [x + math.cos(turn) * radius * (part := chance.uniform(0.5, 1)), y + math.sin(turn) * radius * part]
        for turn in turns
    ]
    return [*ring, ring[0]]


def with_hole(chance: random.Random, x: float, y: float) -> dict[str, Any]:
    """Two islands; the first has a lake."""
    first = [star(chance, x, y, 0.02, 40), star(chance, x, y, 0.004, 9)]
    return {"type": "MultiPolygon", "coordinates": [first, [star(chance, x + 0.05, y, 0.02, 12)]]}


def made(count: int, seed: int) -> list[tuple[Fence, Any]]:
    """Fences, each with what shapely makes of it; those that are no valid polygon are left out."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        geometry = with_hole(chance, -46.6 + chance.uniform(-0.3, 0.3), -23.5 + chance.uniform(-0.3, 0.3))
        if shapely.is_valid(shape(geometry)):
            found.append((Fence(f"f{number}", "", 0, rings_of(geometry)), shape(geometry)))
    return found


def points(fences: list[tuple[Fence, Any]], count: int, seed: int) -> list[tuple[float, float]]:
    """Random points: inside, around, on corners, on edges as near as floats come, and level with a corner."""
    chance = random.Random(seed)
    corners = [corner for _, area in fences for part in area.geoms for corner in part.exterior.coords]
    edges = [pair for _, area in fences for p in area.geoms for pair in pairwise(p.exterior.coords)]
    found = []
    for _ in range(count):
        kind, (cx, cy) = chance.randrange(5), chance.choice(corners)
        if kind == 0:
            found.append((cx, cy))
        elif kind == 1:
            (ax, ay), (bx, by) = chance.choice(edges)
            part = chance.choice((0.5, chance.random()))
            found.append((ax + (bx - ax) * part, ay + (by - ay) * part))
        elif kind == 2:
            found.append((cx + chance.uniform(-0.05, 0.05), cy))
        elif kind == 3:
            found.append((math.nextafter(cx, chance.choice((-180, 180))), cy))
        else:
            found.append((cx + chance.uniform(-0.03, 0.03), cy + chance.uniform(-0.03, 0.03)))
    return found


def test_the_same_answers_as_shapely_edges_included() -> None:
    """S1.09."""
    fences = made(60, SEED)
    index = Fences(fence for fence, _ in fences)
    areas = {fence.id: area for fence, area in fences}
    on_edge = inside = 0
    for x, y in points(fences, 4000, SEED):
        point = Point(x, y)
        expected = {name for name, area in areas.items() if area.covers(point)}
        assert {fence.id for fence in index.at(y, x)} == expected, f"seed {SEED}: {x!r}, {y!r}"
        inside += bool(expected)
        on_edge += any(not areas[name].contains(point) for name in expected)
    assert on_edge > 500
    assert inside > 1500


def test_a_point_on_the_edge_of_a_hole_is_inside_and_in_the_hole_it_is_not() -> None:
    ring = [[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]]
    hole = [[1, 1], [3, 1], [3, 3], [1, 3], [1, 1]]
    fence = Fence("a", "", 0, rings_of({"type": "Polygon", "coordinates": [ring, hole]}))

    assert fence.covers(1, 2)
    assert fence.covers(1, 1)
    assert not fence.covers(2, 2)
    assert fence.covers(0.5, 2)
    assert fence.covers(4, 4)
    assert not fence.covers(4.0000001, 4)


def test_where_fences_overlap_the_higher_priority_claims_the_point() -> None:
    fences = [communities_of(square(name, 0, 0, priority=rank))[0] for name, rank in (("b", 1), ("a", 1), ("c", 2))]
    index = Fences(Fence(c.id, c.name, c.priority, rings_of(c.geometry)) for c in fences)

    assert [fence.id for fence in index.at(0.01, 0.01)] == ["c", "a", "b"]
    first = index.first(0.01, 0.01)
    assert first is not None
    assert first.id == "c"


def test_a_fence_as_large_as_a_country_is_found_among_small_ones() -> None:
    country = communities_of(square("pais", -60, -30, 20, priority=-1))[0]
    town = communities_of(square("vila", -46.6, -23.5))[0]
    index = Fences(Fence(c.id, c.name, c.priority, rings_of(c.geometry)) for c in (country, town))

    assert [fence.id for fence in index.at(-23.49, -46.59)] == ["vila", "pais"]
    assert [fence.id for fence in index.at(-25, -50)] == ["pais"]
    assert index.first(5, 5) is None


def comb(x: float, y: float, teeth: int, slope: float = 0.0) -> dict[str, Any]:
    """A band that goes up and down: every edge is as tall as the fence."""
    edge = [[x + n * 1e-4, y + n % 2 + n * slope] for n in range(teeth)]
    ring = [*edge, *([a, b + 1e-3] for a, b in reversed(edge)), edge[0]]
    return {"type": "Polygon", "coordinates": [ring]}


def test_fences_of_every_size_and_shape_answer_as_shapely_does() -> None:
    chance = random.Random(SEED)
    shapes = [comb(-46.5, -23.5, 300), comb(-46.6, -23.6, 300, slope=1e-3)]
    for power in range(-16, 6):
        side = 2.0**power
        corner = [-46.6 + chance.uniform(-side, 0), -23.5 + chance.uniform(-side, 0)]
        shapes += [square("", *corner, side)["geometry"], square("", corner[0], corner[1], side * 0.7)["geometry"]]
    areas = {f"f{n}": shape(geometry) for n, geometry in enumerate(shapes)}
    index = Fences(Fence(f"f{n}", "", 0, rings_of(geometry)) for n, geometry in enumerate(shapes))
    corners = [corner for area in areas.values() for corner in area.exterior.coords]

    for number in range(3000):
        x, y = chance.choice(corners)
        spread = 2.0 ** chance.randrange(-18, 6) if number % 3 else 0
        x, y = x + chance.uniform(-spread, spread), y + chance.uniform(-spread, spread)
        expected = {name for name, area in areas.items() if area.covers(Point(x, y))}
        assert {fence.id for fence in index.at(y, x)} == expected, f"seed {SEED}: {x!r}, {y!r}"


def test_the_index_grows_with_corners_and_fences_however_large_they_are() -> None:
    chance = random.Random(SEED)
    fences = []
    for number in range(500):
        side = 2.0 ** chance.uniform(-19, 6)
        ring = square("", chance.uniform(-100, 100), chance.uniform(-80, 20), side)["geometry"]
        fences.append(Fence(f"f{number}", "", 0, rings_of(ring)))
    index = Fences(fences)
    tall = Fence("pente", "", 0, rings_of(comb(-46, -23, 4000, slope=1e-4)))

    assert sum(len(cell) for grid in index._grids.values() for cell in grid.values()) <= 25 * len(fences)
    assert sum(map(len, tall._slabs)) <= 10 * tall.corners


def test_a_driver_is_kept_under_a_bounded_number_of_fences() -> None:
    squares = [communities_of(square(f"c{n:03}", 0, 0, priority=-n))[0] for n in range(MOST_FENCES + 20)]
    index = Matching(Fences(Fence(c.id, "", c.priority, rings_of(c.geometry)) for c in squares))
    index.put(Driver("a", 0.01, 0.01, True, None))
    index.put(Driver("b", 0.01, 0.01, True, squares[-1].id))

    held = {name: [driver.id for driver in index.inside(fence, 0, 0)] for name, fence in index.fences.by_id.items()}
    assert [name for name, found in held.items() if "a" in found] == [c.id for c in squares[:MOST_FENCES]]
    assert [name for name, found in held.items() if "b" in found] == [squares[-1].id]


def test_drivers_are_looked_at_again_only_where_fences_changed() -> None:
    near, far = (
        Fence(c.id, "", 0, rings_of(c.geometry))
        for c in (communities_of(square("perto", 0, 0))[0], communities_of(square("longe", 5, 5))[0])
    )
    index = Matching(Fences([near, far]))
    index.put_all([Driver("a", 0.01, 0.01, True, None), Driver("b", 5.01, 5.01, True, None)])
    kept = index._placed["b"]

    index.fence(Fences([far]))
    assert index.inside(near, 0, 0) == []
    assert index._placed["b"] is kept
    index.fence(Fences([near, far]))
    assert [driver.id for driver in index.inside(near, 0, 0)] == ["a"]


SQUARE = [[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]


@pytest.mark.parametrize(
    ("geometry", "said"),
    [
        ({"type": "Point", "coordinates": [0, 0]}, "Polygon"),
        ({"type": "Polygon", "coordinates": []}, "nenhum anel"),
        ({"type": "MultiPolygon", "coordinates": []}, "vazio"),
        ({"type": "Polygon", "coordinates": [[]]}, "4 posições"),
        ({"type": "Polygon", "coordinates": [SQUARE[:-1]]}, "fechado"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]}, "cruza"),
        ({"type": "Polygon", "coordinates": [SQUARE, [[5, 5], [6, 5], [6, 6], [5, 5]]]}, "cruza"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [500, 0], [1, 1], [0, 0]]]}, "-180 a 180"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [float("nan"), 0], [1, 1], [0, 0]]]}, "-180 a 180"),
        ({"type": "Polygon", "coordinates": [[[0, 0], ["x", 0], [1, 1], [0, 0]]]}, "números"),
        ({"type": "MultiPolygon", "coordinates": [[SQUARE], [SQUARE]]}, "cruza"),
        (None, "geometry"),
    ],
)
def test_a_fence_that_is_not_valid_is_refused_with_the_reason(geometry: Any, said: str) -> None:
    feature = {"type": "Feature", "id": "a", "properties": {}, "geometry": geometry}

    with pytest.raises(Problem, match=said) as refused:
        communities_of({"type": "FeatureCollection", "features": [square("boa", 0, 0), feature]})
    assert "feature 2" in str(refused.value)


def distance(driver: Driver, lat: float, lng: float) -> float:
    """The great circle, in radians."""
    a, b = math.radians(lat), math.radians(driver.lat)
    part = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(math.radians(driver.lng - lng) / 2) ** 2
    return 2 * math.asin(math.sqrt(part))


@pytest.mark.parametrize(("lat", "lng"), [(-23.5, -46.6), (0.0, 179.99), (64.1, -21.9), (-23.8, -46.2)])
@pytest.mark.parametrize("count", [10, 3000])
def test_the_nearest_drivers_are_those_of_a_search_through_all(lat: float, lng: float, count: int) -> None:
    chance = random.Random(SEED)
    wide = [(chance.gauss(lat, 0.1), (chance.gauss(lng, 0.1) + 180) % 360 - 180) for _ in range(count)]
    drivers = [Driver(f"d{n}", *place, free=chance.random() < 0.7, community=None) for n, place in enumerate(wide)]
    index = Matching()
    index.put_all(drivers)

    for _ in range(60):
        here = (lat + chance.uniform(-0.1, 0.1), (lng + chance.uniform(-0.1, 0.1) + 180) % 360 - 180)
        nearest = sorted((d for d in drivers if d.free), key=lambda driver: distance(driver, *here))[:5]
        assert index.anywhere(*here, 5) == nearest, f"seed {SEED}: {here}"


def test_drivers_inside_a_fence_follow_their_moves_and_engagements() -> None:
    fences = made(20, SEED)
    chance = random.Random(SEED)
    index, truth = Matching(Fences(fence for fence, _ in fences)), {}
    for _ in range(6000):
        name = f"d{chance.randrange(400)}"
        place = (-23.5 + chance.uniform(-0.3, 0.3), -46.6 + chance.uniform(-0.3, 0.3))
        truth[name] = Driver(name, *place, free=chance.random() < 0.5, community=None)
        index.put(truth[name])
    for fence, area in fences:
        lat, lng = -23.5, -46.6
        free = [d for d in truth.values() if d.free and area.covers(Point(d.lng, d.lat))]
        expected = sorted(free, key=lambda driver: distance(driver, lat, lng))[:8]
        assert index.inside(fence, lat, lng) == expected
        for driver in expected:
            index.engage(driver.id, free=False)
            truth[driver.id] = driver._replace(free=False)


def test_a_driver_of_another_community_does_not_serve_inside_the_fence() -> None:
    fence = communities_of(square("centro", 0, 0))[0]
    index = Matching(Fences([Fence(fence.id, "", 0, rings_of(fence.geometry))]))
    index.put_all([Driver("alheio", 0.01, 0.01, True, "leste"), Driver("seu", 0.015, 0.015, True, "centro")])

    assert [driver.id for driver in index.inside(index.fences.by_id["centro"], 0.01, 0.01)] == ["seu"]
    assert [driver.id for driver in index.anywhere(0.01, 0.01)] == ["alheio", "seu"]


def test_new_fences_are_applied_to_drivers_that_are_known() -> None:
    index = Matching()
    index.put(Driver("a", 0.01, 0.01, True, None))
    fence = communities_of(square("centro", 0, 0))[0]
    index.fence(Fences([Fence(fence.id, "", 0, rings_of(fence.geometry))]))

    assert [driver.id for driver in index.inside(index.fences.by_id["centro"], 0, 0)] == ["a"]
