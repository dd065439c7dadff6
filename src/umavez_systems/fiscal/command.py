"""`umavez fiscal`: emit, reconcile, cancel, correct, void; look at numbers, deadlines and proof; simulate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from umavez import ConfigurationError, UmavezError

LOCAL = "local"
PROOF_BYTES = 50_000_000
"""Largest exported proof that is read."""
group = typer.Typer(no_args_is_help=True, help="Fiscal documents: emit, reconcile, cancel, void; simulate authorities.")
DatabaseUrl = Annotated[str | None, typer.Option("--database", help="Where the documents are [UMAVEZ_DATABASE]")]
Principal = Annotated[str, typer.Option("--principal", help="Whose documents.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]
DocumentId = Annotated[str, typer.Argument(metavar="ID", help="The document.")]


@contextmanager
def opened(database: str | None, *, new: bool = False) -> Iterator[Any]:
    """The system behind `--database`, which only a `new` one may make; a problem is said in one sentence."""
    # Here, because every other command of `umavez` would wait for schemas and bindings to load.
    from umavez import Once  # noqa: PLC0415
    from umavez_systems.database import open_database  # noqa: PLC0415
    from umavez_systems.fiscal.assembly import open_fiscal  # noqa: PLC0415
    from umavez_systems.problems import Problem  # noqa: PLC0415
    from umavez_systems.server import prepare  # noqa: PLC0415
    from umavez_systems.settings import settings_of  # noqa: PLC0415

    settings = settings_of({"database": database}, there=not new)
    prepare(settings)
    link = open_database(settings.database, 4)
    once = Once(link.store_url, scope="umavez")
    system = open_fiscal(settings, link, once)
    try:
        yield system
    except Problem as problem:
        raise UmavezError(problem.detail) from problem
    finally:
        system.close()
        once.close()
        link.close()


def _show(shown: Any, as_json: bool, columns: tuple[str, ...]) -> None:
    """One row or many, as JSON or as a table for people. Only the last column is ever broken: an id must be whole."""
    from rich.console import Console  # noqa: PLC0415  # of use here only
    from rich.table import Table  # noqa: PLC0415  # the same

    if as_json:
        typer.echo(json.dumps(shown, indent=2, ensure_ascii=False))
        return
    screen = Console(highlight=False)
    if not screen.is_terminal:
        screen.width = WIDE
    if screen.width < WIDE:
        columns = tuple(name for name in columns if name not in SPARED)
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, no_wrap=name != columns[-1], overflow="fold")
    for row in shown if isinstance(shown, list) else [shown]:
        table.add_row(*(_cell(row.get(name)) for name in columns))
    screen.print(table)


def _cell(value: Any) -> str:
    """A value in words: counts, ranges and numbers with their fate as people write them."""
    match value:
        case None:
            return ""
        case bool():
            return "sim" if value else "não"
        case dict() if "destino" in value:
            return f"{value['numero']} {value['destino']}"
        case dict() if "primeiro" in value:
            return (
                str(value["primeiro"])
                if value["primeiro"] == value["ultimo"]
                else f"{value['primeiro']}-{value['ultimo']}"
            )
        case dict():
            return ", ".join(f"{name} {count}" for name, count in value.items())
        case list():
            return ", ".join(map(_cell, value))
        case _:
            return str(value)


WIDE = 150
"""Columns from which everything is shown; what goes to a file or a pipe always has them."""
SPARED = ("origem", "protocolo", "nome", "organizacao", "primeiro_numero", "vencida")
"""What a narrow screen goes without; --json has it."""
DOCUMENT = ("id", "tipo", "serie", "numero", "estado", "origem", "protocolo", "motivo")


@group.command("emitir")
def emit(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="JSON files: one order or a list in each."),
    ],
    key: Annotated[str | None, typer.Option("--key", help="Idempotency key; repeating it is safe.")] = None,
    batch: Annotated[
        bool, typer.Option("--lote", help="All in one message: up to 50 NFSE_SP of one organisation.")
    ] = False,
    together: Annotated[bool, typer.Option("--transacao", help="With --lote: the city takes all or none.")] = False,
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Emit the orders of files, each once. Where they are several, the key gets the place: pedido-1.0, pedido-1.1, …

    Example: umavez fiscal emitir pedido.json --key pedido-1

    Example: umavez fiscal emitir --lote janeiro.json fevereiro.json --key servicos-1
    """
    from umavez_systems.fiscal import views  # noqa: PLC0415  # with the rest of the system

    if together and not batch:
        raise ConfigurationError("--transacao is about one message: give --lote too.")
    orders, many = _orders(files, many=batch)
    with opened(database, new=True) as system:
        if any(order.organizacao == "demo" for order in orders):
            system.demo(principal)
        made = _emitted(system, _called(orders, principal, key, many), batch, together, quiet=not many or as_json)
    shown = [views.documento(one.row, one.origem) for one in made]
    _show(shown if many else shown[0], as_json, DOCUMENT)
    if batch and not as_json:
        typer.echo(_told(shown))


def _orders(files: list[Path], *, many: bool) -> tuple[list[Any], bool]:
    """The orders of all files in turn, and whether they were given as several. Raises ConfigurationError."""
    read = [_orders_of(file) for file in files]
    return [order for orders, _ in read for order in orders], many or len(files) > 1 or read[0][1]


def _orders_of(file: Path) -> tuple[list[Any], bool]:
    from umavez_systems.fiscal.rules.orders import pedido_de  # noqa: PLC0415  # with the rest of the system
    from umavez_systems.money import exact_json  # noqa: PLC0415  # the same
    from umavez_systems.problems import Problem  # noqa: PLC0415  # the same

    try:
        found = exact_json(file.read_bytes())
        return [pedido_de(data) for data in (found if isinstance(found, list) else [found])], isinstance(found, list)
    except Problem as problem:
        raise ConfigurationError(f"{file}: {problem.detail}") from problem


def _called(orders: list[Any], principal: str, key: str | None, many: bool) -> list[Any]:
    """Each order with its caller; where they are several, the place of each stands in its key."""
    from umavez_systems.fiscal.cases import Caller  # noqa: PLC0415  # with the rest of the system

    keys = [key if key is None or not many else f"{key}.{place}" for place in range(len(orders))]
    return [(Caller(principal, own, principal), order) for own, order in zip(keys, orders, strict=True)]


def _emitted(system: Any, called: list[Any], batch: bool, together: bool, *, quiet: bool) -> list[Any]:
    from rich.progress import track  # noqa: PLC0415  # of use here only

    if batch:
        found: list[Any] = system.lotes.emitir(called, transacao=together)
        return found
    return [system.fiscal.emitir(*one) for one in track(called, "Emitindo", disable=quiet)]


def _told(shown: list[Any]) -> str:
    """What became of a batch, in one line."""
    states = [one["estado"] for one in shown]
    counted = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
    return f"{len(states)} documento(s) no lote: {counted}."


@group.command("documentos")
def documents(
    estado: Annotated[str | None, typer.Option(help="Only those in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 50,
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
    as_json: AsJson = False,
) -> None:
    """List documents, newest first."""
    from umavez_systems.fiscal import views  # noqa: PLC0415  # with the rest of the system
    from umavez_systems.fiscal.domain import Estado  # noqa: PLC0415  # the same

    if estado is not None and estado not in set(Estado):
        raise ConfigurationError(f"--estado is one of {', '.join(Estado)}.")
    with opened(database) as system:
        rows = system.fiscal.documentos(principal, organizacao=None, estado=estado, antes=None, limite=limit)
    _show([views.documento(row) for row in rows], as_json, DOCUMENT)


@group.command("conciliar")
def reconcile(
    number: Annotated[
        str | None, typer.Argument(metavar="ID", help="One document; without it, all that is due.")
    ] = None,
    always: Annotated[bool, typer.Option("--sempre", help="For ever; several may run at once.")] = False,
    every: Annotated[float, typer.Option(min=0.05, help="Seconds between two rounds.")] = 15.0,
    budget: Annotated[
        int, typer.Option("--orcamento", min=1, max=10_000, help="Questions and sends in a round.")
    ] = 100,
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Ask the authorities about what nobody knows, within the query budget, and send what they do not have.

    The right that is lost first goes first. With --sempre a failed round is tried again, and SIGTERM ends it.
    """
    from umavez_systems.fiscal import views  # noqa: PLC0415  # with the rest of the system
    from umavez_systems.fiscal.cases import Caller  # noqa: PLC0415  # the same
    from umavez_systems.fiscal.service import ate_sinal, servir  # noqa: PLC0415  # the same

    with opened(database) as system:
        if number is not None:
            found = system.fiscal.conciliar(Caller(principal), number)
            _show(views.documento(found.row, found.origem), as_json, DOCUMENT)
            return
        if not always:
            typer.echo(_moved(system.livros.varrer(budget)))
            return
        servir(system, ate_sinal(), every, lambda moved: typer.echo(_moved(moved)), budget)


def _moved(count: int) -> str:
    return f"{count} ato(s) movido(s)."


@group.command("cancelar")
def cancel(
    number: DocumentId,
    why: Annotated[str, typer.Option("--justificativa", help="15 to 255 characters.")],
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Cancel an authorised document; safe to repeat."""
    from umavez_systems.fiscal import views  # noqa: PLC0415  # with the rest of the system
    from umavez_systems.fiscal.cases import Caller  # noqa: PLC0415  # the same
    from umavez_systems.fiscal.rules.orders import justificativa_de  # noqa: PLC0415  # the same

    with opened(database) as system:
        row = system.fiscal.documento(principal, number)
        reason = justificativa_de({"justificativa": why})
        found = system.fiscal.cancelar(Caller(principal), number, reason, row["versao"])
    _show(views.documento(found.row, found.origem), as_json, DOCUMENT)


@group.command("corrigir")
def correct(
    number: DocumentId,
    text: Annotated[str, typer.Option("--texto", help="15 to 1000 characters.")],
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Send a correction letter (NF-e); the same text is the same letter."""
    from umavez_systems.fiscal import views  # noqa: PLC0415  # with the rest of the system
    from umavez_systems.fiscal.cases import Caller  # noqa: PLC0415  # the same
    from umavez_systems.fiscal.rules.orders import justificativa_de  # noqa: PLC0415  # the same

    with opened(database) as system:
        words = justificativa_de({"texto": text}, "texto", 1000)
        act, _ = system.fiscal.corrigir(Caller(principal), number, words)
    _show(views.ato(act), as_json, ("nome", "estado", "sequencia", "codigo", "motivo", "protocolo"))


@group.command("inutilizar")
def void(
    serie: Annotated[int, typer.Argument(metavar="SERIE", help="The series.")],
    first: Annotated[int, typer.Argument(metavar="PRIMEIRO")],
    last: Annotated[int, typer.Argument(metavar="ULTIMO")],
    why: Annotated[str, typer.Option("--justificativa", help="15 to 255 characters.")],
    kind: Annotated[str, typer.Option("--tipo", help="NFE or NFCE")] = "NFE",
    organisation: Annotated[str, typer.Option("--organizacao")] = "demo",
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Void numbers that were given and not used, once their absence is proven; safe to repeat."""
    from umavez_systems.fiscal import views  # noqa: PLC0415  # with the rest of the system
    from umavez_systems.fiscal.cases import Caller  # noqa: PLC0415  # the same
    from umavez_systems.fiscal.domain import Tipo  # noqa: PLC0415  # the same
    from umavez_systems.fiscal.rules.orders import justificativa_de  # noqa: PLC0415  # the same

    if kind not in ("NFE", "NFCE"):
        raise ConfigurationError("--tipo is NFE or NFCE.")
    with opened(database) as system:
        reason = justificativa_de({"justificativa": why})
        act, _ = system.livros.inutilizar(Caller(principal), organisation, Tipo(kind), serie, first, last, reason)
    _show(views.ato(act), as_json, ("nome", "estado", "primeiro", "ultimo", "codigo", "motivo", "protocolo"))


NUMBERS = ("organizacao", "modelo", "serie", "ultimo_numero", "fechada", "inutilizaveis", "abertos", "contagem")


@group.command("numeracao")
def numbering(database: DatabaseUrl = None, principal: Principal = LOCAL, as_json: AsJson = False) -> None:
    """Every series with the fate of its numbers, those still to be explained, and what may be voided."""
    from umavez_systems.fiscal import views  # noqa: PLC0415  # with the rest of the system

    with opened(database) as system:
        shown = [views.faixa(series) for series in system.livros.numeracao(principal)]
    _show(shown, as_json, NUMBERS)


@group.command("pendencias")
def pending(database: DatabaseUrl = None, principal: Principal = LOCAL, as_json: AsJson = False) -> None:
    """What is open, the right that is lost first in front."""
    from umavez_systems.fiscal import views  # noqa: PLC0415  # with the rest of the system

    with opened(database) as system:
        found, now = system.livros.pendencias(principal)
    shown = [views.pendencia(one, now) for one in found]
    _show(shown, as_json, ("documento", "vence_em", "direito", "vencida", "acao"))


proving = typer.Typer(no_args_is_help=True, help="The proof of a document: export it, check it offline.")
group.add_typer(proving, name="prova")


@proving.command("exportar")
def export(
    number: DocumentId,
    to: Annotated[Path | None, typer.Option("--para", help="A file; standard output without it.")] = None,
    database: DatabaseUrl = None,
    principal: Principal = LOCAL,
) -> None:
    """Write a document's proof as JSON, for an auditor."""
    with opened(database) as system:
        text = json.dumps(system.livros.prova(principal, number), indent=2, ensure_ascii=False)
    if to is None:
        typer.echo(text)
    else:
        to.write_text(text, encoding="utf-8")


@proving.command("verificar")
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="An exported proof.")],
) -> None:
    """Check an exported proof offline: nothing changed, nothing missing, nothing moved."""
    from umavez import BoundedJson  # noqa: PLC0415  # of use here only
    from umavez_systems.fiscal.rules.proof import Entrada, falhas  # noqa: PLC0415  # needs no database

    try:
        data = BoundedJson(size=PROOF_BYTES).parse(file.read_bytes())
        entries = [Entrada(**entry) for entry in data["entradas"]]
        found = falhas(entries, data["cabeca"])
    except (ValueError, KeyError, TypeError):
        raise ConfigurationError(f"{file} is no proof; make one with: umavez fiscal prova exportar ID.") from None
    for fault in found:
        typer.echo(fault)
    if found:
        raise typer.Exit(1)
    typer.echo(f"A prova está inteira: {len(entries)} entradas, cabeça {data['cabeca'][:16]}.")


@group.command("simular")
def simulate(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The services, over TLS; 0: any free port.")] = 0,
    control_port: Annotated[int, typer.Option(min=0, max=65_535, help="The control API, plain HTTP on loopback.")] = 0,
    state: Annotated[Path, typer.Option("--state", help="Folder for books and certificates.")] = Path("umavez-fiscal"),
    seed: Annotated[int, typer.Option(help="Repeats the faults that come by chance.")] = 1,
) -> None:
    """Run the simulated authorities until stopped; the first line says where they are.

    Example: umavez fiscal simular --port 8443 --control-port 8444 --state umavez-fiscal
    """
    from umavez_systems.fiscal.simulador.__main__ import main  # noqa: PLC0415  # of use to this command only

    main(["--port", str(port), "--control-port", str(control_port), "--state", str(state), "--seed", str(seed)])


@group.command("certificado-demo")
def demo_certificate(
    to: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the PKCS#12.")],
    cnpj: Annotated[str, typer.Option(help="Whose it is.")] = "11222333000181",
    password: Annotated[str, typer.Option("--senha")] = "demonstracao",  # noqa: S107  # opens nothing of worth
    state: Annotated[Path, typer.Option("--state", help="The simulator's folder.")] = Path("umavez-fiscal"),
) -> None:
    """Make a certificate that the simulator accepts, and nobody else."""
    from umavez_systems.fiscal.rules.identifiers import cnpj_limpo  # noqa: PLC0415  # with the rest of the system
    from umavez_systems.fiscal.simulador.certificates import Cartorio  # noqa: PLC0415  # the same
    from umavez_systems.problems import Problem  # noqa: PLC0415  # the same

    try:
        clean = cnpj_limpo(cnpj)
    except Problem as problem:
        raise ConfigurationError(problem.detail) from problem
    to.write_bytes(Cartorio(state / "certificados").a1(clean, "Demonstracao", password))
    to.chmod(0o600)
    typer.echo(f"{to}: certificado de {clean}, senha {password!r}; vale só para o simulador em {state}.")
