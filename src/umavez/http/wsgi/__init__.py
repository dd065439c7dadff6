"""Idempotency for WSGI applications."""

from umavez.http.wsgi.shell import Idempotency

__all__ = ["Idempotency"]
