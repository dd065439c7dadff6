"""Idempotency for ASGI applications."""

from umavez.http.asgi.shell import Idempotency

__all__ = ["Idempotency"]
