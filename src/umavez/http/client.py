"""httpx transports that never double a payment: they make a key, keep it, and repeat only what is safe to repeat.

    client = httpx.Client(transport=IdempotentTransport(Journal("keys.db")))
    client.post("https://pay.example/charges", json=..., extensions=intent("charge order 17"))

An intent names what is to happen once. Sent again under the same name, also by another process after a crash,
the request carries the same key. Without a name every call is an operation of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import anyio
import anyio.to_thread
import httpx

from umavez.http.header import FIELD
from umavez.http.journal import Entry, IntentChanged, Journal
from umavez.http.meaning import fingerprint, media_type
from umavez.http.retrying import IDEMPOTENT, Retrying, may_matter

__all__ = ["AsyncIdempotentTransport", "IdempotentTransport", "IntentChanged", "Journal", "Retrying", "intent"]

INTENT = "umavez.intent"
KEYED = ("POST", "PATCH")


def intent(name: str) -> dict[str, Any]:
    """For a request's `extensions`: what it is to achieve once, in the caller's own words."""
    return {INTENT: name}


class _Keys:
    """Which requests get a key, and which key."""

    def __init__(self, journal: Journal, methods: Iterable[str], *, quoted: bool) -> None:
        self.journal = journal
        self._methods = frozenset(methods)
        self._quoted = quoted

    def begin(self, request: httpx.Request) -> Entry | None:
        """Give `request` its key, on disk first. None for one that needs none or brings its own."""
        name = request.extensions.get(INTENT)
        if FIELD in request.headers or (request.method not in self._methods and name is None):
            return None
        media = media_type(request.headers.get("content-type", ""))
        meaning = fingerprint(request.method, str(request.url), b"", media, request.content)
        entry = self.journal.begin(name, meaning, f"{request.method} {request.url.copy_with(query=None)}")
        request.headers[FIELD] = f'"{entry.key}"' if self._quoted else entry.key
        return entry

    def finish(self, entry: Entry | None, status: int) -> None:
        if entry is not None:
            self.journal.finish(entry.intent, status)


def _safe(request: httpx.Request) -> bool:
    """Whether repeating `request` cannot do its work twice."""
    return FIELD in request.headers or request.method in IDEMPOTENT


class IdempotentTransport(httpx.BaseTransport):
    """A transport over another one (by default httpx's own) that keys, keeps and retries.

    Raises IntentChanged before sending a request that differs from the one its intent was begun with.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        transport: httpx.BaseTransport | None = None,
        retrying: Retrying | None = None,
        methods: Iterable[str] = KEYED,
        quoted: bool = False,
    ) -> None:
        self._transport = transport or httpx.HTTPTransport()
        self._keys = _Keys(journal, methods, quoted=quoted)
        self._retrying = retrying or Retrying()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request` until it is answered, refused, or not worth another try."""
        request.read()
        entry = self._keys.begin(request)
        began, sent = time.monotonic(), 0
        while True:
            sent += 1
            try:
                response = self._transport.handle_request(request)
                if may_matter(response.status_code):
                    response.read()
            except httpx.TransportError:
                pause = self._retrying.after_error(sent, time.monotonic() - began, safe=_safe(request))
                if pause is None:
                    raise
            else:
                pause = judged(self._retrying, request, response, sent, time.monotonic() - began)
                if pause is None:
                    self._keys.finish(None if _open(response) else entry, response.status_code)
                    return response
                response.close()
            time.sleep(pause)

    def close(self) -> None:
        """Close the transport underneath; the journal stays open, as others may share it."""
        self._transport.close()


class AsyncIdempotentTransport(httpx.AsyncBaseTransport):
    """The same for httpx.AsyncClient. The journal writes in a thread, so that the disk holds up no other task."""

    def __init__(
        self,
        journal: Journal,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        retrying: Retrying | None = None,
        methods: Iterable[str] = KEYED,
        quoted: bool = False,
    ) -> None:
        self._transport = transport or httpx.AsyncHTTPTransport()
        self._keys = _Keys(journal, methods, quoted=quoted)
        self._retrying = retrying or Retrying()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request` until it is answered, refused, or not worth another try."""
        await request.aread()
        entry = await anyio.to_thread.run_sync(self._keys.begin, request)
        began, sent = time.monotonic(), 0
        while True:
            sent += 1
            try:
                response = await self._transport.handle_async_request(request)
                if may_matter(response.status_code):
                    await response.aread()
            except httpx.TransportError:
                pause = self._retrying.after_error(sent, time.monotonic() - began, safe=_safe(request))
                if pause is None:
                    raise
            else:
                pause = judged(self._retrying, request, response, sent, time.monotonic() - began)
                if pause is None:
                    await anyio.to_thread.run_sync(
                        self._keys.finish, None if _open(response) else entry, response.status_code
                    )
                    return response
                await response.aclose()
            await anyio.sleep(pause)

    async def aclose(self) -> None:
        """Close the transport underneath; the journal stays open, as others may share it."""
        await self._transport.aclose()


def judged(
    retrying: Retrying, request: httpx.Request, response: httpx.Response, sent: int, elapsed: float
) -> float | None:
    """Seconds to wait before sending again, or None: this response is the answer."""
    body = response.content if may_matter(response.status_code) else b""
    return retrying.after_response(sent, elapsed, response.status_code, response.headers, body, safe=_safe(request))


def _open(response: httpx.Response) -> bool:
    """Whether the outcome is still open although no further try is made: the key must be found again."""
    return may_matter(response.status_code)
