"""Messaging: outbox, relay, brokers, consumers and inbox.

A message is appended in the transaction of the change it tells of, handed to a broker by the relay, delivered at
least once, and takes effect once through the inbox. `umavez.messaging.rabbitmq` is imported only by those who use it.
"""

from umavez.messaging.broker import Backoff, Broker, BrokerUnavailable, Delivery, Poison, Subscription
from umavez.messaging.consumer import Consumer, ConsumerSettings
from umavez.messaging.database import Database
from umavez.messaging.inbox import AsyncInbox, Inbox
from umavez.messaging.local import LocalBroker
from umavez.messaging.message import Message, message_id
from umavez.messaging.outbox import AsyncOutbox, Outbox
from umavez.messaging.relay import Relay, RelaySettings

__all__ = [
    "AsyncInbox",
    "AsyncOutbox",
    "Backoff",
    "Broker",
    "BrokerUnavailable",
    "Consumer",
    "ConsumerSettings",
    "Database",
    "Delivery",
    "Inbox",
    "LocalBroker",
    "Message",
    "Outbox",
    "Poison",
    "Relay",
    "RelaySettings",
    "Subscription",
    "message_id",
]
