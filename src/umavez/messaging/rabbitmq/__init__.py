"""RabbitMQ as the broker."""

from umavez.messaging.rabbitmq.broker import RabbitBroker
from umavez.messaging.rabbitmq.topology import Topology

__all__ = ["RabbitBroker", "Topology"]
