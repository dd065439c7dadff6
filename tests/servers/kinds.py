"""The four kinds of server, by name."""

from __future__ import annotations

from tests.servers.kind import Kind
from tests.servers.mariadb_server import MariaDB
from tests.servers.postgres_server import Postgres
from tests.servers.rabbitmq_server import RabbitMQ
from tests.servers.redis_server import Redis

KINDS: dict[str, Kind] = {kind.name: kind for kind in (Postgres(), MariaDB(), Redis(), RabbitMQ())}
