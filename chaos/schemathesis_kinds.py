"""Loaded by schemathesis: what its requests need to be the right or the wrong ones that they are meant to be.

Bodies of a mail are sent as the text that they are. The key comes before every rule: one that was used answers with
what it made, whatever is sent with it now. That is held elsewhere; here each request gets a key of its own, so that
what is wrong with it is what is answered. And no JSON Schema can say that a number has at most 64 digits and an
exponent up to 99, or that no name holds NUL, also in fields that nobody reads: right requests keep to it all the same.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

import schemathesis
from schemathesis.generation.meta import CoverageScenario

schemathesis.serializer.alias("message/rfc822", "text/plain")
_KEY = re.compile(r"[!#-+\--:<-\[\]-~]{1,255}")


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:  # noqa: ARG001  # as the hook is called
    """Give a generated key a tail of its own; one that is no key stays as it is. Mend a right request's JSON."""
    # A request that is to lack a header stays as it is: one that was changed gets all of them again.
    lacking = getattr(case.meta and case.meta.phase.data, "scenario", None) == CoverageScenario.MISSING_PARAMETER
    headers = {} if lacking else case.headers or {}
    for name, value in headers.items():
        if name.lower() == "idempotency-key" and isinstance(value, str) and _KEY.fullmatch(value):
            headers[name] = f"{value[:200]}{secrets.token_hex(8)}"
    right = case.meta is not None and case.meta.generation.mode.is_positive
    if right and "json" in (case.media_type or "") and isinstance(case.body, dict | list):
        case.body = _readable(case.body)


def _readable(value: Any) -> Any:
    if isinstance(value, dict):
        return {_readable(name): _readable(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_readable(part) for part in value]
    if isinstance(value, str):
        return value.replace("\0", "")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if value == 0 or 1e-80 < abs(value) < 1e60 else 0  # well within the bounds
    return value
