"""Idempotency for Django, under WSGI and ASGI."""

from umavez.errors import needs

with needs(__name__, "django"):
    from umavez.http.django.shell import atomic, middleware

__all__ = ["atomic", "middleware"]
