"""`umavez processos`: process instances and records, glosas and TISS messages, and the simulated portal."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from umavez import BoundedJson, ConfigurationError, InvalidJson, UmavezError, open_store

LOCAL = "local"
"""The principal of a server without API keys."""

group = typer.Typer(no_args_is_help=True, help="Start, resume, list and show process instances (BPMN).")

DatabaseUrl = Annotated[str | None, typer.Option("--database", help="Where the processes are [UMAVEZ_DATABASE]")]
Principal = Annotated[str, typer.Option("--principal", help="Whose processes.")]
InstanceId = Annotated[str, typer.Argument(metavar="ID", help="The process instance.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of text for people.")]


class Situacao(StrEnum):
    """Where a glosa stands."""

    ABERTA = "aberta"
    RECORRIDA = "recorrida"
    VENCIDA = "vencida"


def add(app: typer.Typer) -> None:
    """Put the group on `app`."""
    app.add_typer(group, name="processos")


@contextmanager
def opened(database: str | None, *, new: bool = False) -> Iterator[Any]:
    """The system behind `--database`, which only a `new` one may make; a problem is said in one sentence."""
    # Here, because every other command of `umavez` would wait for the BPMN engine and the server to load.
    from umavez_systems.database import open_database  # noqa: PLC0415
    from umavez_systems.problems import Problem  # noqa: PLC0415
    from umavez_systems.processos.assembly import open_processos, warn_unsealed  # noqa: PLC0415
    from umavez_systems.server import prepare  # noqa: PLC0415
    from umavez_systems.settings import settings_of  # noqa: PLC0415

    settings = settings_of({"database": database}, there=not new)
    prepare(settings)
    warn_unsealed()
    link = open_database(settings.database, 2, settings.database_timeout_seconds)
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
    claim: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON with the lote (claimData).", exists=True, dir_okay=False)
    ],
    number: Annotated[str | None, typer.Option("--id", help="The instance's id; repeating it is safe.")] = None,
    prazo: Annotated[str, typer.Option(help="How long to wait before the payment, as P1D or PT2H.")] = "P1D",
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
) -> None:
    """Start an instance of the billing process and move it on as far as it goes.

    Example: umavez processos start lote.json --id atendimento-42
    """
    with opened(database, new=True) as system:
        row, _ = system.runner.start(principal, number, _lote(claim), prazo)
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
    from logging.config import dictConfig  # noqa: PLC0415  # of use to this command only

    from umavez_systems.logs import LINES  # noqa: PLC0415  # the same

    if not once:
        dictConfig(LINES)  # whoever asks for one round reads its one line
    with opened(database, new=True) as system:
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
    from umavez_systems.processos.pagina.pages import detail  # noqa: PLC0415  # with the rest of the system

    with opened(database) as system:
        shown = detail(system, principal, number)
    typer.echo(json.dumps(shown, indent=2, ensure_ascii=False) if as_json else timeline(shown))


@group.command("record")
def show_record(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The idempotency key.")],
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
    result: Annotated[bool, typer.Option("--result", help="Open the result too, sealed or not.")] = False,
) -> None:
    """Show one idempotency record as JSON. A sealed result is opened with the keys in UMAVEZ_SEAL_KEYS.

    Example: umavez processos record a3f2e1d4_Task_SubmitClaim_submit_claim_7a8b9c0d --result
    """
    with opened(database) as system:
        record = system.faturamento.record(principal, key)
        (shown,) = system.shown([record])
        if result:
            shown["resultData"] = system.faturamento.result(principal, record) if shown["hasResult"] else None
    typer.echo(json.dumps(shown, indent=2, ensure_ascii=False, default=str))


@group.command("tiss")
def tiss(
    claim: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON with the lote (claimData).", exists=True, dir_okay=False)
    ],
) -> None:
    """Write a lote as a TISS message (XML with its hash). Nothing is sent.

    Example: umavez processos tiss lote.json > lote.xml
    """
    from umavez_systems.problems import Problem  # noqa: PLC0415  # with the rest of the system
    from umavez_systems.processos.tiss.lote import lote_message  # noqa: PLC0415  # the same

    try:
        typer.echo(lote_message(_lote(claim), datetime.now(UTC)), nl=False)
    except Problem as problem:
        raise UmavezError(problem.detail) from problem


@group.command("statement")
def statement(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A demonstrativo as a TISS message.", exists=True, dir_okay=False)
    ],
    instance: Annotated[str, typer.Option("--instance", help="The process instance that it belongs to.")],
    activity: Annotated[str, typer.Option("--activity", help="The activity.")] = "Task_Demonstrativo",
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
) -> None:
    """Keep a demonstrativo that was received as a file, and its glosas. Safe to repeat.

    Example: umavez processos statement demonstrativo.xml --instance atendimento-42
    """
    from umavez_systems.processos.attempts import Step  # noqa: PLC0415  # with the rest of the system
    from umavez_systems.processos.tiss.xml import LARGEST  # noqa: PLC0415  # the same

    with opened(database, new=True) as system, file.open("rb") as opened_file:
        data = opened_file.read(LARGEST + 1)
        outcome = system.recursos.import_statement(Step(principal, instance, activity), data)
        typer.echo(json.dumps(outcome.value, indent=2, ensure_ascii=False))


@group.command("glosas")
def glosas(
    situacao: Annotated[Situacao | None, typer.Option(help="Only those that stand so.")] = None,
    protocolo: Annotated[str | None, typer.Option(help="Only those of this protocolo.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 100,
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
    as_json: AsJson = False,
) -> None:
    """List glosas by item, with the day until which each can be appealed against."""
    chosen = None if situacao is None else situacao.value
    with opened(database) as system:
        rows = system.recursos.glosas.glosas(principal, protocolo, chosen, limit=limit)
    if as_json:
        typer.echo(json.dumps({"itens": rows}, indent=2, ensure_ascii=False))
        return
    for row in rows:
        name = f"{row['claimId']}  {row['numeroGuiaPrestador']}/{row['sequencialItem']}"
        recurso = f"  {row['numeroRecurso']} {row['situacaoRecurso'] or ''}" if row["numeroRecurso"] else ""
        typer.echo(
            f"{name}  {row['codigoGlosa']}  {row['valorGlosado']:>12}  {row['situacao']:<9} {row['prazo']}{recurso}"
        )


def _lote(claim: Path) -> Any:
    from umavez_systems.processos.domain import lote_of  # noqa: PLC0415  # with the rest of the system

    try:
        return lote_of(BoundedJson(number=Decimal, nul=False).parse(claim.read_bytes()))
    except InvalidJson as error:
        raise ConfigurationError(f"{claim}: {error}") from None


@group.command(
    "portal", context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
)
def portal(context: typer.Context) -> None:
    """Run a simulated payer until it is stopped; its options are the simulator's own."""
    from umavez_systems.processos.portal.simulator import main  # noqa: PLC0415  # of use to this command only

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
