"""Carrier: what every route needs from the server: threads for use cases, bounded bodies, principals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import Request
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from umavez import Once
from umavez.aio_threads import TaskThreads
from umavez.observe.audit import AuditLog
from umavez.observe.metrics import Metrics
from umavez_systems.corridas.operations import Corridas, Rules
from umavez_systems.database import open_database
from umavez_systems.principals import Principals
from umavez_systems.problems import Problem
from umavez_systems.processos.assembly import open_processos
from umavez_systems.propostas.operations import Propostas
from umavez_systems.settings import Settings

T = TypeVar("T")


class Carrier:
    """The systems of one server process, opened with it and closed with it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = open_database(settings.database, settings.threads)
        self.registry = CollectorRegistry()
        self.observers = (Metrics(self.registry), AuditLog())
        self.once = Once(self.database.store_url, scope="umavez", observers=self.observers)
        self.principals = Principals(settings.principals)
        self.propostas = Propostas(self.once, self.database, settings.keep_seconds)
        self.processos = open_processos(settings, self.database, self.once.store, self.observers)
        rules = Rules(settings.confirmation_ttl_seconds, settings.keep_seconds, settings.enable_geofence)
        self.corridas = Corridas(self.once, self.database, rules, settings.fleet_refresh_seconds)
        self._threads = TaskThreads(settings.threads, "umavez-case")

    async def run(self, case: Callable[..., T], *args: Any) -> T:
        """Run a use case in a thread. A client that goes away does not stop it: it commits or rolls back."""
        return await self._threads.run(case, *args)

    async def body(self, request: Request) -> bytes:
        """The request's body. Raises a 413 problem above the limit, without reading the rest."""
        limit = self.settings.max_body_bytes
        parts: list[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise Problem(413, "corpo-grande", "Corpo grande demais", f"O limite é de {limit} bytes.")
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        """Let what runs finish, then close."""
        self._threads.close()
        self.processos.close()
        self.once.close()
        self.database.close()


def carrier_of(request: Request) -> Carrier:
    """The server's carrier."""
    carrier: Carrier = request.app.state.carrier
    return carrier


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """What OpenAPI says about a body that the route reads by itself, to keep numbers exact."""
    schema = model.model_json_schema()
    content: dict[str, Any] = {"schema": schema}
    if examples := schema.get("examples"):
        content["example"] = examples[0]
    return {"requestBody": {"required": True, "content": {"application/json": content}}}
