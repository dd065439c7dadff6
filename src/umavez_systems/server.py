"""The server: one FastAPI application assembled from the systems."""

from __future__ import annotations

import asyncio
import contextlib
import html
import logging
from collections.abc import AsyncIterator
from importlib.resources import files

from fastapi import FastAPI, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import HTMLResponse, JSONResponse, Response

from umavez import UmavezError, open_store
from umavez_systems import problems
from umavez_systems.corridas.live import Live
from umavez_systems.corridas.live import router as corridas_live
from umavez_systems.corridas.web import router as corridas
from umavez_systems.database import open_database
from umavez_systems.migrations import migrate
from umavez_systems.processos.web import router as processos
from umavez_systems.propostas.web import router as propostas
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier, carrier_of

LOG = logging.getLogger("umavez.systems")


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application with every system in it. The tables must be there: see `prepare`."""
    settings = settings or Settings()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.carrier = carrier = Carrier(settings)
        app.state.live = Live(carrier.corridas)
        sweeper = asyncio.create_task(_sweep_for_ever(carrier), name="umavez-sweep")
        try:
            yield
        finally:
            sweeper.cancel()
            await asyncio.gather(sweeper, return_exceptions=True)
            await asyncio.to_thread(carrier.close)

    app = FastAPI(
        title="umavez",
        version="0.1.0",
        description="Sistemas em que repetir é seguro.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    problems.install(app)
    app.include_router(propostas)
    app.include_router(processos)
    app.include_router(corridas)
    app.include_router(corridas_live)
    app.add_api_route("/", start_page, include_in_schema=False)
    app.add_api_route("/health", health, tags=["server"])
    app.add_api_route("/ready", ready, tags=["server"])
    app.add_api_route("/metrics", metrics, include_in_schema=False)
    return app


def prepare(settings: Settings) -> None:
    """Create or upgrade the engine's and the systems' tables. Safe to repeat, and from several hosts at once."""
    database = open_database(settings.database, 1)
    try:
        store = open_store(database.store_url)
        try:
            store.migrate()
        finally:
            store.close()
    finally:
        database.close()
    migrate(settings.database)


async def start_page(request: Request) -> HTMLResponse:
    """What is here, and commands to try it, addressed to this server."""
    page = files("umavez_systems").joinpath("start.html").read_text()
    address = html.escape(f"{request.url.scheme}://{request.url.netloc}")
    return HTMLResponse(page.replace("http://127.0.0.1:8000", address), headers=_PAGE)


async def health() -> JSONResponse:
    """The process answers."""
    return JSONResponse({"status": "ok"})


async def metrics(request: Request) -> Response:
    """This worker's counters, for Prometheus. Needs an API key wherever the systems do."""
    carrier = carrier_of(request)
    carrier.principals.of(request.headers.get("authorization"))
    return Response(generate_latest(carrier.registry), media_type=CONTENT_TYPE_LATEST)


async def ready(request: Request) -> Response:
    """The database answers too; 503 when it does not."""
    carrier = carrier_of(request)

    def look() -> None:
        with carrier.database.statements() as connection:
            connection.row("SELECT 1 AS um")

    try:
        await carrier.run(look)
    except UmavezError as error:
        return problems.translate(error).response()
    return JSONResponse({"status": "ready"})


_PAGE = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


async def _sweep_for_ever(carrier: Carrier) -> None:
    """Clean up on a schedule. Several workers may do so at once: a row is deleted by one of them."""
    while True:
        await asyncio.sleep(carrier.settings.sweep_seconds)
        try:
            swept = await carrier.run(carrier.corridas.sweep) + await carrier.run(carrier.once.sweep)
            LOG.info("Swept %d expired records", swept)
        except UmavezError as error:
            LOG.warning("The clean-up will try again: %s", error)
