"""`umavez processos`: start, resume, work, list and show process instances; run the simulated portal."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from umavez import ConfigurationError, UmavezError, open_store

LOCAL = "local"
"""The principal of a server without API keys."""

group = typer.Typer(no_args_is_help=True, help="Start, resume, list and show process instances (BPMN).")

DatabaseUrl = Annotated[str | None, typer.Option("--database", help="Where the processes are [UMAVEZ_DATABASE]")]
Principal = Annotated[str, typer.Option("--principal", help="Whose processes.")]
InstanceId = Annotated[str, typer.Argument(metavar="ID", help="The process instance.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of text for people.")]


def add(app: typer.Typer) -> None:
    """Put the group on `app`."""
    app.add_typer(group, name="processos")


@contextmanager
def opened(database: str | None) -> Iterator[Any]:
    """The system behind `--database`; a problem is said in one sentence."""
    # Here, because every other command of `umavez` would wait for the BPMN engine and the server to load.
    from umavez_systems.database import open_database  # noqa: PLC0415
    from umavez_systems.problems import Problem  # noqa: PLC0415
    from umavez_systems.processos.assembly import open_processos  # noqa: PLC0415
    from umavez_systems.server import prepare  # noqa: PLC0415
    from umavez_systems.settings import Settings  # noqa: PLC0415

    settings = Settings.model_validate({} if database is None else {"database": database})
    prepare(settings)
    link = open_database(settings.database, 2)
    system = open_processos(settings, link, open_store(link.store_url))
    try:
        yield system
    except Problem as problem:
        raise UmavezError(problem.detail) from problem
    finally:
        system.close()
        link.close()


@group.command("start")
def start(
    claim: Annotated[Path, typer.Argument(help="A JSON file with the lote (claimData).", exists=True)],
    number: Annotated[str | None, typer.Option("--id", help="The instance's id; repeating it is safe.")] = None,
    prazo: Annotated[str, typer.Option(help="How long to wait before the payment, as P1D or PT2H.")] = "P1D",
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
) -> None:
    """Start an instance of the billing process and move it on as far as it goes.

    Example: umavez processos start lote.json --id atendimento-42
    """
    from umavez_systems.processos.domain import lote_of  # noqa: PLC0415  # with the rest of the system

    try:
        data = json.loads(claim.read_text())
    except ValueError:
        raise ConfigurationError(f"{claim} is not JSON.") from None
    with opened(database) as system:
        row, _ = system.runner.start(principal, number, lote_of(data), prazo)
        row = system.runner.advance(principal, row["id"])
        typer.echo(_line(row))


@group.command("resume")
def resume(number: InstanceId, database: DatabaseUrl = None, principal: Principal = LOCAL) -> None:
    """Move one instance on: after a failure, a timer, or an incident that was dealt with. Safe to repeat."""
    with opened(database) as system:
        typer.echo(_line(system.runner.advance(principal, number, force=True)))


@group.command("work")
def work(
    database: DatabaseUrl = None,
    once: Annotated[bool, typer.Option("--once", help="One round, then leave.")] = False,
    every: Annotated[float, typer.Option(min=0.05, help="Seconds between two looks when nothing is due.")] = 1.0,
) -> None:
    """Move on every instance whose time has come, for ever. Any number of workers may run, and any may be killed."""
    with opened(database) as system:
        _work(system.runner.work, forever=not once, every=every)


def _work(round_of_work: Callable[[], int], *, forever: bool, every: float) -> None:
    while True:
        tried = round_of_work()
        if not forever:
            typer.echo(f"{tried} instance(s) moved on.")
            return
        if not tried:
            time.sleep(every)


@group.command("list")
def list_instances(
    estado: Annotated[str | None, typer.Option(help="ativo, esperando, incidente or encerrado")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 50,
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
    as_json: AsJson = False,
) -> None:
    """List instances, newest first."""
    from umavez_systems.processos.views import process_shown  # noqa: PLC0415  # with the rest of the system

    with opened(database) as system:
        rows = system.runner.instances(principal, estado, limit=limit)
    if as_json:
        typer.echo(json.dumps({"itens": [process_shown(row) for row in rows]}, indent=2, ensure_ascii=False))
        return
    for row in rows:
        typer.echo(_line(row))


@group.command("show")
def show(
    number: InstanceId, database: DatabaseUrl = None, principal: Principal = LOCAL, as_json: AsJson = False
) -> None:
    """Show one instance: the state of each task, its idempotency records and its timeline. Nothing of a patient."""
    from umavez_systems.processos.pages import detail  # noqa: PLC0415  # with the rest of the system

    with opened(database) as system:
        shown = detail(system, principal, number)
    typer.echo(json.dumps(shown, indent=2, ensure_ascii=False) if as_json else timeline(shown))


@group.command("portal", context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def portal(context: typer.Context) -> None:
    """Run a simulated payer's portal; see `umavez processos portal -- --help`."""
    from umavez_systems.processos.simulator import main  # noqa: PLC0415  # of use to this command only

    main(context.args)


def timeline(shown: dict[str, Any]) -> str:
    """An instance as text for people."""
    end = f" em {shown['desfecho']}" if shown["desfecho"] else ""
    lines = [f"{shown['id']}  {shown['processo']}  {shown['estado']}{end}"]
    if shown["motivo"]:
        lines.append(f"  motivo: {shown['motivo']}")
    lines += ["", "tarefas"]
    lines += [f"  {state:<10} {name}" for name, state in shown["tarefas"].items()]
    lines += ["", "registros"]
    for record in shown["registros"]:
        lines.append(f"  {record['status']:<8} {record['operationName']:<18} repetições {record['retryCount']}")
        lines += [f"           {entry['what']} ({entry['by']}): {entry['reason']}" for entry in record["evidence"]]
    lines += ["", "linha do tempo"]
    for step in shown["historico"]:
        detail = f"  {step['detalhe']}" if step["detalhe"] else ""
        lines.append(f"  {step['quando']}  {step['atividade'] or '·':<22} {step['evento']}{detail}")
    return "\n".join(lines)


def _line(row: dict[str, Any]) -> str:
    more = row["desfecho"] or row["motivo"] or ""
    return f"{row['id']}  {row['estado']:<10} {more}".rstrip()
