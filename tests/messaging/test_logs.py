"""Lines of relay and consumer have their fields beside them, for structlog and OTLP handlers; nothing secret."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from tests.instrument_benches import connect
from umavez.messaging import Backoff, Consumer, ConsumerSettings, Database, LocalBroker, Message, Outbox, Relay
from umavez.messaging.broker import BrokerUnavailable

SECRET = "123.456.789-09"


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/loja.db?journal=delete"
    with closing(connect(url)) as connection:
        Outbox().migrate(connection)
        Outbox().append(connection, Message("paid", f'"{SECRET}"', id="m-1"))
        connection.commit()
    return url


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    database = Database(url)
    try:
        yield database
    finally:
        await database.close()


def told(caplog: pytest.LogCaptureFixture, logger: str, event: str) -> list[Any]:
    return [line for line in caplog.records if line.name == logger and getattr(line, "event", "") == event]


class Until(logging.Handler):
    """Sets `stop` at the first line of a logger."""

    def __init__(self, stop: asyncio.Event, logger: str) -> None:
        super().__init__()
        self._stop = stop
        self._logger = logging.getLogger(logger)

    def __enter__(self) -> None:
        self._logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._stop.set()


class Refusing:
    """A broker that takes nothing."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def publish(self, messages: Sequence[Message]) -> Sequence[Any]:
        if isinstance(self._answer, Exception):
            raise self._answer
        return [self._answer] * len(messages)


def test_a_relay_says_how_many_were_refused_at_which_attempt(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with opened(url) as database:
            await Relay(database, Refusing("the exchange is full")).step()  # type: ignore[arg-type]  # enough of one

    with caplog.at_level(logging.WARNING, "umavez.relay"):
        asyncio.run(run())
    (line,) = told(caplog, "umavez.relay", "umavez.messages_refused")
    assert (line.count, line.attempt, line.dead) == (1, 1, False)
    assert SECRET not in str(vars(line))


def test_a_relay_names_the_type_of_what_goes_wrong(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        stop = asyncio.Event()
        async with opened(url) as database:
            relay = Relay(database, Refusing(BrokerUnavailable("no broker")))  # type: ignore[arg-type]  # enough of one
            with Until(stop, "umavez.relay"):
                await relay.run(stop)

    with caplog.at_level(logging.WARNING, "umavez.relay"):
        asyncio.run(asyncio.wait_for(run(), 20))
    line = told(caplog, "umavez.relay", "umavez.relay_waits")[0]
    assert line.error_type == "umavez.messaging.broker.BrokerUnavailable"
    assert line.failures == 1


def test_a_consumer_names_the_message_and_never_what_it_holds(url: str, caplog: pytest.LogCaptureFixture) -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    span = trace.NonRecordingSpan(trace.SpanContext(0xAB, 0xCD, is_remote=False))

    async def handle(message: Message) -> None:
        raise OSError(f"no {message.payload}")

    async def run() -> None:
        stop = asyncio.Event()
        async with opened(url) as database:
            broker = LocalBroker(database)
            settings = ConsumerSettings(backoff=Backoff(limit=1))
            consumer = Consumer(broker, "mailer", ["paid"], handle, settings)
            await (await broker.subscribe("mailer", ["paid"])).close()
            await Relay(database, broker).step()
            with Until(stop, "umavez.consumer"):
                await consumer.run(stop)

    with caplog.at_level(logging.WARNING, "umavez.consumer"), trace.use_span(span):
        asyncio.run(asyncio.wait_for(run(), 20))
    line = told(caplog, "umavez.consumer", "umavez.message_failed")[0]
    assert (line.subscriber, line.topic, line.message_id, line.attempt) == ("mailer", "paid", "m-1", 1)
    assert (line.error_type, line.dead) == ("OSError", True)
    assert line.trace_id == f"{0xAB:032x}"
    beside = {name: value for name, value in vars(line).items() if name not in ("exc_info", "exc_text")}
    assert SECRET not in str(beside)
