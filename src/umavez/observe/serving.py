"""Serving: metrics of a process that answers no requests of its own, such as a relay. Needs umavez[metrics]."""

from __future__ import annotations

from umavez.errors import ConfigurationError, needs
from umavez.observe.messages import MessageMetrics
from umavez.observe.standing import StoreMetrics

with needs(__name__, "umavez[metrics]"):
    from prometheus_client import start_http_server


def serve_metrics(port: int, url: str) -> MessageMetrics:
    """Serve on a port of 127.0.0.1 what this process counts and what stands in the database at `url`.

    Returns what counts its messages, for a relay's or consumer's observers. Raises ConfigurationError when the port is
    somebody else's.
    """
    try:
        start_http_server(port, "127.0.0.1")
    except OSError as taken:
        raise ConfigurationError(f"Port {port} cannot be served ({taken.strerror}); choose another.") from taken
    StoreMetrics(None, url=url)
    return MessageMetrics()
