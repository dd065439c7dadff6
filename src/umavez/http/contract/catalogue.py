"""Catalogue: the words in which a service refuses, and the document that every refusal becomes.

A service that speaks another language, or documents its types elsewhere, gives its own words for the engine's kinds:

    Catalogue("https://loja.example/problemas/", {KEY_MISSING: Kind("chave-ausente", 400, "Falta a chave", "…")})
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from umavez.errors import UmavezError
from umavez.http.contract.answer import NO_STORE, Answer
from umavez.http.contract.problem import BASE, Kind, Problem, problem_of


class Catalogue:
    """`base` is what every type starts with; `words` are used in place of the engine's own kinds."""

    def __init__(self, base: str = BASE, words: Mapping[Kind, Kind] | None = None) -> None:
        self.base = base
        self._words = dict(words or {})

    def worded(self, problem: Problem) -> tuple[Kind, str]:
        """The kind and the detail by which this service tells `problem`."""
        kind = self._words.get(problem.kind)
        return (problem.kind, problem.detail) if kind is None else (kind, kind.detail)

    def document(self, problem: Problem) -> dict[str, object]:
        """The members of the problem document."""
        kind, detail = self.worded(problem)
        members: dict[str, object] = {
            "type": self.base + kind.name,
            "title": kind.title,
            "status": kind.status,
            "detail": detail,
            **problem.members,
            "retryable": kind.retryable,
        }
        if problem.retry_after is not None:
            members["retry_after"] = problem.seconds
        return members

    def answer(self, error: UmavezError | Problem, retry_after: float = 1.0) -> Answer:
        """The answer to `error`. Raises the error itself where it is the server's own mistake."""
        problem = error if isinstance(error, Problem) else problem_of(error, retry_after)
        body = json.dumps(self.document(problem), ensure_ascii=False).encode()
        headers = [(b"content-type", b"application/problem+json"), (b"content-length", b"%d" % len(body)), NO_STORE]
        if problem.retry_after is not None:
            headers.append((b"retry-after", b"%d" % problem.seconds))
        headers += [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in problem.headers.items()
        ]
        return Answer(self.worded(problem)[0].status, headers, body)
