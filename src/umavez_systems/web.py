"""Carrier: what every route needs from the server: threads for use cases, bounded bodies, principals."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fastapi import Request
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from umavez import Once
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


class Threads:
    """A bounded number of threads that run use cases for one event loop.

    What they settle while the loop is busy is handed over at one wake-up; an executor's own futures wake it each time.
    """

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="umavez-case")
        self._settled: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._woken = False

    async def run(self, case: Callable[..., T], *args: Any) -> T:
        """What `case` returns or raises. It runs to its end even if nobody waits for it any more."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._pool.submit(self._attempt, future, case, args)
        return await future

    def _attempt(self, future: asyncio.Future[T], case: Callable[..., T], args: tuple[Any, ...]) -> None:
        try:
            self._settled.append((future, case(*args), None))
        except StopIteration as error:
            # A future cannot carry one: the caller's `await` would take it for its own end.
            self._settled.append((future, None, RuntimeError(f"A use case let {error!r} out.")))
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is the caller's
            self._settled.append((future, None, error))
        # Looked at after the append: whoever lowers the flag empties the queue after that.
        if not self._woken:
            self._woken = True
            # A loop that was closed by force has nobody left to tell.
            with contextlib.suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._woken = False
        while self._settled:
            future, answer, error = self._settled.popleft()
            if future.cancelled():
                continue
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)

    def close(self) -> None:
        """Let what runs and what waits finish."""
        self._pool.shutdown(wait=True)


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
        self._threads = Threads(settings.threads)

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
