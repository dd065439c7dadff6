"""Idempotency for Django, under WSGI and ASGI."""

from umavez.errors import needs

with needs(__name__, "django"):
    from umavez.http.django.shell import atomic, middleware, user_id

__all__ = ["atomic", "middleware", "user_id"]
