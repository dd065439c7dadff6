"""`umavez corridas`: communities from a file, and demonstration data that may be put in place twice."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.umavez_systems.corridas.conftest import square
from umavez_systems.corridas.command import demo_communities, group
from umavez_systems.corridas.fences import Fence, Fences, rings_of
from umavez_systems.corridas.geojson import communities_of


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "rides.db"


def counted(place: Path, table: str) -> int:
    connection = sqlite3.connect(place)
    try:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    finally:
        connection.close()


def test_the_demonstration_may_be_put_in_place_twice(place: Path) -> None:
    for _ in range(2):
        done = CliRunner().invoke(group, ["demo", "--database", f"sqlite:///{place}", "--drivers", "5"])
        assert done.exit_code == 0, done.output

    assert (counted(place, "communities"), counted(place, "drivers")) == (6, 5)


def test_the_seeds_passenger_stands_in_a_community_of_the_demonstration() -> None:
    fences = Fences(Fence(c.id, c.name, c.priority, rings_of(c.geometry)) for c in communities_of(demo_communities()))

    assert [fence.id for fence in fences.at(-23.5505, -46.6333)] == ["centro"]


def test_a_file_is_imported_all_or_none(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "c.geojson"
    crossed = square("torta", 1, 1)
    crossed["geometry"]["coordinates"] = [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]
    for features, code, kept in ([square("a", 0, 0), crossed], 2, 0), ([square("a", 0, 0)], 0, 1):
        file.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        done = CliRunner().invoke(group, ["import", str(file), "--database", f"sqlite:///{place}"])
        assert done.exit_code == code, done.output
        assert not place.exists() or counted(place, "communities") == kept
    file.write_text("{")
    assert CliRunner().invoke(group, ["import", str(file), "--database", f"sqlite:///{place}"]).exit_code == 2
