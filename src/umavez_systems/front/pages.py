"""A system's page: HTML, script and style of its own, beside its code, under one address."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from umavez_systems.front.navigation import framed
from umavez_systems.openapi import answers

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
        " frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
_PARTS = (
    ("", "page.html", "text/html"),
    ("/page.js", "page.js", "text/javascript"),
    ("/page.css", "page.css", "text/css"),
)


def add_page(router: APIRouter, path: str, package: str, headers: Mapping[str, str] = HEADERS) -> None:
    """Serve `page.html`, `page.js` and `page.css` of `package` at `path` and below it, to whoever may come in."""
    for below, name, kind in _PARTS:
        _add(router, path + below, package, name, kind, headers)


def _add(router: APIRouter, path: str, package: str, name: str, kind: str, headers: Mapping[str, str]) -> None:
    # The reference tells of what a program may call; the parts of a page are nobody's but its own.
    told = name.endswith(".html")

    @router.get(path, name=f"{path.strip('/')} page", include_in_schema=told, **answers(kind, public=True))
    async def page(request: Request) -> Response:
        content = files(package).joinpath(name).read_bytes()
        if name.endswith(".html"):
            return framed(request, content.decode(), headers)
        return Response(content, media_type=f"{kind}; charset=utf-8", headers=dict(headers))
