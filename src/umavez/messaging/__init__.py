"""Messaging: outbox, relay, brokers, consumers and inbox.

A message is appended in the transaction of the change it tells of, handed to a broker by the relay, delivered at
least once, and takes effect once through the inbox. `umavez.messaging.rabbitmq` is imported only by those who use it.
"""

from umavez.messaging._async import AsyncInbox, AsyncOutbox
from umavez.messaging._sync import Inbox, Outbox
from umavez.messaging.broker import (
    UNANSWERED,
    Answer,
    Backoff,
    Broker,
    BrokerUnavailable,
    Delivery,
    Hopeless,
    Poison,
    Subscription,
)
from umavez.messaging.consumer import Consumer, ConsumerSettings
from umavez.messaging.database import Database
from umavez.messaging.local import LocalBroker
from umavez.messaging.message import Message, message_id
from umavez.messaging.observing import MessageObserver
from umavez.messaging.relay import Relay, RelaySettings
from umavez.messaging.stopping import stop_on_signals

__all__ = [
    "UNANSWERED",
    "Answer",
    "AsyncInbox",
    "AsyncOutbox",
    "Backoff",
    "Broker",
    "BrokerUnavailable",
    "Consumer",
    "ConsumerSettings",
    "Database",
    "Delivery",
    "Hopeless",
    "Inbox",
    "LocalBroker",
    "Message",
    "MessageObserver",
    "Outbox",
    "Poison",
    "Relay",
    "RelaySettings",
    "Subscription",
    "message_id",
    "stop_on_signals",
]
