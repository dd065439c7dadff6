"""FastAPI: contracts declared on the routes themselves, enforced by the ASGI shell, and written into OpenAPI.

    @app.post("/charges", status_code=201)
    @idempotent(unknown="hold", required=True)
    async def charge(order: Order, key: Key) -> Charge: ...

    protect(app, once=AsyncOnce("postgresql://…", scope="shop"), principal=current_user)

Call `protect` before middleware that authenticates is added: what is added later stands further outside, and a
replay must come after authentication.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Annotated, Any, TypeVar

from umavez._async.once import AsyncOnce
from umavez.errors import ConfigurationError, needs
from umavez.http.asgi.shell import Idempotency
from umavez.http.contract.handler import SEEN, Keyed
from umavez.http.contract.openapi import described
from umavez.http.contract.principal import ANONYMOUS
from umavez.http.contract.route import Route, contract

with needs(__name__, "fastapi"):
    from fastapi import Depends, FastAPI, Request, routing

F = TypeVar("F", bound=Callable[..., Any])
MARK = "__umavez_contract__"
GUARD = "umavez_guard"
"""The parameter by which an endpoint with a contract refuses to run where nothing enforces it."""


def idempotent(**options: Any) -> Callable[[F], F]:
    """Declare the contract of an endpoint: unknown=, required=, keep=, … (see Contract and the engine's Policy).

    A request that reaches the endpoint past no shell raises ConfigurationError; called directly, it just runs.
    """
    contract(**options)

    def mark(endpoint: F) -> F:
        guarded = _guarded(endpoint)
        setattr(guarded, MARK, options)
        return guarded

    return mark


def _guarded(endpoint: F) -> F:
    """The endpoint with one more dependency, which FastAPI asks before it runs."""

    @wraps(endpoint)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop(GUARD, None)
        return endpoint(*args, **kwargs)

    @wraps(endpoint)
    async def aguarded(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop(GUARD, None)
        return await endpoint(*args, **kwargs)

    chosen: Any = aguarded if inspect.iscoroutinefunction(endpoint) else guarded
    chosen.__signature__ = _with_guard(endpoint)
    return chosen  # type: ignore[no-any-return]  # called as the endpoint is


def _with_guard(endpoint: Callable[..., Any]) -> inspect.Signature:
    try:
        signature = inspect.signature(endpoint, eval_str=True)
    except NameError:
        signature = inspect.signature(endpoint)  # names of another place, which FastAPI knows to look for
    guard = inspect.Parameter(
        GUARD, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[None, Depends(refuse_unprotected)]
    )
    # In the order of their kinds: whatever takes **kwargs takes them last.
    return signature.replace(parameters=sorted([*signature.parameters.values(), guard], key=lambda one: one.kind))


async def refuse_unprotected(request: Request) -> None:
    """Raise ConfigurationError for a request that no shell has looked at: it would run unprotected, unnoticed."""
    if SEEN not in request.scope:
        raise ConfigurationError(
            f"{request.method} {request.url.path} is declared @idempotent and nothing enforces it: "
            "call protect(app, …) once, before the app starts."
        )


def protect(app: FastAPI, *, once: AsyncOnce, principal: Any, **options: Any) -> None:
    """Enforce the contracts of `app`. `principal` gets the Request and says who is calling, or is ANONYMOUS.

    `options` are those of Exchange; with unknown= they are also the contract of every POST and PATCH without its own.
    """
    who = principal if principal is ANONYMOUS else _of_request(principal)
    middleware: list[Idempotency] = []

    def build(inner: Any) -> Idempotency:
        # Built when the app starts, so that routes added after this call count too.
        middleware[:] = [Idempotency(inner, once=once, principal=who, routes=routes_of(app), **options)]
        return middleware[0]

    app.add_middleware(build)
    _publish(app, lambda: middleware[0] if middleware else build(app.router))


def _of_request(principal: Any) -> Callable[[Any], Any]:
    if not callable(principal):
        raise ConfigurationError("principal= must be a callable that takes the Request, or ANONYMOUS.")
    return lambda scope: principal(Request(scope))


def _publish(app: FastAPI, middleware: Callable[[], Idempotency]) -> None:
    """Make `app.openapi()` tell about keys."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = described(plain(), middleware().exchange)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to extend the document


def routes_of(app: Any) -> list[Route]:
    """The routes whose endpoints bear a contract."""
    return [
        Route(method, path, **getattr(endpoint, MARK))
        for path, methods, endpoint in _endpoints(_flat(app.routes), "")
        if hasattr(endpoint, MARK)
        for method in sorted(methods)
    ]


def _flat(routes: Any) -> Iterable[Any]:
    """The routes with those of included routers, which newer versions of FastAPI keep apart until asked."""
    contexts = getattr(routing, "iter_route_contexts", None)
    return routes if contexts is None else contexts(routes)  # type: ignore[no-any-return]  # FastAPI's own


def _endpoints(routes: Iterable[Any], prefix: str) -> Iterator[tuple[str, set[str], Any]]:
    for route in routes:
        path = prefix + getattr(route, "path", "")
        inner = getattr(route, "routes", None)
        if inner:
            yield from _endpoints(_flat(inner), path)
        elif getattr(route, "endpoint", None) is not None:
            yield path, getattr(route, "methods", None) or set(), route.endpoint


def keyed(request: Request) -> Keyed | None:
    """The key that a request runs under; None for a request without one."""
    found = getattr(request.state, "umavez", None)
    return found if isinstance(found, Keyed) else None


def joined_connection(request: Request) -> Any:
    """The transaction of a joined route, to write through. Raises ConfigurationError where there is none."""
    found = keyed(request)
    if found is None or found.connection is None:
        raise ConfigurationError("This route has no transaction: declare it with joined=, and required=True.")
    return found.connection


Key = Annotated[Keyed | None, Depends(keyed)]
Connection = Annotated[Any, Depends(joined_connection)]
