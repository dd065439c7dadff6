"""Route: the contract of one endpoint, and the table that finds it for a request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from umavez.core.policy import Policy
from umavez.engine.declaration import Plan, Plans
from umavez.errors import ConfigurationError
from umavez.http.contract.answer import KEPT_HEADERS, NEVER_KEPT, TRY_AGAIN, TryAgain, check

ENGINE_OPTIONS = frozenset(option.name for option in fields(Policy)) - {"max_body", "final"}
UNBOUNDED = 1_000_000
"""Retries after a first failure. A client that was told 503 or 429 all night must not find its key used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What an endpoint promises about keys; `engine` holds the options of the engine's Policy (unknown=, lease=, …).

    required: a request without a key is refused (400); else it runs unprotected.
    max_request, max_response: bytes of body; above them 413, and answers that are not kept (410 on a retry).
    memory: bytes of a request body held in memory; the rest waits in a temporary file.
    final: statuses that are an outcome although they are by default not (or the other way, in `not_final`).
    keep_headers: names added to those a replay repeats. stream: answers go out as they come and are not kept.
    replay: "stored" repeats the response; "entity" gives what GET on its Location gives now.
    outage: "closed" answers 503 while the store is away, "open" runs unprotected and says so.
    joined: opens the transaction that the handler writes through, as a context manager (SQLAlchemy's
        engine.begin, psycopg's pool.connection); effect and response then commit together.
    """

    required: bool = False
    max_request: int = 10_000_000
    memory: int = 1_000_000
    max_response: int = 1_000_000
    final: frozenset[int] = frozenset()
    not_final: frozenset[int] = frozenset()
    keep_headers: frozenset[bytes] = KEPT_HEADERS
    stream: bool = False
    replay: Literal["stored", "entity"] = "stored"
    outage: Literal["closed", "open"] = "closed"
    joined: Callable[[], Any] | None = None
    engine: dict[str, Any] = field(default_factory=dict)

    def is_final(self, status: int) -> bool:
        """Whether a response with `status` is the operation's outcome."""
        if status in self.final:
            return True
        return status < 500 and status not in TRY_AGAIN and status not in self.not_final


def contract(**options: Any) -> Contract:
    """The contract that `options` describe. Raises ConfigurationError for an option that does not exist."""
    engine = {name: options.pop(name) for name in ENGINE_OPTIONS & options.keys()}
    known = {one.name for one in fields(Contract)} - {"engine"}
    if strange := sorted(options.keys() - known):
        raise ConfigurationError(
            f"{strange[0]!r} is no option of a route; known are {', '.join(sorted(known | ENGINE_OPTIONS))}."
        )
    for name in ("final", "not_final"):
        options[name] = frozenset(options.get(name, ()))
    options["keep_headers"] = KEPT_HEADERS | _names(options.get("keep_headers", ()))
    for name, allowed in (("replay", ("stored", "entity")), ("outage", ("closed", "open"))):
        if options.get(name, allowed[0]) not in allowed:
            raise ConfigurationError(f"{name}={options[name]!r} is not one of {' or '.join(map(repr, allowed))}.")
    return Contract(engine=engine, **options)


def _names(names: Iterable[str]) -> frozenset[bytes]:
    found = frozenset(name.lower().encode("latin-1") for name in names)
    if forbidden := sorted(found & NEVER_KEPT):
        raise ConfigurationError(
            f"keep_headers: {forbidden[0].decode()} is never replayed; it would hand out a credential or a stale fact."
        )
    return found


class Route:
    """A method and a path template ("/orders/{order}") under a contract. `plan` is the engine's part of it."""

    __slots__ = ("concrete", "contract", "method", "operation", "path", "plan")

    def __init__(self, method: str, path: str, **options: Any) -> None:
        self.method = method.upper()
        self.path = path
        self.concrete = "{" not in path and path != "*"
        self.operation = f"{self.method} {path}"
        self.contract = contract(**options)
        self.plan: Plan

    def bind(self, plans: Plans) -> Route:
        """Declare the operation to the engine. Raises NotDeclared without unknown=."""
        options = {"max_retries": UNBOUNDED, **self.contract.engine}
        if self.contract.joined is not None:
            options["unknown"] = "rerun"  # it commits with its effect, so nothing can be unknown
        options["free"] = (TryAgain, *options.get("free", ()))
        # The body's own limit decides; what the codec makes of it may be six times as long.
        options["max_body"] = self.contract.max_response * 6 + 65_536
        self.plan = plans.declared(self.operation, options)
        self.plan.check = check
        return self


class Routes:
    """Finds the route of a request: an exact path first, then templates in the order given, then the default."""

    def __init__(self, routes: Iterable[Route], default: Iterable[Route]) -> None:
        self._exact: dict[tuple[str, str], Route] = {}
        self._templates: list[tuple[str, re.Pattern[str], Route]] = []
        self._default = {route.method: route for route in default}
        for route in routes:
            self._add(route)
        self.methods = frozenset(self._default) | {route.method for route in self}

    def _add(self, route: Route) -> None:
        if route.concrete:
            self._exact[route.method, route.path] = route
            return
        self._templates.append((route.method, pattern_of(route.path), route))

    def __iter__(self) -> Any:
        yield from self._exact.values()
        yield from (route for _, _, route in self._templates)
        yield from self._default.values()

    def find(self, method: str, path: str, within: str = "") -> Route | None:
        """The route under which this request falls, or None: it is none of ours.

        `within` is where the application is mounted, the beginning of its paths: its routes are declared without it, as
        its framework has them, or with it.
        """
        if not within:
            return self._exact.get((method, path)) or self._declared(method, path) or self._default.get(method)
        below = self._declared(method, inside(path, within))
        return below or self._declared(method, path) or self._default.get(method)

    def _declared(self, method: str, path: str) -> Route | None:
        route = self._exact.get((method, path))
        if route is not None:
            return route
        if path.endswith("\n"):
            # Frameworks end their patterns with `$`, which also matches before a line feed: the same handler would run.
            return self._declared(method, path[:-1])
        for wanted, pattern, candidate in self._templates:
            if wanted == method and pattern.fullmatch(path):
                return candidate
        return None


def inside(path: str, within: str) -> str:
    """The path as an application sees it that is mounted at `within`; as it is, where it does not begin so."""
    if not within or not path.startswith(within) or path[len(within) :][:1] not in ("", "/"):
        return path
    return path[len(within) :] or "/"


def pattern_of(template: str) -> re.Pattern[str]:
    """The paths that a template covers: {name} is one segment, {name:path} any number of them."""
    parts = re.split(r"(\{[^{}]*\})", template)
    return re.compile("".join(_part(part) for part in parts), re.DOTALL)


def _part(part: str) -> str:
    if not part.startswith("{"):
        return re.escape(part)
    return ".*" if part.endswith(":path}") else "[^/]+"
