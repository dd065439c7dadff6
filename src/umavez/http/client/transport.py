"""httpx transports that never double a payment: they make a key, keep it, and repeat only what is safe to repeat.

    client = httpx.Client(transport=IdempotentTransport(Journal("keys.db")))
    client.post("https://pay.example/charges", json=..., extensions=intent("charge order 17"))

An intent names what is to happen once. Sent again under the same name, also by another process after a crash,
the request carries the same key. Without a name every call is an operation of its own. What decides is here; the
transports are in `_async.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import httpx

from umavez.errors import UmavezError
from umavez.http.client.keys import Entry, Journal
from umavez.http.client.retrying import IDEMPOTENT, Retrying, may_matter
from umavez.http.contract.fingerprint import fingerprint, media_type
from umavez.http.contract.header import FIELD

INTENT = "umavez.intent"
BEGUN = "umavez.begun"
"""Where a keyed request bears its entry and its origin; httpx hands a request's extensions on when it is redirected."""

KEYED = ("POST", "PATCH")
Origin = tuple[str, str, int | None]


class KeyWouldLeak(UmavezError):
    """A keyed request was redirected to another host; nothing was sent there."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"The request was redirected to {host}, which must not learn its key, nor may it run there a second time; "
            "look at the redirect yourself (follow_redirects=False)."
        )
        self.host = host


def intent(name: str) -> dict[str, Any]:
    """For a request's `extensions`: what it is to achieve once, in the caller's own words."""
    return {INTENT: name}


class Keys:
    """Which requests get a key, and which key."""

    def __init__(self, journal: Journal, methods: Iterable[str], *, quoted: bool) -> None:
        self.journal = journal
        self._methods = frozenset(methods)
        self._quoted = quoted

    def begin(self, request: httpx.Request) -> Entry | None:
        """Give `request` its key, on disk first. None for one that needs none or brings its own.

        Raises KeyWouldLeak for a redirect to another origin, whoever made the key, and IntentChanged.
        """
        origin = (request.url.scheme, request.url.host, request.url.port)
        if FIELD in request.headers:
            return self._again(request, origin)
        name = request.extensions.get(INTENT)
        if request.method not in self._methods and name is None:
            return None
        # The password of a URL belongs neither on disk nor to what the request means.
        plain = request.url.copy_with(username=None, password=None, fragment=None)
        media = media_type(request.headers.get("content-type", ""))
        meaning = fingerprint(request.method, str(plain), b"", media, request.content)
        entry = self.journal.begin(name, meaning, f"{request.method} {plain.copy_with(query=None)}")
        self._reopen(entry)
        request.headers[FIELD] = f'"{entry.key}"' if self._quoted else entry.key
        request.extensions = {**request.extensions, BEGUN: (entry, origin)}
        return entry

    def _again(self, request: httpx.Request, origin: Origin) -> Entry | None:
        """The entry of a request that has its key already: httpx sends it on, or anew with other credentials."""
        entry, home = request.extensions.get(BEGUN, (None, origin))
        if origin != home:
            raise KeyWouldLeak(request.url.host)
        if entry is None:
            request.extensions = {**request.extensions, BEGUN: (None, origin)}
        else:
            self._reopen(self.journal.get(entry.intent))
        return entry  # type: ignore[no-any-return]  # put there by `begin`

    def _reopen(self, entry: Entry | None) -> None:
        """What was refused and is sent again may happen now: its answer is to be heard anew."""
        if entry is not None and entry.status is not None and entry.status >= 400:
            self.journal.reopen(entry.intent)

    def finish(self, entry: Entry, status: int) -> None:
        """Keep that the answer was heard to its end."""
        self.journal.finish(entry.intent, status)


def tell_resends(number: int) -> None:
    """Tell the caller's span, where it has one, how often its request was sent again."""
    tracing = sys.modules.get("opentelemetry.trace")
    if tracing is not None:
        tracing.get_current_span().set_attribute("http.request.resend_count", number)


def is_safe(request: httpx.Request) -> bool:
    """Whether repeating `request` cannot do its work twice."""
    return FIELD in request.headers or request.method in IDEMPOTENT


def after_response(
    retrying: Retrying, request: httpx.Request, response: httpx.Response, sent: int, elapsed: float
) -> float | None:
    """Seconds to wait before sending again, or None: this response is the answer."""
    body = response.content if may_matter(response.status_code) else b""
    return retrying.after_response(sent, elapsed, response.status_code, response.headers, body, safe=is_safe(request))


def on_end(keys: Keys, entry: Entry | None, response: httpx.Response) -> Callable[[], None] | None:
    """What to do once the response was read to its end; None where the outcome is still open after it.

    It is open where the answer is "not now", and where it only points elsewhere: the key must be found again.
    """
    status = response.status_code
    if entry is None or may_matter(status) or 300 <= status < 400:
        return None
    return lambda: keys.finish(entry, status)
