"""One run of a WSGI app under a key: its answer is held back until the outcome is recorded."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import unquote_to_bytes

from umavez._sync.attempt import Attempt
from umavez.engine.current import CURRENT
from umavez.http._sync import record
from umavez.http.contract.answer import Answer, NotFinal, no_store
from umavez.http.contract.body import Spool
from umavez.http.contract.exchange import OF_THE_REQUEST, Exchange, streams
from umavez.http.contract.handler import Keyed, Over
from umavez.http.contract.route import Contract, inside


class Capture:
    """Calls the app and collects what it answers."""

    def __init__(self, app: Any, exchange: Exchange, contract: Contract, environ: dict[str, Any]) -> None:
        self._app = app
        self._exchange = exchange
        self._contract = contract
        self._environ = environ
        self._line = ""
        self._headers: list[tuple[bytes, bytes]] = []
        self._written: list[bytes] = []
        self._gone = False
        self.started = False
        self.answer: Answer | None = None

    def _start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        """The app's start_response. Until something has gone out, an error page may still replace the headers.

        Raises the app's error afterwards, as PEP 3333 asks: swallowed, a broken answer would look whole.
        """
        if exc_info is not None and self._gone:
            raise exc_info[1].with_traceback(exc_info[2])
        self._line = status
        self._headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        return self._written.append

    def collected(self, keyed: Keyed | None) -> Answer:
        """Run the app and wait for its whole answer."""
        chunks = self._called(keyed)
        try:
            self._written.extend(chunks)
        finally:
            _close(chunks)
        return self._answer(b"".join(self._written))

    def _called(self, keyed: Keyed | None) -> Iterable[bytes]:
        self._environ["umavez"] = keyed
        chunks: Iterable[bytes] = self._app(self._environ, self._start)
        return chunks

    def _answer(self, body: bytes) -> Answer:
        if not self._line:
            raise RuntimeError("The app returned without a complete response; its outcome is not known.")
        return Answer(int(self._line[:3]), self._headers, body)


class Run(Capture):
    """The app under a claim of its own. Called by the engine; ends with Over once the outcome is recorded."""

    def __init__(self, app: Any, exchange: Exchange, contract: Contract, environ: dict[str, Any]) -> None:
        super().__init__(app, exchange, contract, environ)
        self._attempt: Attempt
        self._rest: Iterator[bytes] | None = None
        self._open: Iterable[bytes] = ()
        self._told: Answer

    def __call__(self) -> Any:
        """Run the app. Raises Over, or whatever the app raises before it has answered."""
        self.started = True
        self._attempt = CURRENT.get()  # the engine calls this inside an attempt
        chunks = self._called(Keyed(self._attempt))
        source = iter(chunks)
        try:
            held = self._held(source)
            if held is not None:
                self.answer = self._answer(held)
                self._told = record(self._attempt, self._exchange, self._contract, self.answer, whole=True)
            else:
                answer = self._answer(b"")
                self._told = record(self._attempt, self._exchange, self._contract, answer, whole=False)
                if self._told.status == answer.status:
                    self._rest, self._open = source, chunks
        finally:
            if self._rest is None:
                _close(chunks)
        raise Over

    def _held(self, source: Iterator[bytes]) -> bytes | None:
        """The whole body, or None for one that is to go out as it comes."""
        held = self._written
        size = 0
        for chunk in source:
            held.append(chunk)
            size += len(chunk)
            if size > self._contract.max_response or streams(self._contract, self._headers):
                return None
        return b"".join(held)

    def deliver(self, start_response: Any) -> Iterable[bytes]:
        """Send what was recorded."""
        told = self._told
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in told.headers]
        start_response(self._line if int(self._line[:3]) == told.status else f"{told.status} Conflict", headers)
        if self._rest is None:
            return [told.body]
        self._gone = True
        return _Stream(self._written, self._rest, self._open)


class JoinedRun(Capture):
    """The app inside a transaction that the middleware ends. The whole answer waits for the commit."""

    def __call__(self, attempt: Attempt, connection: Any) -> list[Any]:
        """Run the app; returns what to keep. Raises Over for an answer that is no outcome, to roll back."""
        self.started = True
        answer = self.collected(Keyed(attempt, connection))
        self.answer = answer._replace(headers=no_store(answer.headers))
        try:
            return self._exchange.value(self._contract, answer)
        except NotFinal as error:
            raise Over from error


class _Stream:
    """The part of an answer that was held, then the rest as it comes; closes `held_open` once, read or not."""

    def __init__(self, held: list[bytes], rest: Iterator[bytes], *held_open: Any) -> None:
        self._held = held
        self._rest = rest
        self._ends = ExitStack()
        for each in held_open:
            self._ends.callback(_close, each)

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._held
            yield from self._rest
        finally:
            self.close()

    def close(self) -> None:
        self._ends.close()


def read_to_the_end(answer: Iterable[bytes], body: Spool) -> Iterable[bytes]:
    """The answer; where it goes out as it comes, the request's body is open until then: the app may still read it."""
    if type(answer) is list:
        body.close()
        return answer
    return _Stream([], iter(answer), body, answer)


def _close(chunks: Any) -> None:
    if hasattr(chunks, "close"):
        chunks.close()


_NAMES = [name.decode().upper().replace("-", "_") for name in OF_THE_REQUEST]
_OF_THE_REQUEST = frozenset((*_NAMES, *(f"HTTP_{name}" for name in _NAMES)))


def fetched(app: Any, environ: dict[str, Any], place: str) -> Answer:
    """What the app answers to GET on `place`, asked with the caller's own credentials."""
    path, _, query = place.partition("?")
    asked = {name: value for name, value in environ.items() if name not in _OF_THE_REQUEST}
    decoded = unquote_to_bytes(path.encode("latin-1")).decode("latin-1")
    asked.update(
        {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": inside(decoded, environ.get("SCRIPT_NAME", "")),
            "QUERY_STRING": query,
            "wsgi.input": io.BytesIO(),
        }
    )
    return Capture(app, None, None, asked).collected(None)  # type: ignore[arg-type]  # nothing is decided about it
