"""OpenAPI: the contract of keys, written into a service's own document."""

from __future__ import annotations

import re
from typing import Any

from umavez.http.contract.exchange import METHODS, Exchange
from umavez.http.contract.header import FIELD
from umavez.http.contract.problem import (
    BODY_TOO_LARGE,
    IN_PROGRESS,
    KEY_MISSING,
    KEY_REUSED,
    NOT_KEPT,
    STORE_UNAVAILABLE,
    TOO_MANY,
)
from umavez.http.contract.route import Route

PROBLEM = "IdempotencyProblem"
_KEY = '^(?:[!#-+\\x2d-:<-\\[\\]-~]+|"[!#-\\[\\]-~]+")$'
"""A key, bare or quoted as the draft has it: what stands between clients and a server may hold them to this."""
_REFUSALS = (KEY_MISSING, IN_PROGRESS, NOT_KEPT, BODY_TOO_LARGE, KEY_REUSED, TOO_MANY, STORE_UNAVAILABLE)


def described(schema: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
    """`schema` with the header, the refusals and the policy added to every operation that has a contract."""
    told = False
    for path, operations in schema.get("paths", {}).items():
        for method, operation in operations.items():
            route = _route(exchange, method.upper(), path)
            if route is not None:
                _describe(operation, route, exchange)
                told = True
    if told:
        schema.setdefault("components", {}).setdefault("schemas", {})[PROBLEM] = _problem()
    return schema


def _route(exchange: Exchange, method: str, path: str) -> Route | None:
    for route in exchange.routes:
        if route.method == method and re.sub(r":\w+\}", "}", route.path) == path:
            return route  # type: ignore[no-any-return]  # what Routes iterates over
    return exchange.find(method, path) if method in METHODS else None


def _describe(operation: dict[str, Any], route: Route, exchange: Exchange) -> None:
    form, policy = exchange.key_format, route.plan.policy
    text: dict[str, Any] = {"type": "string", "minLength": form.shortest, "maxLength": form.longest}
    text["pattern"] = form.pattern or _KEY
    operation.setdefault("parameters", []).append(
        {
            "name": FIELD,
            "in": "header",
            "required": route.contract.required,
            "description": f"Names this operation; for {policy.keep:g} s a repeat gets the first one's answer.",
            "schema": text,
        }
    )
    responses = operation.setdefault("responses", {})
    for kind in _REFUSALS:
        _add_problem(responses.setdefault(str(kind.status), {"description": kind.title}))
    for status, response in responses.items():
        if status.startswith("2"):
            response.setdefault("headers", {})["Idempotent-Replayed"] = {
                "description": "true when the answer is a repeat's",
                "schema": {"type": "string", "enum": ["true"]},
            }
    operation["x-idempotency"] = {
        "required": route.contract.required,
        "keep_seconds": policy.keep,
        "replay": route.contract.replay,
        "other_body": policy.mismatch,
        "store_outage": route.contract.outage,
    }


def _add_problem(response: dict[str, Any]) -> None:
    content = response.setdefault("content", {})
    content["application/problem+json"] = {"schema": {"$ref": f"#/components/schemas/{PROBLEM}"}}


def _problem() -> dict[str, Any]:
    return {
        "title": PROBLEM,
        "type": "object",
        "required": ["type", "title", "status", "detail", "retryable"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "retryable": {"type": "boolean", "description": "whether the same request may be answered otherwise later"},
            "retry_after": {"type": "integer", "description": "seconds to wait, as in Retry-After"},
        },
    }
