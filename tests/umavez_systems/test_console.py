"""The console in the server: who may come in, what the systems show in it, and one way around (X.04)."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from tests.console.browser import Forms
from tests.umavez_systems.conftest import served
from umavez.console import panels as engine_panels
from umavez.console.people import VARIABLE, entry
from umavez_systems.console.panels import panels
from umavez_systems.database import open_database
from umavez_systems.settings import Settings

CONSOLE = ("/console/", "/console/unknown", "/console/records", "/console/messages", "/console/leases",
           "/console/tokens", "/console/sequences", "/console/decisions")  # fmt: skip
SYSTEMS = ("/corridas", "/mailing", "/processos", "/fiscal")


def test_every_page_of_the_console_is_there_and_leads_around(client: httpx.Client) -> None:
    assert client.get("/console").headers["location"].endswith("/console/")
    for path in CONSOLE:
        page = client.get(path, headers={"accept-language": "en"})
        assert page.status_code == 200, (path, page.text)
        links = Forms(page.text).links
        for place in (*CONSOLE, *SYSTEMS):
            assert place in links, (path, place)
    overview = client.get("/console/", headers={"accept-language": "en"}).text
    for title in ("Mailing", "Fiscal", "Corridas", "Processos"):
        assert title in overview
    assert "did not answer in time" not in overview
    assert client.get("/console/static/console.css").status_code == 200


def test_the_systems_pages_lead_to_each_other_and_to_the_console(client: httpx.Client) -> None:
    for path in ("/", *SYSTEMS):
        links = Forms(client.get(path).text).links
        assert {"/", "/console/", *SYSTEMS} <= set(links), path


def test_a_decision_in_the_server_is_one_transaction(client: httpx.Client) -> None:
    page = client.get("/console/decisions", headers={"accept-language": "en"}).text

    assert "in one transaction" in page


def test_with_api_keys_people_sign_in_to_the_console(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed = settings.model_copy(update={"api_keys": SecretStr("ana:0123456789abcdef")})
    with served(keyed) as client:
        assert client.get("/console/").status_code == 403, "an API key is no browser's"
        assert client.get("/console/", headers={"authorization": "Bearer 0123456789abcdef"}).status_code == 403
    monkeypatch.setenv(VARIABLE, entry("ana", "a long password", "look"))
    with served(keyed) as client:
        page = client.get("/console/records")
        assert page.status_code == 401
        fields = next(fields for action, fields in Forms(page.text).found if action == "/console/in")
        answer = client.post(
            "/console/in",
            data=fields | {"name": "ana", "password": "a long password"},
            headers={"sec-fetch-site": "same-origin"},
        )
        assert (answer.status_code, answer.headers["location"]) == (303, "/console/records")
        assert client.get("/console/records").status_code == 200


def test_panels_count_up_to_a_bound_and_raise_alarms(settings: Settings, client: httpx.Client) -> None:
    database = open_database(settings.database, 1)
    with database.transaction() as connection:
        connection.rows(
            "INSERT INTO mailings (filename, nome, principal, entradas, linhas, aceitas, enviados, desconhecidos,"
            " content_hash) VALUES ('local/<b>.csv', '<b>.csv', 'local', 3, 3, 3, 1, 1, '')"
        )
    found = {panel.name: panel for panel in panels(database.store_url, database)}
    tile = found["Mailing"].tile()
    assert tile is not None
    assert tile.alarm
    assert ("total", "3") in tile.lines
    assert dict(tile.lines)["it does NOT add up"] == "3 entradas gravadas, 2 contadas por estado"
    assert not getattr(found["Processos"].tile(), "alarm", True)
    assert found["Fiscal"].find("nothing like this") == []
    page = client.get("/console/", headers={"accept-language": "pt"}).text
    assert "&lt;b&gt;.csv" in page
    assert "a conta NÃO fecha" in page
    assert "it does NOT add up" in client.get("/console/", headers={"accept-language": "en"}).text
    database.close()


def test_the_panels_are_found_by_their_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    ((name, value),) = project["project"]["entry-points"][engine_panels.GROUP].items()
    entries = [
        importlib.metadata.EntryPoint(name, value, engine_panels.GROUP),
        importlib.metadata.EntryPoint("broken", "umavez_systems.nowhere:panels", engine_panels.GROUP),
    ]

    def found(*, group: str) -> list[Any]:
        return [each for each in entries if each.group == group]

    monkeypatch.setattr(importlib.metadata, "entry_points", found)
    names = [panel.name for panel in engine_panels.installed(f"sqlite:///{tmp_path}/a.db")]

    assert names == ["Mailing", "Fiscal", "Corridas", "Processos"]
    assert engine_panels.installed(None) == []
