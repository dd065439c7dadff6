"""`umavez mailing`: upload lists, work, look, and decide about what nobody knows."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umavez import ConfigurationError, UmavezError

if TYPE_CHECKING:
    from umavez_systems.mailing.assembly import Desk

LOCAL = "local"
PAGE = 1000
group = typer.Typer(no_args_is_help=True, help="Mailings: lists uploaded once, each person mailed once.")
suppressions = typer.Typer(no_args_is_help=True, help="Addresses that are never written to.")
group.add_typer(suppressions, name="suppress")

DatabaseUrl = Annotated[str | None, typer.Option("--database", help="Where the mailings are [UMAVEZ_DATABASE]")]
Principal = Annotated[str, typer.Option("--principal", help="Whose mailings.")]
Number = Annotated[str, typer.Argument(metavar="ID", help="The mailing.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of text for people.")]
By = Annotated[str, typer.Option(help="Who decides.")]


@contextmanager
def opened(database: str | None, *, new: bool = False, lean: bool = False) -> Iterator[Desk]:
    """The system behind `--database`, which only a `new` one may make; a problem is said in one sentence.

    `lean`: tables that are there are taken as they are, for a worker that runs for weeks needs none of what migrating
    loads into its memory.
    """
    # Here, because every other command of `umavez` would wait for the system's libraries to load.
    from umavez_systems.mailing.assembly import open_desk, tables_ready  # noqa: PLC0415
    from umavez_systems.problems import Problem  # noqa: PLC0415
    from umavez_systems.settings import settings_of  # noqa: PLC0415

    try:
        settings = settings_of({"database": database}, there=not new)
        if not (lean and tables_ready(settings)):
            from umavez_systems.server import prepare  # noqa: PLC0415  # as said

            prepare(settings)
        with open_desk(settings) as desk:
            yield desk
    except Problem as problem:
        raise UmavezError(problem.detail) from problem
    except UmavezError:
        raise
    except ValueError as error:
        raise UmavezError(str(error)) from error


@group.command("upload")
def upload(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A CSV with a column of addresses.")
    ],
    subject: Annotated[
        str | None, typer.Option("--assunto", help="Subject; {{ coluna }} takes a column's value.")
    ] = None,
    text: Annotated[
        Path | None, typer.Option("--texto", exists=True, dir_okay=False, help="File with the plain text.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", exists=True, dir_okay=False, help="File with the HTML.")
    ] = None,
    template: Annotated[str | None, typer.Option(help="A kept template instead.")] = None,
    sender: Annotated[str | None, typer.Option("--remetente", help="Name <address> of the sender.")] = None,
    identity: Annotated[str, typer.Option("--identidade", help="nome or conteudo")] = "nome",
    reingest: Annotated[str, typer.Option("--reingestao", help="manter or repor")] = "manter",
    doubt: Annotated[str, typer.Option("--duvida", help="segurar, reenviar or perguntar")] = "segurar",
    follow: Annotated[bool, typer.Option("--follow", help="Show the progress until it ends.")] = False,
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
) -> None:
    """Upload a list. The same file again is the same mailing, and is mailed no second time.

    Example: umavez mailing upload clientes.csv --assunto 'Olá {{ nome }}' --texto carta.txt --follow
    """
    from umavez_systems.mailing.ingest.uploads import spool_file, spooled  # noqa: PLC0415
    from umavez_systems.mailing.operations import Upload  # noqa: PLC0415  # with the rest of the system

    given = {
        "assunto": subject,
        "texto": None if text is None else text.read_text(encoding="utf-8"),
        "html": None if html is None else html.read_text(encoding="utf-8"),
        "template": template,
        "remetente": sender,
        "identidade": identity,
        "reingestao": reingest,
        "duvida": doubt,
    }
    fields = {name: value for name, value in given.items() if value is not None}
    with opened(database, new=True) as desk:
        with spooled(desk.settings.spool) as spool:
            spool_file(file, spool)
            row, made = desk.mailing.cases.upload(principal, Upload(file.name, fields), spool)
            differs = row["content_hash"] != spool.content_hash
        typer.echo(f"{row['id']}  {row['status']}  {'created' if made else 'already there'}")
        if differs:
            typer.echo("The content differs from the first upload under this name; it was not taken.", err=True)
        if follow:
            watch(lambda: desk.mailing.cases.mailing(principal, row["id"]))


@group.command("list")
def list_mailings(
    limit: Annotated[int, typer.Option(min=1, max=500)] = 50,
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
    as_json: AsJson = False,
) -> None:
    """List mailings, newest first."""
    with opened(database) as desk:
        rows = desk.mailing.cases.mailings(principal, "", limit)
        if as_json:
            typer.echo(_json({"itens": [_shown(desk, row) for row in rows]}))
            return
        for row in rows:
            typer.echo(line_of(row))


@group.command("show")
def show(
    number: Number,
    follow: Annotated[bool, typer.Option("--follow", help="Show the progress until it ends.")] = False,
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Show one mailing: its state, its counters, the report of its lines, and what was done to it."""
    with opened(database) as desk:
        if follow:
            watch(lambda: desk.mailing.cases.mailing(principal, number))
        row = desk.mailing.cases.mailing(principal, number)
        shown = _shown(desk, row)
        past = desk.mailing.cases.history(principal, number)
        if as_json:
            typer.echo(_json({**shown, "historico": past}))
            return
        typer.echo(line_of(row))
        for name in ("linhas", "entradas"):
            typer.echo(f"  {name:<9}" + "  ".join(f"{key} {value}" for key, value in shown[name].items()))
        for one in past:
            typer.echo(f"  {one['created_at']}  {one['evento']}  {one['por']}  {one['motivo'] or ''}".rstrip())


@group.command("work")
def work(
    database: DatabaseUrl = None,
    relay: Annotated[bool, typer.Option("--relay/--no-relay", help="Hand the outbox to the broker too.")] = False,
    metrics_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Serve metrics to Prometheus on this port of 127.0.0.1.")
    ] = None,
) -> None:
    """Read lists and send mails until SIGTERM or Ctrl-C. Any number may run on any host, and any may be killed.

    Example: UMAVEZ_BROKER=amqp://user:password@host/ UMAVEZ_SMTP_URL=smtp://host umavez mailing work
    """
    import logging  # noqa: PLC0415  # of use here only

    from umavez.messaging import stop_on_signals  # noqa: PLC0415
    from umavez.observe.metrics import serve_metrics  # noqa: PLC0415
    from umavez_systems import logs  # noqa: PLC0415
    from umavez_systems.gates.usable import refuse_unusable  # noqa: PLC0415
    from umavez_systems.mailing.service import Service  # noqa: PLC0415

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)

    async def run(desk: Desk) -> None:
        stop = asyncio.Event()
        stop_on_signals(stop)
        counting = [] if metrics_port is None else [serve_metrics(metrics_port, desk.database.store_url)]
        observers = (*counting, *logs.message_observers())
        await Service(desk.mailing, relay=relay, worker=True, observers=observers).run(stop)

    with opened(database, new=True, lean=True) as desk:
        refuse_unusable(desk.settings, mailing=True)
        try:
            asyncio.run(run(desk))
        except* ValueError as errors:
            raise ConfigurationError(str(errors.exceptions[0])) from None


@group.command("recover")
def recover(database: DatabaseUrl = None) -> None:
    """Queue again what a dead worker held. Workers do so by themselves every UMAVEZ_MAILING_RECOVERY_SECONDS."""
    with opened(database) as desk:
        freed = desk.mailing.holdings.recover()
    typer.echo(f"{len(freed)} mailing(s) recovered." + "".join(f"\n{number}" for number in freed))


@group.command("pause")
def pause(number: Number, by: By = "cli", database: DatabaseUrl = None, principal: Principal = LOCAL) -> None:
    """Stop a mailing between two groups of mails."""
    _change(database, lambda desk: desk.mailing.cases.pause(principal, number, by))


@group.command("resume")
def resume(number: Number, by: By = "cli", database: DatabaseUrl = None, principal: Principal = LOCAL) -> None:
    """Go on with a mailing that was paused or failed."""
    _change(database, lambda desk: desk.mailing.cases.resume(principal, number, by))


@group.command("cancel")
def cancel(number: Number, by: By = "cli", database: DatabaseUrl = None, principal: Principal = LOCAL) -> None:
    """Send nothing more of a mailing, for good."""
    _change(database, lambda desk: desk.mailing.cases.cancel(principal, number, by))


@group.command("resend")
def resend(
    number: Number,
    entry: Annotated[list[str] | None, typer.Option("--entry", help="Only this entry; may be repeated.")] = None,
    by: By = "cli",
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
) -> None:
    """Send FAILED entries again: all of them, or those named."""
    with opened(database) as desk:
        row, many = desk.mailing.cases.resend(principal, number, by, entry or None)
    typer.echo(f"{line_of(row)}\n{many:,} {'entry waits' if many == 1 else 'entries wait'} again.")


@group.command("resolve")
def resolve(
    number: Number,
    entry: Annotated[str, typer.Argument(metavar="ENTRY", help="The entry of which nobody knows.")],
    result: Annotated[str, typer.Option("--resultado", help="enviado, reenviar or falhou")],
    by: By,
    reason: Annotated[str, typer.Option(help="Why.")],
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
) -> None:
    """Decide about one UNKNOWN entry."""
    with opened(database) as desk:
        row = desk.mailing.cases.resolve(principal, number, entry, result, by, reason)
    typer.echo(f"{row['email']}  {row['status']}")


@group.command("report")
def report(
    number: Number,
    output: Annotated[Path | None, typer.Option(help="Write to this file instead.")] = None,
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
) -> None:
    """The ledger of a mailing as CSV: address, state, attempts, the provider's id and last answer, times."""
    from umavez_systems.mailing.views import report_lines  # noqa: PLC0415  # with the rest of the system

    with opened(database) as desk:

        def pages() -> Iterator[list[dict[str, Any]]]:
            after = ""
            while page := desk.mailing.cases.entries(principal, number, None, after, PAGE):
                yield page
                after = page[-1]["id"]

        desk.mailing.cases.mailing(principal, number)
        with sys.stdout.buffer if output is None else output.open("wb") as stream:
            for block in report_lines(pages()):
                stream.write(block)
            stream.flush()


@group.command("sink")
def sink(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 1025,
    ledger: Annotated[Path | None, typer.Option(help="Append a line for each mail instead of keeping it.")] = None,
    database: DatabaseUrl = None,
) -> None:
    """An SMTP server for development on 127.0.0.1: it takes every mail and shows it at /mailing. Nothing leaves.

    Example: umavez mailing sink --port 1025, and UMAVEZ_SMTP_URL=smtp://127.0.0.1:1025 umavez serve
    """
    from umavez_systems.mailing.providers.sinking import serve_ledger, serve_mailbox  # noqa: PLC0415  # with the rest of the system

    if ledger is not None:
        asyncio.run(serve_ledger(port, ledger, typer.echo))
        return
    with opened(database, new=True) as desk:
        asyncio.run(serve_mailbox(port, desk.database, typer.echo))


@suppressions.command("import")
def import_suppressions(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", exists=True, dir_okay=False, help="CSV: an address per line, and perhaps its reason."
        ),
    ],
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
) -> None:
    """Never write to these addresses. Takes what `export` writes; lines without an address are named, and exit 1."""
    with opened(database, new=True) as desk, file.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        done = desk.mailing.suppressions.import_lines(principal, lines, file.name)
    typer.echo(f"{done.new:,} {'address' if done.new == 1 else 'addresses'} added.")
    if done.bad:
        shown = ", ".join(map(str, done.bad[:20])) + (" …" if len(done.bad) > 20 else "")
        raise UmavezError(f"{len(done.bad)} lines hold no address and were left out: {shown}")


@suppressions.command("export")
def export_suppressions(database: DatabaseUrl = None, principal: Principal = LOCAL) -> None:
    """Every address that is never written to, with the reason."""
    with opened(database) as desk:
        for line in desk.mailing.suppressions.export_lines(principal):
            typer.echo(line, nl=False)


def watch(look: Callable[[], dict[str, Any]]) -> None:
    """A bar that follows a mailing until it ends or waits for somebody: rows per second, and what remains."""
    import time  # noqa: PLC0415  # of use here only

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    speed = TextColumn("{task.fields[speed]}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), speed, TimeRemainingColumn())
    began = time.monotonic()
    with Progress(*columns) as bars:
        bar = bars.add_task("reading", total=None, speed="")
        while True:
            row = look()
            done = row["entradas"] - row["pendentes"] - row["enviando"]
            name, now, total = ("reading", row["posicao"], row["tamanho"])
            if row["ingerido"]:
                name, now, total = ("sending", done, row["entradas"])
            rate = (row["linhas"] if name == "reading" else done) / max(time.monotonic() - began, 0.001)
            bars.update(bar, description=f"{name} {row['status']}", completed=now, total=total, speed=f"{rate:.0f}/s")
            if row["status"] in ("SENT", "CANCELLED", "PAUSED", "FAILED"):
                return
            time.sleep(0.2)


def line_of(row: dict[str, Any]) -> str:
    """A mailing in one line."""
    counts = f"{row['enviados']}/{row['entradas']} sent, {row['falhas']} failed, {row['desconhecidos']} unknown"
    why = f"  {row['motivo']}" if row["motivo"] else ""
    return f"{row['id']}  {row['status']:<10} {counts}  {row['nome']}{why}"


def _change(database: str | None, case: Callable[[Desk], dict[str, Any]]) -> None:
    with opened(database) as desk:
        row = case(desk)
    wish = f" ({row['pedido']} was asked for)" if row["pedido"] else ""
    typer.echo(line_of(row) + wish)


def _shown(desk: Desk, row: dict[str, Any]) -> dict[str, Any]:
    from umavez_systems.mailing.views import mailing_shown  # noqa: PLC0415  # with the rest of the system

    return mailing_shown(row, desk.settings.mailing_group)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
