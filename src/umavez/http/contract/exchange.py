"""Exchange: every decision of the HTTP contract, without I/O. The shells (ASGI, WSGI, Django) only carry it out."""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Any

from umavez.core.key import MAX_LENGTH, Key, prefix_of
from umavez.core.protocol import Intent
from umavez.engine.declaration import Plans
from umavez.errors import ConfigurationError, NotDeclared, UmavezError
from umavez.http.contract.answer import (
    KEPT_HEADERS,
    UNPROTECTED,
    Answer,
    Form,
    Kept,
    NotFinal,
    ServerFault,
    TryAgain,
    kept,
    marked,
    replayed,
    restored,
)
from umavez.http.contract.body import Spool, declared_length
from umavez.http.contract.catalogue import Catalogue
from umavez.http.contract.fingerprint import fingerprint, fingerprint_of_stream, media_type
from umavez.http.contract.header import KeyFormat
from umavez.http.contract.principal import Anonymous, Resolver, Scopes, resolver
from umavez.http.contract.problem import NOT_KEPT, TOO_MANY, Problem, problem_of
from umavez.http.contract.route import Contract, Route, Routes, inside

METHODS = ("POST", "PATCH")
"""Methods that the default contract covers; the others are idempotent by definition, and may have a Route."""

_prefix = lru_cache(maxsize=10_000)(prefix_of)
"""Callers come back: what their keys begin with is made once."""


LOG = logging.getLogger("umavez.http")
OF_THE_REQUEST = frozenset(
    (
        b"content-length",
        b"content-type",
        b"content-encoding",
        b"transfer-encoding",
        b"expect",
        b"idempotency-key",
        b"if-match",
        b"if-none-match",
        b"if-modified-since",
        b"if-unmodified-since",
        b"if-range",
        b"range",
    )
)
"""Fields that are about the request itself, its body and its conditions: an entity is asked for without them."""
MISPLACED = {b"content-encoding": "compression", b"access-control-allow-origin": "CORS"}
"""Headers by which middleware is known that has to see replays and refusals too."""


class Exchange:
    """The HTTP contract of one service.

    `principal` says who is calling (see principal.py) and cannot be left out. `routes` have contracts of their own;
    `options` (unknown=, required=, …) are the contract of every other POST and PATCH, if given.
    `secret` keys the digest under which a client's key is looked up, so that the store never holds the key itself.
    `in_flight` is how many keyed requests of one principal this process works on at a time; more get 429.
    `told` hears of every answer to a keyed request, with its operation, in a word: see `tell`.
    """

    def __init__(
        self,
        plans: Plans,
        scope: str,
        *,
        principal: Resolver | Anonymous,
        routes: Iterable[Route] = (),
        secret: bytes | str | None = None,
        key_format: KeyFormat | None = None,
        in_flight: int = 1000,
        retry_after: float = 1.0,
        catalogue: Catalogue | None = None,
        documents: str | None = "/.well-known/idempotency",
        told: Iterable[Callable[[str, str], None]] = (),
        **options: Any,
    ) -> None:
        self._told = tuple(told)
        self.principal = resolver(principal)
        self.scopes = Scopes(scope)
        self.key_format = key_format or KeyFormat()
        self.catalogue = catalogue or Catalogue()
        self.documents = documents
        self._documents = {} if documents is None else {documents: "policy", f"{documents}/status": "status"}
        self.retry_after = retry_after
        self.routes = _routes(plans, routes, options)
        self.find = self.routes.find
        self._secret = _secret(secret)
        self._limit = in_flight
        self._flying: dict[str, int] = {}
        self._lock = threading.Lock()
        self._looked = False

    def document(self, method: str, path: str, within: str = "") -> str | None:
        """Which of the contract's documents is asked for: policy, status or none. `within`: see Routes.find."""
        if method != "GET":
            return None
        return self._documents.get(inside(path, within)) or self._documents.get(path)

    def key(self, route: Route, scope: str, path: str, value: str) -> Key:
        """The engine's key: whose (`scope`), which operation, and which call of it on which concrete path."""
        if self._secret is not None:
            text = hmac.digest(self._secret, b"%d:%b%b" % (len(path), _bytes(path), value.encode()), "sha256").hex()
            return Key(scope, route.operation, text, _prefix(scope, route.operation))
        # Where the path is longer the application is mounted, perhaps more than once.
        if route.concrete and (path == route.path or path.rstrip("\n") == route.path):
            return Key(scope, route.operation, value, _prefix(scope, route.operation))
        # The path belongs to the key, not only to the fingerprint: where other content is forgiven
        # (mismatch="replay"), a key must still never show another resource's answer. Keys hold no space.
        text = f"{value} {path}"
        if len(text) > MAX_LENGTH or not path.isascii() or "\0" in path:  # what no store shows as it is
            text = sha256(b"%d:%b%b" % (len(value), value.encode(), _bytes(path))).hexdigest()
        return Key(scope, route.operation, text, _prefix(scope, route.operation))

    def intent(
        self,
        route: Route,
        key: Key,
        path: str,
        query: bytes,
        content_type: str,
        body: bytes | Spool,
        origin: str | None = None,
    ) -> Intent:
        """What a request means to do once; `origin` is what its headers say of where it came from."""
        media = media_type(content_type)
        whole = body if isinstance(body, bytes) else body.whole
        if whole is None:
            mark = fingerprint_of_stream(route.method, path, query, media, body.digest)  # type: ignore[union-attr]  # a Spool
        else:
            mark = fingerprint(route.method, path, query, media, whole)
        return Intent(key, mark, None, None, origin)

    def enter(self, scope: str) -> None:
        """Count a keyed request in. Raises Problem (429) above the limit; nothing is counted then."""
        with self._lock:
            flying = self._flying.get(scope, 0)
            if flying >= self._limit:
                raise Problem(TOO_MANY, retry_after=self.retry_after)
            self._flying[scope] = flying + 1

    def leave(self, scope: str) -> None:
        """Count it out."""
        with self._lock:
            flying = self._flying[scope] - 1
            if flying:
                self._flying[scope] = flying
            else:
                del self._flying[scope]

    def value(self, contract: Contract, answer: Answer) -> list[Any]:
        """What is stored of a final answer. Raises NotFinal for one that is no outcome."""
        if not contract.is_final(answer.status):
            raise unfinished(answer)
        return self.final_value(contract, answer)

    def final_value(self, contract: Contract, answer: Answer) -> list[Any]:
        """The same for an answer that is known to be final."""
        self._look_at_order(answer)
        if len(answer.body) > contract.max_response:
            return not_kept(answer, contract)
        if contract.replay == "entity" and location_of(answer) is not None:
            return kept(answer, contract.keep_headers, Form.BY_REFERENCE)
        return kept(answer, contract.keep_headers)

    def _look_at_order(self, answer: Answer) -> None:
        """Say once that middleware which should stand outside this one stands inside it."""
        if self._looked:
            return
        for name, _ in answer.headers:
            if name in MISPLACED:
                self._looked = True
                LOG.warning(
                    "The app sets %s inside the idempotency middleware: replays and refusals are made outside of it "
                    "and lack it. Add %s outside (in most frameworks: after) the idempotency middleware.",
                    name.decode("latin-1"),
                    MISPLACED[name],
                )

    def replay(self, value: list[Any], operation: str = "") -> Answer:
        """The answer to a repeat. Raises Problem (410) where the body was not kept."""
        if Kept(*value).form == Form.STREAMED:
            raise Problem(NOT_KEPT)
        self.tell(operation, "replayed")
        return replayed(value)

    def refusal(self, error: UmavezError | Problem, operation: str = "") -> Answer:
        """The problem document that answers `error`. Raises the error itself where it is the server's own mistake."""
        if self._told:
            problem = error if isinstance(error, Problem) else problem_of(error, self.retry_after)
            self.tell(operation, problem.kind.name)
        return self.catalogue.answer(error, self.retry_after)

    def tell(self, operation: str, answer: str) -> None:
        """A keyed request is answered: first, replayed, unfinished (it ran, and that is no outcome), unprotected, or
        the name of a problem. Without an operation nobody is told: it was no request to do something.
        """
        if not self._told or not operation:
            return
        for tell in self._told:
            try:
                tell(operation, answer)
            except Exception:  # a counter that fails must not fail the request it counts
                LOG.exception("An observer failed at an answer")


def not_kept(answer: Answer, contract: Contract) -> list[Any]:
    """What is stored of an answer whose body is not: that it happened, with which status."""
    return kept(answer, contract.keep_headers, Form.STREAMED)


def unfinished(answer: Answer) -> NotFinal:
    """What an answer that is no outcome says about the attempt."""
    return ServerFault(answer) if answer.status >= 500 else TryAgain(answer)


def streams(contract: Contract, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether an answer that begins with `headers` goes out as it comes instead of being held back and kept."""
    if contract.stream:
        return True
    for name, value in headers:
        if name == b"content-type" and value.startswith(b"text/event-stream"):
            return True
        if name == b"content-length" and (declared_length(value) or 0) > contract.max_response:
            return True
    return False


def location_of(answer: Answer) -> str | None:
    """The path of the entity that an answer created, if it names one on this server."""
    for name, value in answer.headers:
        if name == b"location" and value.startswith(b"/") and not value.startswith(b"//"):
            return value.decode("latin-1")
    return None


def entity_of(value: list[Any]) -> str | None:
    """Where to GET the entity that a kept answer stands for, or None where the answer itself was kept."""
    place = location_of(restored(value)) if Kept(*value).form == Form.BY_REFERENCE else None
    return None if place is None else place.partition("#")[0]


def current(value: list[Any], now: Answer) -> Answer:
    """A repeat's answer by the entity as it is `now`; its own error where it can no longer be seen."""
    headers = [pair for pair in now.headers if pair[0] in KEPT_HEADERS and pair[0] != b"location"]
    headers += [pair for pair in restored(value).headers if pair[0] == b"location"]
    return marked(Answer(Kept(*value).status if now.status < 300 else now.status, headers, now.body))


def unprotected(why: bytes) -> tuple[bytes, bytes]:
    """The header that tells that nothing protects this answer, and why."""
    return (UNPROTECTED, why)


def _routes(plans: Plans, routes: Iterable[Route], options: dict[str, Any]) -> Routes:
    declared = [route.bind(plans) for route in routes]
    if not options and not declared:
        raise NotDeclared('Say what an unknown outcome means: pass unknown="rerun", "hold" or a callable; or routes=.')
    default = [Route(method, "*", **options).bind(plans) for method in METHODS] if options else []
    return Routes(declared, default)


def _secret(secret: bytes | str | None) -> bytes | None:
    if secret is None:
        return None
    text = secret.encode() if isinstance(secret, str) else secret
    if len(text) < 16:
        raise ConfigurationError("secret= must have at least 16 bytes; make one with secrets.token_bytes(32).")
    return text


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
