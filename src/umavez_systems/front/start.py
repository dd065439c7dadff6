"""The start: what is here, and commands to try it, addressed to this server."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse

from umavez_systems.front.navigation import HEADERS, framed, language

WRITTEN_FOR = "http://127.0.0.1:8000"
"""The server that the commands in the files are written for."""


async def start_page(request: Request) -> HTMLResponse:
    """What is here, and commands to try it, addressed to this server."""
    page = files("umavez_systems.front").joinpath(f"start.{language(request)}.html").read_text("utf-8")
    address = escape(f"{request.url.scheme}://{request.url.netloc}")
    return framed(request, page.replace(WRITTEN_FOR, address), HEADERS)
