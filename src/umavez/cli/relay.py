"""`umavez relay run` and `umavez outbox list|show|retry|dead|discard|migrate`: messages on their way."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from umavez.cli.options import AsJson, StoreUrl, named
from umavez.cli.records_change import refuse_unsigned
from umavez.cli.records_view import plain
from umavez.errors import ConfigurationError, UmavezError
from umavez.messaging.broker import Broker
from umavez.messaging.database import Database
from umavez.messaging.inspection import STATES, Entry, Inspection
from umavez.messaging.local import LocalBroker
from umavez.messaging.relay import Relay, RelaySettings
from umavez.messaging.stopping import stop_on_signals
from umavez.sql_flow import SqlFlow

relay_group = typer.Typer(no_args_is_help=True, help="Hand messages from the outbox to the broker.")
outbox_group = typer.Typer(no_args_is_help=True, help="Look at messages, and decide about dead ones.")

BrokerUrl = Annotated[
    str,
    typer.Option(
        "--broker",
        metavar="URL",
        envvar="UMAVEZ_BROKER",
        help="amqp://… for RabbitMQ, or local for the store's own database. Prefer the variable for a password.",
    ),
]
Subscriber = Annotated[
    str | None, typer.Option(metavar="NAME", help="Look at the deliveries of this subscriber, not at the outbox.")
]
MessageId = Annotated[str, typer.Argument(metavar="ID", help="Which message.")]


class NoSuchMessage(UmavezError):
    """No message with this id stands there, or not in a state that allows it."""


def add(app: typer.Typer) -> None:
    """Put both groups on `app`."""
    app.add_typer(relay_group, name="relay")
    app.add_typer(outbox_group, name="outbox")
    relay_group.command("run")(run_relay)
    relay_group.callback()(_only_a_group)
    outbox_group.command("list")(list_messages)
    outbox_group.command("show")(show_message)
    outbox_group.command("retry")(retry_messages)
    outbox_group.command("dead")(list_dead)
    outbox_group.command("discard")(discard_message)
    outbox_group.command("migrate")(migrate_messages)


def _only_a_group() -> None:
    """Hand messages from the outbox to the broker."""


def run_relay(
    store: StoreUrl = None,
    broker: BrokerUrl = "local",
    batch: Annotated[int, typer.Option(min=1, max=5000, help="Messages per claim.")] = 500,
    lanes: Annotated[int, typer.Option(min=1, max=16, help="Claims on their way at once.")] = 2,
    keep: Annotated[float, typer.Option(min=0, help="Seconds that published messages stay.")] = 3600,
) -> None:
    """Publish what is in the outbox until SIGTERM or Ctrl-C, then finish what was claimed.

    Any number may run side by side.

    \b
    Examples:
      umavez relay run --store sqlite:///loja.db?journal=delete
      UMAVEZ_BROKER=amqp://user:password@host/ umavez relay run
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    settings = RelaySettings(batch=batch, lanes=lanes, keep=keep)
    published = asyncio.run(_relayed(named(store), broker, settings))
    print(f"{published} messages were published.")


async def _relayed(url: str, broker_url: str, settings: RelaySettings) -> int:
    database = Database(url)
    broker = _broker(broker_url, database)
    relay = Relay(database, broker, settings)
    stop = asyncio.Event()
    stop_on_signals(stop)
    try:
        await relay.run(stop)
    finally:
        await broker.close()
        await database.close()
    return relay.published


def _broker(url: str, database: Database) -> Broker:
    if url == "local":
        return LocalBroker(database)
    if not url.startswith(("amqp://", "amqps://")):
        raise ConfigurationError("The broker is neither local nor an amqp:// URL; pass --broker or set UMAVEZ_BROKER.")
    try:
        from umavez.messaging.rabbitmq import RabbitBroker  # noqa: PLC0415 - only where RabbitMQ is used
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"RabbitMQ needs {missing.name}, which is not installed; run: pip install 'umavez[rabbitmq]'."
        ) from missing
    return RabbitBroker(url)


def list_messages(
    store: StoreUrl = None,
    state: Annotated[str | None, typer.Option(help="Only in this state: waiting, done, dead or discarded.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only of this topic.")] = None,
    subscriber: Subscriber = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, oldest first.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List messages, oldest first, with how many there are in each state. Bodies are never part of the list.

    \b
    Examples:
      umavez outbox list --state waiting
      umavez outbox list --subscriber mailer --json
    """
    wanted = None if state is None else state.upper()
    if wanted is not None and wanted not in STATES:
        raise ConfigurationError(f"{state!r} is not a state; use one of {', '.join(STATES).lower()}.")
    entries, counts = _answer(store, subscriber, lambda look: _list(look, wanted, topic, limit))
    if as_json:
        print(json.dumps({"messages": [_brief(entry) for entry in entries], "counts": counts}, indent=2))
        return
    for entry in entries:
        # Topics and errors come from elsewhere: a control character in one must not steer the terminal.
        why = f"  {plain(entry.error)}" if entry.error else ""
        head = f"{plain(entry.id)}  {entry.state:9}  {entry.attempts:3}  {_moment(entry.created_at)}"
        print(f"{head}  {plain(entry.topic)}{why}")
    print(", ".join(f"{number} {name.lower()}" for name, number in counts.items()))


def _list(look: Inspection, state: str | None, topic: str | None, limit: int) -> SqlFlow[Any]:
    entries = yield from look.entries(state, topic, limit)
    counts = yield from look.counts()
    return entries, counts


def list_dead(store: StoreUrl = None, subscriber: Subscriber = None, as_json: AsJson = False) -> None:
    """List the dead messages with their reasons."""
    list_messages(store, "dead", None, subscriber, 100, as_json)


def show_message(
    message: MessageId,
    store: StoreUrl = None,
    subscriber: Subscriber = None,
    body: Annotated[bool, typer.Option("--body", help="Also the body, which may hold personal data.")] = False,
) -> None:
    """Show one message as JSON."""
    entry: Entry | None = _answer(store, subscriber, lambda look: look.entry(message))
    if entry is None:
        raise NoSuchMessage(f"There is no message {message}; see: umavez outbox list.")
    print(json.dumps(_brief(entry) | ({"body": entry.body, "headers": entry.headers} if body else {}), indent=2))


def retry_messages(
    message: Annotated[str | None, typer.Argument(metavar="[ID]", help="Which message; none with --all.")] = None,
    store: StoreUrl = None,
    subscriber: Subscriber = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead message.")] = False,
) -> None:
    """Let a dead message, or all of them, wait for its turn again."""
    if (message is None) != everything:
        raise ConfigurationError("Say which message to retry, or --all, but not both.")
    many = _answer(store, subscriber, lambda look: look.retry(message))
    if message is not None and not many:
        raise NoSuchMessage(f"There is no dead message {message}; see: umavez outbox dead.")
    print(f"{many} messages wait again.")


def discard_message(
    message: MessageId,
    by: Annotated[str, typer.Option(help="Who decides.")],
    reason: Annotated[str, typer.Option(help="Why.")],
    store: StoreUrl = None,
    subscriber: Subscriber = None,
) -> None:
    """Give a dead message up for good; later messages of its aggregate go on."""
    refuse_unsigned(by, reason)
    if not _answer(store, subscriber, lambda look: look.discard(message, by, reason)):
        raise NoSuchMessage(f"There is no dead message {message}; see: umavez outbox dead.")
    print(f"{message} is discarded.")


def migrate_messages(store: StoreUrl = None) -> None:
    """Create or upgrade the tables of messaging. Safe to repeat."""

    async def work(database: Database) -> str:
        return await database.migrate()

    print(asyncio.run(_closing(named(store), work)))


def _answer(store: str | None, subscriber: str | None, flow: Any) -> Any:
    async def work(database: Database) -> Any:
        return await database.run(flow(Inspection(database.dialect, subscriber)))

    return asyncio.run(_closing(named(store), work))


async def _closing(url: str, work: Any) -> Any:
    database = Database(url)
    try:
        return await work(database)
    finally:
        await database.close()


def _brief(entry: Entry) -> dict[str, Any]:
    told = {name: value for name, value in entry._asdict().items() if name not in ("body", "headers")}
    for name in ("created_at", "due_at", "done_at"):
        told[name] = None if told[name] is None else _moment(told[name])
    return told


def _moment(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")
