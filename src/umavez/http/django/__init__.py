"""Idempotency for Django, under WSGI and ASGI."""

from umavez.http.django.shell import atomic, middleware

__all__ = ["atomic", "middleware"]
