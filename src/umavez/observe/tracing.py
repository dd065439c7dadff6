"""Traces with OpenTelemetry. Needs umavez[tracing]; without an SDK in the process nothing is recorded.

Once(url, scope="shop", observers=[Tracing()])
Outbox(observers=[MessageTracing()])    # and so for Relay and Consumer
"""

from umavez.errors import needs

with needs(__name__, "umavez[tracing]"):
    from umavez.observe.message_spans import MessageTracing
    from umavez.observe.spans import Tracing

__all__ = ["MessageTracing", "Tracing"]
