"""The start, the way around and the reference: both languages, no script, nothing from another host."""

from __future__ import annotations

import re
from html import escape

import httpx
import pytest

from tests.console.browser import Forms
from umavez_systems.front.navigation import MARK, PLACES
from umavez_systems.front.routes import routes_of
from umavez_systems.server import create_app
from umavez_systems.settings import Settings

PAGES = ("/", "/docs", "/corridas", "/mailing", "/processos", "/fiscal")


@pytest.mark.parametrize("path", PAGES)
def test_every_page_leads_to_every_other_in_both_languages(client: httpx.Client, path: str) -> None:
    for lang, word in (("en", "Start"), ("pt", "Início")):
        page = client.get(path, headers={"accept-language": f"{lang},fr;q=0.5"})
        assert page.status_code == 200
        assert f'<a href="/"{_current(path, "/")}>{word}</a>' in page.text
        assert {link.page for link in PLACES} <= set(Forms(page.text).links)
        assert MARK not in page.text
        assert page.text.count('aria-current="page"') == 1
        assert "Accept-Language" in page.headers["vary"]


def _current(path: str, place: str) -> str:
    return ' aria-current="page"' if path == place else ""


def test_the_language_is_the_browsers_until_somebody_chooses_and_then_stays_on_every_page(client: httpx.Client) -> None:
    english = {"accept-language": "en"}
    assert "Systems in which repeating" in client.get("/", headers=english).text
    assert "Sistemas em que repetir" in client.get("/", headers={"accept-language": "fr"}).text

    client.get("/fiscal?lang=pt", headers=english)
    assert client.cookies["umavez_lang"] == "pt"
    assert "Sistemas em que repetir" in client.get("/", headers=english).text
    assert "Visão geral" in client.get("/console/", headers=english).text
    client.get("/console/?lang=en")
    assert "Systems in which repeating" in client.get("/", headers={"accept-language": "pt"}).text
    client.get("/?lang=%22%3E%3Cscript%3E")
    assert client.cookies["umavez_lang"] == "en", "only a language that there is"


def test_both_start_pages_print_the_same_commands(client: httpx.Client) -> None:
    pages = [client.get("/", headers={"accept-language": lang}).text for lang in ("pt", "en")]
    commands = [re.findall(r"<pre><code>(.*?)</code></pre>", page, re.DOTALL) for page in pages]

    assert len(commands[0]) > 10
    assert commands[0] == commands[1]
    assert [page.count("<h2>") for page in pages] == [5, 5]


def test_the_reference_has_every_route_and_finds_by_words(client: httpx.Client) -> None:
    page = client.get("/docs", headers={"accept-language": "en"})
    document = client.get("/openapi.json").json()
    for path, item in document["paths"].items():
        for method in item:
            assert f"{method.upper()}</b> <code>{escape(path)}</code>" in page.text
    for title in ("Clientes e propostas", "Corridas", "Processos", "Mailing", "Fiscal", "Server"):
        assert f">{title}</h2>" in page.text
    policy = page.headers["content-security-policy"]
    assert "script-src" not in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script|<style|\bstyle=|\b(?:src|href|action)=\"?https?:", page.text)

    found = client.get("/docs", params={"q": "FISCAL post documentos"}, headers={"accept-language": "en"}).text
    wanted = [route for route in routes_of(document) if route.holds(["fiscal", "post", "documentos"])]
    assert found.count('<details class="route"') == len(wanted) > 0
    assert "/api/v1/clientes<" not in found
    assert "No route has all" in client.get("/docs?q=zzzz", headers={"accept-language": "en"}).text


def test_what_is_searched_is_text(client: httpx.Client) -> None:
    page = client.get("/docs", params={"q": '"><script>alert(1)</script>'}).text

    assert "<script" not in page
    assert "alert(1)" in page


def test_a_route_tells_its_fields_an_example_and_its_answers() -> None:
    document = create_app(Settings(database="sqlite:///unused.db")).openapi()
    routes = {(route.method, route.path): route for route in routes_of(document)}
    route = routes["POST", "/api/v1/propostas"]

    fields = {field.name: field for field in route.fields}
    assert fields["cliente_id"].required
    assert fields["cliente_id"].kind == "integer"
    assert fields["Idempotency-Key"].place == "header"
    assert '"cliente_id": 1' in route.example
    assert {"200", "201", "422"} <= {answer.status for answer in route.answers}
    assert all(answer.about for answer in route.answers)
    assert "-H 'Idempotency-Key: 7c1e'" in route.command
    assert "-F file=@list.csv" in routes["POST", "/mailings"].command


@pytest.mark.parametrize(
    "body",
    [
        {"$ref": "#/nowhere"},
        {"$ref": "#/components/schemas/Loop"},
        {"type": "object", "properties": {f"f{number}": {"type": "string"} for number in range(5_000)}},
    ],
)
def test_a_document_that_leads_nowhere_or_in_circles_ends(body: dict[str, object]) -> None:
    loop = {"type": "object", "properties": {"again": {"$ref": "#/components/schemas/Loop"}}}
    operation = {"requestBody": {"content": {"application/json": {"schema": body}}}, "responses": {}}
    document = {"paths": {"/x": {"post": operation}}, "components": {"schemas": {"Loop": loop}}}

    (route,) = routes_of(document)

    assert len(route.fields) <= 120


def test_the_reference_leaves_out_the_parts_of_pages(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]

    assert "/corridas" in paths
    assert not [path for path in paths if path.endswith((".js", ".css"))]
