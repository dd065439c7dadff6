"""Carrier: what every route needs from the server: threads for use cases, bounded bodies, principals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeVar

from fastapi import Request
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from umavez import Event, Once
from umavez.http import KeyFormat, collect_body
from umavez.observe.audit import AuditLog
from umavez.observe.metrics import MessageMetrics, Metrics, StoreMetrics, scraped
from umavez.observe.minutes import Minutes
from umavez_systems import logs
from umavez_systems.corridas.fleet import Most
from umavez_systems.corridas.operations import Corridas, Rules
from umavez_systems.database import open_database
from umavez_systems.fiscal.assembly import open_fiscal
from umavez_systems.gates.shares import OTHERS, SYSTEMS, Shares, system_of
from umavez_systems.mailing.assembly import Mailing
from umavez_systems.principals import Principals
from umavez_systems.problems import Problem
from umavez_systems.processos.assembly import open_processos
from umavez_systems.propostas.operations import Propostas
from umavez_systems.readiness import Readiness
from umavez_systems.settings import Settings

T = TypeVar("T")


class Carrier:
    """The systems of one server process, opened with it and closed with it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._shares = Shares((*SYSTEMS, OTHERS), settings.threads, settings.waiting, settings.wait_seconds)
        self.database = open_database(settings.database, self._shares.most, settings.database_timeout_seconds)
        self.registry = CollectorRegistry()
        self._asked = CollectorRegistry()
        self.counted = Metrics(self.registry)
        self.minutes = Minutes(self.database.store_url)
        self.observers: tuple[Callable[[Event], None], ...] = (
            self.counted,
            self.minutes,
            AuditLog(),
            *logs.observers(),
        )
        self.message_observers = (MessageMetrics(self.registry), *logs.message_observers())
        self.once = Once(self.database.store_url, scope="umavez", observers=self.observers)
        StoreMetrics(self.once.store, self._asked, url=self.database.store_url)
        self.principals = Principals(settings.principals)
        self.propostas = Propostas(self.once, self.database, settings.keep_seconds)
        self.processos = open_processos(settings, self.database, self.once.store, self.observers)
        most = Most(settings.max_communities, settings.max_fence_corners)
        rules = Rules(
            settings.confirmation_ttl_seconds,
            settings.keep_seconds,
            settings.enable_geofence,
            most,
            settings.max_pickup_km or None,
            settings.ride_offer_seconds,
        )
        self.corridas = Corridas(self.once, self.database, rules, settings.fleet_refresh_seconds)
        self.mailing = Mailing(settings, self.once, self.database)
        self.fiscal = open_fiscal(settings, self.database, self.once)
        self.readiness = Readiness(settings)

    async def run(self, case: Callable[..., T], *args: Any) -> T:
        """Run a use case in a thread of its system. A client that goes away does not stop it: it commits or rolls back.

        Raises Crowded, within `wait_seconds`, when it could not be begun.
        """
        # In the caller's context, where a trace has its current span.
        return await self._shares.run(system_of(case), copy_context().run, case, *args)

    async def metrics(self) -> bytes:
        """What Prometheus scrapes. The store is asked in a thread of its own: never behind a use case."""
        return await asyncio.to_thread(scraped, self.registry, self._asked)

    async def body(self, request: Request, *kinds: str) -> bytes:
        """The request's body. Raises a 413 problem above the limit, without reading the rest; 408 when it is late.

        415 when it does not say that it is JSON, or one of `kinds` where they are given: a page of another site may
        send any text, but not that.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        said = kind in kinds if kinds else kind == "application/json" or kind.endswith("+json")
        if kind and not said:
            raise _not_of(kinds)
        try:
            async with asyncio.timeout(self.settings.body_seconds):
                body = await collect_body(request.stream(), self.settings.max_body_bytes)
        except TimeoutError:
            problem = Problem(408, "demorou", "Requisição incompleta", "O resto da requisição não chegou a tempo.")
            problem.headers["Connection"] = "close"
            raise problem from None
        if body and not said:
            raise _not_of(kinds)
        return body

    def close(self) -> None:
        """Let what runs finish, then close."""
        self._shares.close()
        self.readiness.close()
        self.processos.close()
        self.fiscal.close()
        self.once.close()
        self.minutes.close()
        self.database.close()


def carrier_of(request: Request) -> Carrier:
    """The server's carrier."""
    carrier: Carrier = request.app.state.carrier
    return carrier


_KEYS = KeyFormat()


def key_of(request: Request) -> str | None:
    """The request's Idempotency-Key, or None. `k`, `"k"` and `"k";v=1` are one key; raises a 400 problem for others."""
    return _KEYS.optional(request.headers.getlist("idempotency-key"))


def strict_of(request: Request) -> bool:
    """Whether the caller prefers handling=strict (RFC 7240): in any case, with blanks or quotes, in any of its headers.

    The first that says anything about handling counts, and a word that is not known asks for nothing.
    """
    for preference in ",".join(request.headers.getlist("prefer")).split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() == "handling":
            return value.strip().strip('"').lower() == "strict"
    return False


def _not_of(kinds: tuple[str, ...]) -> Problem:
    wanted = " ou ".join(kinds or ("application/json",))
    return Problem(415, "tipo-desconhecido", "Tipo de conteúdo não aceito", f"Envie Content-Type: {wanted}.")


def body_schema(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """What OpenAPI says about a body that the route reads by itself, to keep numbers exact."""
    schema = model.model_json_schema()
    content: dict[str, Any] = {"schema": schema}
    if examples := schema.get("examples"):
        content["example"] = examples[0]
    return {"requestBody": {"required": required, "content": {"application/json": content}}}
