"""A client that sends and keeps keys."""

from umavez.errors import needs

with needs(__name__, "umavez[http]"):
    from umavez.http.client._async import AsyncIdempotentTransport
    from umavez.http.client._sync import IdempotentTransport
    from umavez.http.client.keys import IntentChanged, Journal
    from umavez.http.client.retrying import Retrying
    from umavez.http.client.transport import KeyWouldLeak, intent

__all__ = [
    "AsyncIdempotentTransport",
    "IdempotentTransport",
    "IntentChanged",
    "Journal",
    "KeyWouldLeak",
    "Retrying",
    "intent",
]
