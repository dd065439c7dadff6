"""`umavez corridas`: import communities, remove expired confirmations, put demonstration data in place."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import cos, pi, sin
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from umavez_systems.settings import settings_of

if TYPE_CHECKING:
    from umavez_systems.corridas.operations import Corridas

group = typer.Typer(no_args_is_help=True, help="Rides: communities, drivers and demonstration data.")
Place = Annotated[str | None, typer.Option(help="sqlite:///file.db or postgresql://… [UMAVEZ_DATABASE]")]
T = TypeVar("T")
NAMES = ("Consolação", "Centro", "Brás", "Bela Vista", "Liberdade", "Mooca")
"""Two rows of three; the seed's passenger stands in the second place of the upper one."""
SIDE = 0.022
WEST, SOUTH = -46.6663, -23.5835


@group.command("import")
def import_communities(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A GeoJSON FeatureCollection.")
    ],
    database: Place = None,
) -> None:
    """Keep the communities of a GeoJSON file, new or changed: all of them, or none when one is not valid.

    Example:

        umavez corridas import comunidades.geojson
    """
    # Here, not above: they are heavy, and every other command would wait for them.
    from umavez_systems.corridas.geojson import communities_of  # noqa: PLC0415  # as said
    from umavez_systems.money import exact_json  # noqa: PLC0415  # as said
    from umavez_systems.problems import Problem  # noqa: PLC0415  # as said

    try:
        found = communities_of(exact_json(file.read_bytes()))
    except Problem as problem:
        typer.echo(f"umavez corridas import: {problem.detail}", err=True)
        raise typer.Exit(2) from None
    _with_corridas(database, lambda corridas: corridas.fleet.put_communities(found))
    typer.echo(f"Kept: {', '.join(community.id for community in found)}")


@group.command("sweep")
def sweep(database: Place = None) -> None:
    """Remove expired confirmations, as the server does by itself; each leaves a line in the audit. Safe to repeat.

    Example:

        umavez corridas sweep --database postgresql:///corridas
    """
    swept = _with_corridas(database, lambda corridas: corridas.sweep(), there=True)
    typer.echo(f"{swept:,} {'confirmation' if swept == 1 else 'confirmations'} removed.")


@group.command("demo")
def demo(
    database: Place = None,
    drivers: Annotated[int, typer.Option(min=1, max=1000, help="How many drivers to put on the map")] = 40,
) -> None:
    """Put six communities of São Paulo and some drivers in place; safe to repeat.

    The seed's passenger stands in Centro, where no driver is: asking there needs a confirmation.

    Example:

        umavez corridas demo && umavez serve, then open /corridas
    """
    _with_corridas(database, lambda corridas: populate(corridas, drivers))
    typer.echo(f"{len(NAMES)} communities and {drivers} drivers are in place; start `umavez serve` and open /corridas.")


def populate(corridas: Corridas, drivers: int) -> None:
    """The demonstration's communities and drivers; the same every time."""
    from umavez_systems.corridas.geojson import communities_of  # noqa: PLC0415  # as in import_communities

    chance = random.Random(1)  # noqa: S311  # a demonstration must repeat
    corridas.fleet.put_communities(communities_of(demo_communities()))
    fences = corridas.fleet.index.fences
    number = 0
    while number < drivers:
        lat, lng = SOUTH + chance.uniform(0, 2 * SIDE), WEST + chance.uniform(0, 3 * SIDE)
        first = fences.first(lat, lng)
        if first is not None and first.id == "centro":
            continue
        number += 1
        corridas.fleet.put_driver(f"demo-{number}", f"Motorista {number}", None, lat, lng, chance.random() < 0.85)


def demo_communities() -> dict[str, Any]:
    """Six communities side by side, two rows of three, as GeoJSON; Mooca has a park inside that is not part of it."""
    features = []
    for number, name in enumerate(NAMES):
        x = WEST + (number % 3 + 0.5) * SIDE
        y = SOUTH + (1.5 - number // 3) * SIDE
        rings = [_ring(x, y, 0.47, 28, number)]
        if name == "Mooca":
            rings.append(_ring(x, y, 0.12, 12, number))
        features.append(
            {
                "type": "Feature",
                "id": name.lower().replace(" ", "-").replace("ç", "c").replace("ã", "a").replace("á", "a"),
                "properties": {"name": name},
                "geometry": {"type": "Polygon", "coordinates": rings},
            }
        )
    return {"type": "FeatureCollection", "features": features}


def _ring(x: float, y: float, share: float, corners: int, seed: int) -> list[list[float]]:
    chance = random.Random(seed)  # noqa: S311  # a demonstration must repeat
    ring = []
    for corner in range(corners):
        turn = 2 * pi * corner / corners
        radius = SIDE * share * chance.uniform(0.86, 1.0)
        ring.append([round(x + radius * cos(turn), 6), round(y + radius * sin(turn), 6)])
    return [*ring, ring[0]]


def _with_corridas(database: str | None, work: Callable[[Corridas], T], *, there: bool = False) -> T:
    from umavez_systems.server import prepare  # noqa: PLC0415  # heavy, and of use to these commands only
    from umavez_systems.web import Carrier  # noqa: PLC0415  # the same

    settings = settings_of({"database": database}, there=there)
    prepare(settings)
    carrier = Carrier(settings)
    try:
        return work(carrier.corridas)
    finally:
        carrier.close()
