"""HTTP: the Idempotency-Key contract for ASGI, WSGI, Django and FastAPI servers, and for httpx clients.

The shells are packages of their own (umavez.http.asgi, .wsgi, .django, .fastapi, .client): each needs only what it
is named after. What stands here is the contract without any of them, for a service that keeps its keys on rows of
its own: `umavez.http.problems` names every kind of refusal.
"""

from umavez.http.contract import problem as problems
from umavez.http.contract.answer import answer_with, replay_marks
from umavez.http.contract.body import collect_body
from umavez.http.contract.catalogue import Catalogue
from umavez.http.contract.header import KeyFormat
from umavez.http.contract.principal import ANONYMOUS, ApiKeys, from_header
from umavez.http.contract.problem import Kind, Problem, problem_of
from umavez.http.contract.route import Route

__all__ = [
    "ANONYMOUS",
    "ApiKeys",
    "Catalogue",
    "KeyFormat",
    "Kind",
    "Problem",
    "Route",
    "answer_with",
    "collect_body",
    "from_header",
    "problem_of",
    "problems",
    "replay_marks",
]
