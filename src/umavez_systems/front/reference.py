"""What every route takes and answers: a page made from the server's own OpenAPI document, without script."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from umavez_systems.front.navigation import HEADERS, framed, language, said
from umavez_systems.front.routes import RouteShown, routes_of

MOST_SEARCHED = 100
"""Characters of a search."""
OPEN = 3
"""Up to how many found routes are drawn open."""
TITLES = {
    "propostas": "Clientes e propostas",
    "corridas": "Corridas",
    "processos": "Processos",
    "mailing": "Mailing",
    "fiscal": "Fiscal",
    "server": "Server",
}
_PORTUGUESE = {
    "What each route takes and answers.": "O que cada rota recebe e responde.",
    "Made from": "Feita a partir de",
    "Search": "Buscar",
    "{number} of {total} routes": "{number} de {total} rotas",
    "No route has all of these words.": "Nenhuma rota tem todas estas palavras.",
    "Show all": "Mostrar todas",
    "Field": "Campo",
    "Where": "Onde",
    "Kind": "Tipo",
    "About": "Sobre",
    "required": "obrigatório",
    "Example": "Exemplo",
    "Try it": "Experimente",
    "Answers": "Respostas",
    "Server": "Servidor",
}


async def reference_page(request: Request) -> HTMLResponse:
    """Every route, grouped by system; those with all words of `q`, where it is given."""
    known = _routes(request.app)
    asked = request.query_params.get("q", "")[:MOST_SEARCHED].strip()
    words = asked.casefold().split()
    found = [route for route in known if route.holds(words)]
    lang = language(request)
    text = _template().render(
        lang=lang,
        t=partial(_said, lang),
        q=asked,
        groups=_grouped(found),
        open=bool(words) and len(found) <= OPEN,
        number=len(found),
        total=len(known),
        address=f"{request.url.scheme}://{request.url.netloc}",
    )
    return framed(request, text, HEADERS)


def _routes(app: Any) -> list[RouteShown]:
    """The routes of the application, read from its document once."""
    if not hasattr(app.state, "routes_shown"):
        app.state.routes_shown = routes_of(app.openapi())
    known: list[RouteShown] = app.state.routes_shown
    return known


def _grouped(routes: list[RouteShown]) -> list[tuple[str, str, list[RouteShown]]]:
    groups: dict[str, list[RouteShown]] = {system: [] for system in TITLES}
    for route in routes:
        groups.setdefault(route.system, []).append(route)
    return [(system, TITLES.get(system, system), found) for system, found in groups.items() if found]


def _said(lang: str, text: str, **values: object) -> str:
    text = said(lang, text, _PORTUGUESE)
    return text.format(**values) if values else text


@cache
def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("umavez_systems.front", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("reference.html")
