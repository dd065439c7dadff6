"""RabbitMQ as the broker."""

from umavez.errors import needs

with needs(__name__, "umavez[rabbitmq]"):
    from umavez.messaging.rabbitmq.broker import RabbitBroker
    from umavez.messaging.rabbitmq.topology import Topology

__all__ = ["RabbitBroker", "Topology"]
