"""Logs and traces: how the server's lines look, and a span for each request where OpenTelemetry is installed.

Spans go where the process is set up to send them, as with `opentelemetry-instrument umavez serve`; without that they
cost next to nothing. Paths may hold keys and card numbers: a span names the route, never the address.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from umavez import Event
from umavez.messaging import MessageObserver
from umavez.observe.audit import trace_fields

PAUSE = 60.0
"""Seconds between two lines of the same sort."""
MOST_SORTS = 100
"""Sorts of lines that are remembered."""
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"))
"""Methods that traces tell apart."""
TALKATIVE = ("uvicorn", "asyncio", "websockets")


class Lines(logging.Formatter):
    """One line for each event, which begins with its time, and ends with its trace where it is part of one."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the library's name
        """The line, without what an error adds to it."""
        line, traced = super().formatMessage(record), trace_fields()
        return line if not traced or hasattr(record, "trace_id") else f"{line} trace_id={traced['trace_id']}"


class Seldom(logging.Filter):
    """Lets each line of the libraries that speak with strangers through once in a while, with how many there were.

    They write one for every request that they cannot read: whoever sends such requests would write the log.
    """

    def __init__(self, pause: float = PAUSE, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._pause = pause
        self._clock = clock
        self._told: OrderedDict[tuple[str, ...], tuple[float, int]] = OrderedDict()
        """What was said when, and how often since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write this line."""
        if not record.name.startswith(TALKATIVE) or record.levelno >= logging.CRITICAL:
            return True
        what, now = _sort(record), self._clock()
        since, left_out = self._told.get(what, (-self._pause, 0))
        if now - since < self._pause:
            self._told[what] = (since, left_out + 1)
            return False
        if left_out:
            record.msg, record.args = f"{record.getMessage().rstrip()} ({left_out} more like this since the last)", ()
        self._told[what] = (now, 0)
        self._told.move_to_end(what)
        if len(self._told) > MOST_SORTS:
            self._told.popitem(last=False)
        return True


def _sort(record: logging.LogRecord) -> tuple[str, ...]:
    """What makes two lines alike: their text before values are put in, and where in the code an error began."""
    error = record.exc_info[1] if record.exc_info else None
    trace = None if error is None else error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return record.name, str(record.msg)[:200], type(error).__name__, place


LINES: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"lines": {"()": "umavez_systems.logs.Lines"}},
    "filters": {"seldom": {"()": "umavez_systems.logs.Seldom"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines", "filters": ["seldom"]}},
    "root": {"level": "WARNING", "handlers": ["stderr"]},
}
"""For logging.config.dictConfig, in each of the server's processes."""


def installed() -> bool:
    """Whether OpenTelemetry can be imported, with what records spans: without that, nothing is asked of it."""
    return all(find_spec(name) is not None for name in ("opentelemetry", "opentelemetry.trace", "opentelemetry.sdk"))


def observers() -> tuple[Callable[[Event], None], ...]:
    """What gives each attempt a span; nothing where OpenTelemetry is not installed."""
    if not installed():
        return ()
    from umavez.observe.tracing import Tracing  # noqa: PLC0415  # needs umavez[tracing]

    return (Tracing(),)


def message_observers() -> tuple[MessageObserver, ...]:
    """What carries traces with messages; nothing where OpenTelemetry is not installed."""
    if not installed():
        return ()
    from umavez.observe.tracing import MessageTracing  # noqa: PLC0415  # needs umavez[tracing]

    return (MessageTracing(),)


def install(app: FastAPI) -> None:
    """Give every request of `app` a span, where OpenTelemetry is installed."""
    if installed():
        app.add_middleware(Spans)


class Spans:
    """ASGI middleware: one span for each request, a child of the caller's where it sent a traceparent."""

    def __init__(self, app: ASGIApp) -> None:
        from opentelemetry import propagate, trace  # noqa: PLC0415  # see `installed`

        self.app = app
        self._extract = propagate.extract
        self._tracer = trace.get_tracer("umavez.systems")
        self._kind = trace.SpanKind.SERVER
        self._error = trace.StatusCode.ERROR

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request inside its span."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        # A stranger may name the method, too: a name of its own for each would be a name without end.
        method = scope["method"] if scope["method"] in METHODS else None
        caller = self._extract(dict(Headers(scope=scope)))
        # What an error says may be somebody's document: the span has its type alone, as those of attempts have.
        silent: dict[str, Any] = {"record_exception": False, "set_status_on_exception": False}
        with self._tracer.start_as_current_span(method or "HTTP", caller, self._kind, **silent) as span:
            if not span.is_recording():
                return await self.app(scope, receive, send)
            span.set_attribute("http.request.method", method or "_OTHER")

            async def answer(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        self._failed(span, str(message["status"]))
                await send(message)

            try:
                await self.app(scope, receive, answer)
            except Exception as error:
                self._failed(span, type(error).__qualname__)
                raise
            finally:
                route = getattr(scope.get("route"), "path", None)
                if route is not None:
                    span.update_name(f"{method or 'HTTP'} {route}")
                    span.set_attribute("http.route", route)

    def _failed(self, span: Any, kind: str) -> None:
        span.set_attribute("error.type", kind)
        span.set_status(self._error)
