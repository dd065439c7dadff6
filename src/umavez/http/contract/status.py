"""The two documents a service publishes: its policy, and what became of a key.

GET <documents>            the policy, as JSON: header, key format, lifetime, routes, problem types
GET <documents>/status     with the Idempotency-Key header and ?method=POST&path=/orders: where that request stands
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

from umavez.core.flow import Seen
from umavez.core.key import Key
from umavez.core.record import Record, Status
from umavez.errors import UmavezError
from umavez.http.contract.answer import NO_STORE, TRY_AGAIN, Answer, Form, Kept
from umavez.http.contract.exchange import Exchange
from umavez.http.contract.header import FIELD
from umavez.http.contract.principal import Principal
from umavez.http.contract.problem import KINDS, NOT_ASKABLE, UNAUTHENTICATED, Problem
from umavez.http.contract.route import Route

MOST_FIELDS = 20


def policy_answer(exchange: Exchange) -> Answer:
    """The policy document."""
    return _json(policy(exchange), cached=True)


def policy(exchange: Exchange) -> dict[str, Any]:
    """What a client needs to know to use keys here, in a form that machines read."""
    form = exchange.key_format
    return {
        "header": FIELD,
        "key": {
            "shortest": form.shortest,
            "longest": form.longest,
            "characters": "visible ASCII",
            "pattern": form.pattern,
        },
        "scope": "principal, method and path",
        "fingerprint": ["method", "path", "query", "body (JSON by value)"],
        "replay_header": "Idempotent-Replayed",
        "status": None if exchange.documents is None else f"{exchange.documents}/status",
        "routes": [_described(route) for route in exchange.routes],
        "problems": [
            {
                "type": exchange.catalogue.base + kind.name,
                "status": kind.status,
                "title": kind.title,
                "retryable": kind.retryable,
            }
            for kind in KINDS
        ],
    }


def _described(route: Route) -> dict[str, Any]:
    contract, engine = route.contract, route.plan.policy
    return {
        "method": route.method,
        "path": route.path,
        "required": contract.required,
        "keep_seconds": engine.keep,
        "lease_seconds": engine.lease,
        "wait_seconds": engine.wait,
        "other_body": engine.mismatch,
        "replay": contract.replay,
        "max_request_bytes": contract.max_request,
        "max_kept_response_bytes": contract.max_response,
        "not_final": sorted((TRY_AGAIN | contract.not_final) - contract.final),
        "server_errors": "freed" if engine.reruns() else "held until resolved",
        "store_outage": contract.outage,
    }


def asked_key(
    exchange: Exchange, principal: Principal, values: Sequence[str], query: bytes, within: str = ""
) -> tuple[Route, Key]:
    """The key that a status query asks about, of an application mounted at `within`.

    Raises Problem: not identified, incomplete, malformed.
    """
    if principal is None or principal == "":
        raise Problem(UNAUTHENTICATED)
    try:
        asked = parse_qs(query.decode("latin-1"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise Problem(NOT_ASKABLE, f"The query may have at most {MOST_FIELDS} fields; give method and path.") from None
    methods, paths = asked.get("method", []), asked.get("path", [])
    if len(methods) != 1 or len(paths) != 1:
        raise Problem(NOT_ASKABLE)
    route = exchange.find(methods[0].upper(), paths[0], within)
    if route is None:
        raise Problem(NOT_ASKABLE, "Requests with this method and path are not kept by key.")
    return route, exchange.key(route, exchange.scopes.of(principal), paths[0], exchange.key_format.key(values))


def status_answer(route: Route, seen: Seen) -> Answer:
    """Where a request stands. A key of somebody else's is as absent as one never sent."""
    record = seen.current
    if record is None or record.is_expired(seen.now):
        return _json({"state": "absent", "retryable": True})
    members = _state(route, record, seen.now) | {
        "attempts": record.attempt,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "expires_at": record.expires_at,
    }
    return _json(members)


def _state(route: Route, record: Record, now: int) -> dict[str, Any]:
    if record.settled is not None:
        return {"state": "finished", "retryable": True, **_response(route, record)}
    if record.status is Status.FAILED:
        return {"state": "failed", "retryable": record.can_retry(route.plan.policy.max_retries)}
    if record.status is Status.PENDING and not record.lapsed(now):
        return {"state": "running", "retryable": True, "lease_ms": (record.lease_until or now) - now}
    return {"state": "unknown", "retryable": route.plan.policy.unknown != "hold"}


def _response(route: Route, record: Record) -> dict[str, Any]:
    try:
        kept = Kept(*route.plan.stored(record))
        return {"response_status": kept.status, "response_kept": kept.form != Form.STREAMED}
    except UmavezError:
        return {"response_status": None, "response_kept": False}


def _json(members: dict[str, Any], *, cached: bool = False) -> Answer:
    body = json.dumps(members).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    headers.append((b"cache-control", b"public, max-age=300") if cached else NO_STORE)
    return Answer(200, headers, body)
