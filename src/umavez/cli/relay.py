"""`umavez relay run` and `umavez outbox list|show|retry|dead|discard`: messages on their way."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from umavez.cli.decisions import refuse_unsigned
from umavez.cli.options import AsJson, StoreUrl, existing_url
from umavez.cli.screen.table import plain
from umavez.cli.stopping import until_stopped
from umavez.errors import ConfigurationError, SchemaOutdated, StoreError, UmavezError
from umavez.messaging.broker import Broker
from umavez.messaging.database import Database
from umavez.messaging.inspection import STATES, Entry, Inspection
from umavez.messaging.local import LocalBroker
from umavez.messaging.observing import MessageObserver
from umavez.messaging.relay import Relay, RelaySettings
from umavez.messaging.stopping import stop_on_signals
from umavez.sql.flow import SqlFlow

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
Prefix = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        envvar="UMAVEZ_BROKER_PREFIX",
        help="How exchanges and queues in RabbitMQ begin; the same for all who share them.",
    ),
]
Subscriber = Annotated[
    str | None, typer.Option(metavar="NAME", help="Look at the deliveries of this subscriber, not at the outbox.")
]
MessageId = Annotated[str, typer.Argument(metavar="ID", help="Which message.")]
LONGEST = 100 * 365 * 86_400
"""Seconds: beyond every database's calendar there is no later moment."""


class NoSuchMessage(UmavezError):
    """No message with this id stands there, or not in a state that allows it."""


def add(app: typer.Typer) -> None:
    """Put both groups on `app`."""
    app.add_typer(relay_group, name="relay")
    app.add_typer(outbox_group, name="outbox")
    relay_group.command("run")(until_stopped(run_relay))
    relay_group.callback()(_only_a_group)
    outbox_group.command("list")(list_messages)
    outbox_group.command("show")(show_message)
    outbox_group.command("retry")(retry_messages)
    outbox_group.command("dead")(list_dead)
    outbox_group.command("discard")(discard_message)


def _only_a_group() -> None:
    """Hand messages from the outbox to the broker."""


def run_relay(
    store: StoreUrl = None,
    broker: BrokerUrl = "local",
    batch: Annotated[int, typer.Option(min=1, max=5000, help="Messages per claim.")] = 500,
    lanes: Annotated[int, typer.Option(min=1, max=16, help="Claims on their way at once.")] = 2,
    keep: Annotated[float, typer.Option(min=0, max=LONGEST, help="Seconds that published messages stay.")] = 3600,
    lease: Annotated[
        float,
        typer.Option(min=5, max=86_400, help="Seconds after which another relay takes over what a dead one claimed."),
    ] = 30,
    prefix: Prefix = "umavez",
    metrics_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Serve metrics to Prometheus on this port of 127.0.0.1.")
    ] = None,
) -> None:
    """Publish what is in the outbox until SIGTERM or Ctrl-C, then finish what was claimed.

    Any number may run side by side. Make the tables first: umavez migrate.

    \b
    Examples:
      umavez relay run --store 'sqlite:///loja.db?journal=delete'
      UMAVEZ_BROKER=amqp://user:password@host/ umavez relay run
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    settings = RelaySettings(batch=batch, lanes=lanes, keep=keep, lease=lease)
    published = asyncio.run(_relay(existing_url(store), broker, prefix, settings, metrics_port))
    print(f"{published:,} {'message was' if published == 1 else 'messages were'} published.")


def _metrics(port: int, url: str) -> MessageObserver:
    """Serve what this relay counts, and what stands in the database at `url`."""
    try:
        from umavez.observe.metrics import serve_metrics  # noqa: PLC0415 - only where metrics are asked for
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"Metrics need {missing.name}, which is not installed; run: pip install 'umavez[metrics]'."
        ) from missing
    return serve_metrics(port, url)


async def _relay(url: str, broker_url: str, prefix: str, settings: RelaySettings, metrics_port: int | None) -> int:
    stop = asyncio.Event()
    # Before anybody can see that it runs: whoever sees it may stop it.
    stop_on_signals(stop)
    database = Database(url)
    broker = _broker(broker_url, database, prefix)
    observers = [] if metrics_port is None else [_metrics(metrics_port, url)]
    relay = Relay(database, broker, settings, observers=observers)
    try:
        await _refuse_missing_tables(relay)
        await relay.run(stop)
    finally:
        await broker.close()
        await database.close()
    return relay.published


async def _refuse_missing_tables(relay: Relay) -> None:
    """Raises SchemaOutdated: waiting would not make them. A database that is away is waited for by the relay."""
    try:
        await relay.lag()
    except SchemaOutdated:
        raise
    except StoreError:
        return


def _broker(url: str, database: Database, prefix: str) -> Broker:
    if url in ("local", "local:"):
        return LocalBroker(database)
    if not url.startswith(("amqp://", "amqps://")):
        raise ConfigurationError("The broker is neither local nor an amqp:// URL; pass --broker or set UMAVEZ_BROKER.")
    try:
        from umavez.messaging.rabbitmq import RabbitBroker, Topology  # noqa: PLC0415 - only where RabbitMQ is used
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"RabbitMQ needs {missing.name}, which is not installed; run: pip install 'umavez[rabbitmq]'."
        ) from missing
    return RabbitBroker(url, topology=Topology(prefix))


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
    entries, counts = _ask(store, subscriber, lambda look: _list(look, wanted, topic, limit))
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
    entry: Entry | None = _ask(store, subscriber, lambda look: look.entry(message))
    if entry is None:
        raise NoSuchMessage(f"There is no message {message}; see: umavez outbox list.")
    print(json.dumps(_brief(entry) | ({"body": entry.body, "headers": entry.headers} if body else {}), indent=2))


def retry_messages(
    message: Annotated[str | None, typer.Argument(metavar="ID", help="Which message; none with --all.")] = None,
    store: StoreUrl = None,
    subscriber: Subscriber = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead message.")] = False,
    by: Annotated[str | None, typer.Option(help="Who decides; kept in the message.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why; kept in the message.")] = None,
) -> None:
    """Let a dead message, or all of them, wait for its turn again."""
    if (message is None) != everything:
        raise ConfigurationError("Say which message to retry, or --all, but not both.")
    if by is not None or reason is not None:
        refuse_unsigned(by or "", reason or "")
    many = _ask(store, subscriber, lambda look: look.retry(message, by or "", reason or ""))
    if message is not None and not many:
        raise NoSuchMessage(f"There is no dead message {message}; see: umavez outbox dead.")
    print(f"{many:,} {'message waits' if many == 1 else 'messages wait'} again.")


def discard_message(
    message: MessageId,
    by: Annotated[str, typer.Option(help="Who decides.")],
    reason: Annotated[str, typer.Option(help="Why.")],
    store: StoreUrl = None,
    subscriber: Subscriber = None,
) -> None:
    """Give a dead message up for good; later messages of its aggregate go on."""
    refuse_unsigned(by, reason)
    if not _ask(store, subscriber, lambda look: look.discard(message, by, reason)):
        raise NoSuchMessage(f"There is no dead message {message}; see: umavez outbox dead.")
    print(f"{message} is discarded.")


def _ask(store: str | None, subscriber: str | None, flow: Any) -> Any:
    async def work(database: Database) -> Any:
        return await database.run(lambda: flow(Inspection(database.dialect, subscriber)))

    return asyncio.run(_work_on(existing_url(store), work))


async def _work_on(url: str, work: Any) -> Any:
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
