"""HTTP: the Idempotency-Key contract for ASGI, WSGI, Django and FastAPI servers, and for httpx clients.

The shells are modules of their own (umavez.http.asgi, .wsgi, .django, .fastapi, .client): each needs only
what it is named after.
"""

from umavez.http.answer import answer_with
from umavez.http.header import KeyFormat
from umavez.http.principal import ANONYMOUS, from_header
from umavez.http.problem import Problem
from umavez.http.route import Route

__all__ = ["ANONYMOUS", "KeyFormat", "Problem", "Route", "answer_with", "from_header"]
