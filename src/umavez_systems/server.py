"""The server: one FastAPI application assembled from the systems."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response

from umavez import UmavezError
from umavez.migration import migrate
from umavez_systems import logs, problems
from umavez_systems.console.mounting import PATH, ConsoleMount
from umavez_systems.corridas.live import Live
from umavez_systems.corridas.live import router as corridas_live
from umavez_systems.corridas.web import router as corridas
from umavez_systems.corridas.web_dispatch import router as corridas_dispatch
from umavez_systems.database import open_database
from umavez_systems.fiscal.web import router as fiscal
from umavez_systems.front.navigation import STYLES, styles
from umavez_systems.front.reference import reference_page
from umavez_systems.front.start import start_page
from umavez_systems.gates.address import KnownMethods, ReadableAddress
from umavez_systems.gates.answers import Answers
from umavez_systems.gates.doors import Doors
from umavez_systems.mailing.service import Service
from umavez_systems.mailing.web import router as mailing
from umavez_systems.mailing.web_public import router as mailing_around
from umavez_systems.mailing.web_returns import router as mailing_returns
from umavez_systems.migrations import migrate as systems
from umavez_systems.openapi import Documented, answers
from umavez_systems.processos.assembly import warn_unsealed
from umavez_systems.processos.contas.web import router as processos_contas
from umavez_systems.processos.web import router as processos
from umavez_systems.propostas.web import router as propostas
from umavez_systems.rounds import for_ever, kept_up
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier, carrier_of

LOG = logging.getLogger("umavez.systems")
ENDING = 30.0
"""Seconds that mails under way get to end when the server stops."""


ROUTERS = (
    propostas,
    processos,
    processos_contas,
    corridas,
    corridas_dispatch,
    corridas_live,
    mailing_around,
    mailing_returns,
    mailing,
    fiscal,
)


def create_served_app() -> FastAPI:
    """The application of a process that does nothing but serve it, with the settings of the environment."""
    return create_app(alone=True)


def create_app(settings: Settings | None = None, *, alone: bool = False) -> FastAPI:
    """The application with every system in it. The tables must be there: see `prepare`.

    `alone`: what there is after the start stays for the life of the process, and is kept out of garbage collections: a
    full one would look at all of it, and hold the event loop for a tenth of a second and more.
    """
    settings = settings or Settings()
    settings.hand_over()
    desk = ConsoleMount()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.openapi()  # now, because the first request would wait for it
        warn_unsealed()
        app.state.carrier = carrier = Carrier(settings)
        desk.open(carrier)
        carrier.minutes.start()
        app.state.live = Live(carrier.corridas, settings.max_websockets, settings.max_websockets_each)
        try:
            async with _working(carrier):
                if alone:
                    gc.collect()
                    gc.freeze()
                yield
        finally:
            await asyncio.to_thread(desk.close)
            await asyncio.to_thread(carrier.close)

    app = Documented(
        title="umavez",
        version="0.1.0",
        description="Sistemas em que repetir é seguro.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.keyed = bool(settings.principals)
    _guarded(app, settings)
    _routed(app)
    app.mount(PATH, desk)
    return app


def _guarded(app: Documented, settings: Settings) -> None:
    """Put around `app` what a request passes before a route; the last that is added comes first."""
    app.add_middleware(KnownMethods, document=app.openapi)
    app.add_middleware(ReadableAddress)
    problems.install(app)
    app.add_middleware(Answers)
    app.add_middleware(Doors, settings=settings)
    logs.install(app)


def _routed(app: FastAPI) -> None:
    for router in ROUTERS:
        app.include_router(router)
    app.add_api_route("/", start_page, tags=["server"], **answers("text/html"))
    app.add_api_route("/docs", reference_page, tags=["server"], **answers("text/html"))
    app.add_api_route(STYLES, styles, include_in_schema=False)
    app.add_api_route("/health", health, tags=["server"])
    app.add_api_route("/ready", ready, tags=["server"])
    app.add_api_route("/metrics", metrics, **answers("text/plain"))


def prepare(settings: Settings) -> None:
    """Create or upgrade every table, as `umavez migrate` does. Safe to repeat, and from several hosts at once."""
    database = open_database(settings.database, 1)
    database.close()
    migrate(database.store_url, systems)


async def health() -> JSONResponse:
    """The process answers."""
    return JSONResponse({"status": "ok"})


async def metrics(request: Request) -> Response:
    """Counters of all workers, and what stands in the store, for Prometheus. Needs a key wherever the systems do."""
    carrier = carrier_of(request)
    carrier.principals.of(request.headers.get("authorization"))
    return Response(await carrier.metrics(), media_type=CONTENT_TYPE_LATEST)


async def ready(request: Request) -> Response:
    """The database answers too, and has its tables; 503 when not. Never waits behind a use case."""
    try:
        await carrier_of(request).readiness.check()
    except UmavezError as error:
        return problems.answer(problems.translate(error))
    return JSONResponse({"status": "ready"})


async def _run_mailing(carrier: Carrier, stop: asyncio.Event) -> None:
    """Relay, worker and recovery of mailing inside this process, where the settings say so."""

    async def work() -> None:
        observers = carrier.message_observers
        await Service(carrier.mailing, relay="relay" in parts, worker="worker" in parts, observers=observers).run(stop)

    if parts := carrier.settings.mailing_parts:
        await kept_up("Mailing", work, stop)


def _rounds(carrier: Carrier) -> Iterator[Coroutine[Any, Any, None]]:
    """What is done on a schedule. Several workers may do so at once: every row, claim, act and ride has one holder."""
    settings = carrier.settings
    sweeps = (carrier.corridas.sweep, carrier.propostas.sweep, carrier.once.sweep)
    yield for_ever("The clean-up", settings.sweep_seconds, *(_swept(carrier, sweep) for sweep in sweeps))
    reconciled = partial(carrier.run, carrier.fiscal.zelar), partial(carrier.run, carrier.fiscal.livros.varrer)
    yield for_ever("The fiscal reconciler", settings.fiscal_sweep_seconds, *reconciled)
    yield for_ever("Processos", settings.processos_round_seconds, partial(carrier.run, carrier.processos.work))
    yield for_ever("The dispatch of rides", settings.rides_pause_seconds, partial(carrier.run, carrier.corridas.beat))


def _swept(carrier: Carrier, sweep: Callable[[], int]) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        LOG.info("Swept %d expired records", await carrier.run(sweep))

    return work


@contextlib.asynccontextmanager
async def _working(carrier: Carrier) -> AsyncIterator[None]:
    """What the server does beside answering: cleaning, asking, matching, mailing. It ends with the block."""
    stop = asyncio.Event()
    mailing_work = asyncio.create_task(_run_mailing(carrier, stop), name="umavez-mailing")
    rounds = [asyncio.create_task(each) for each in _rounds(carrier)]
    try:
        yield
    finally:
        stop.set()
        carrier.processos.stop.set()
        for task in rounds:
            task.cancel()
        _, late = await asyncio.wait((mailing_work, *rounds), timeout=ENDING)
        for task in late:
            task.cancel()
