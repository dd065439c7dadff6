"""Keyed: what a handler is told about the key it runs under, and how a run tells that it has ended."""

from __future__ import annotations

from typing import Any

from umavez.core.protocol import Intent
from umavez.http.contract.route import Route

SEEN = "umavez"
"""Where a request (ASGI scope, WSGI environ) bears what it runs under; None where a shell let it run without a key."""

ANSWERED = object()
"""What a run gives that has recorded its outcome and answered by itself."""


class Over(Exception):
    """The run has answered by itself, and nothing is left for the engine to record."""


class Keyed:
    """What a handler finds as request.state.umavez (Starlette, FastAPI), scope["umavez"], environ["umavez"] or
    request.umavez (Django).

    `attempt` has fence, number, checkpoint() and downstream_key(). `connection` is the open transaction of a
    joined route, and None otherwise: write through it and leave commit and rollback to the middleware.
    """

    __slots__ = ("attempt", "connection")

    def __init__(self, attempt: Any, connection: Any = None) -> None:
        self.attempt = attempt
        self.connection = connection


def joined_arguments(route: Route, intent: Intent) -> dict[str, Any]:
    """How `once.joined` is told about a request: the options that still mean something inside a transaction."""
    options = {name: value for name, value in route.contract.engine.items() if name in ("keep", "mismatch", "wait")}
    policy, key = route.plan.policy, intent.key
    options.update(max_body=policy.max_body, max_retries=policy.max_retries)
    return {"key": key.value, "scope": key.scope, "fingerprint": intent.fingerprint, **options}
