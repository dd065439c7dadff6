"""`umavez records resolve|release|sweep`: change records by decision."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from umavez.cli.durations import seconds
from umavez.cli.options import AsJson, OlderThan, StoreUrl, named, opened
from umavez.cli.records import KeyValue, OperationName, Scope, group
from umavez.core.codec import Codec, JsonCodec
from umavez.core.key import Key
from umavez.core.policy import Answer, Happened, NotHappened
from umavez.core.resolution import AlreadySettled
from umavez.errors import ConfigurationError, NotStorable, UmavezError
from umavez.once import Once
from umavez.stores import Store

By = Annotated[str, typer.Option("--by", metavar="NAME", help="Who decides; kept as evidence.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept as evidence.")]
Override = Annotated[bool, typer.Option("--override", help="Also when the record has an outcome already.")]


def add(app: typer.Typer) -> None:  # noqa: ARG001 -- every group is added the same way; these join `records`
    """Put the commands on the records group."""
    group.command("resolve")(resolve)
    group.command("release")(release)
    group.command("sweep")(sweep)


def resolve(
    scope: Scope,
    operation: OperationName,
    key: KeyValue,
    by: By,
    reason: Reason,
    happened: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="It happened; this is its result, as `show --result` prints it. - reads standard input.",
        ),
    ] = None,
    not_happened: Annotated[bool, typer.Option("--not-happened", help="It did not: free its key.")] = False,
    override: Override = False,
    keep: Annotated[
        float,
        typer.Option(
            metavar="DURATION",
            parser=seconds,
            help="How long the outcome is replayed; at least the operation's own keep=.",
        ),
    ] = "30d",  # type: ignore[assignment]  # typer parses a default like any text, and the help shows it
    store: StoreUrl = None,
) -> None:
    """Say how an operation ended that nobody knows the outcome of.

    \b
    Examples:
      umavez records resolve loja charge order-42 --happened '{"id": 7}' \\
          --by ana --reason "on the bank statement"
      umavez records resolve loja charge order-42 --not-happened \\
          --by ana --reason "the bank has nothing"
    """
    if (happened is None) is not not_happened:
        raise ConfigurationError("Pass either --happened JSON or --not-happened.")
    name = Key(scope, operation, key)
    answer = NotHappened() if happened is None else Happened(_checked(happened, name))
    _decide(named(store), name, answer, by, reason, override=override, keep=keep)
    print(f"{name} is recorded as {'not happened; its key is free' if not_happened else 'happened'}.")


def release(
    scope: Scope,
    operation: OperationName,
    key: KeyValue,
    by: By,
    reason: Reason,
    override: Override = False,
    store: StoreUrl = None,
) -> None:
    """Free a key, so that its operation may run again.

    \b
    Example:
      umavez records release loja charge order-42 --by ana --reason "the card was replaced"
    """
    name = Key(scope, operation, key)
    _decide(named(store), name, NotHappened(), by, reason, override=override)
    print(f"{name} is free to run again.")


def _decide(url: str, key: Key, answer: Answer, by: str, reason: str, *, override: bool, keep: float = 86400.0) -> None:
    refuse_unsigned(by, reason)
    with Once(url, scope=key.scope, codec=sealed(AsWritten())) as once:
        # Declared here because nobody can ask the application how long it keeps this operation's outcomes.
        once.plans.declared(key.operation, {"unknown": "hold", "keep": keep})
        try:
            once.resolve(key.operation, key.value, answer, by=by, reason=reason, override=override)
        except AlreadySettled as settled:
            raise UmavezError(f"{key} is settled already; pass --override to change it.") from settled


def refuse_unsigned(by: str, reason: str) -> None:
    """Raise ConfigurationError for a decision that does not say who takes it and why."""
    if not by.strip() or not reason.strip():
        raise ConfigurationError("--by and --reason must not be empty; both are kept as evidence.")


class AsWritten:
    """A codec for text that is JSON in the stored form already.

    A result may name a dataclass of the application, which is not loaded here; its text can be kept all the same.
    """

    def encode(self, value: Any, key: Key) -> str:
        """`value`, which is the text itself."""
        return str(value)

    def decode(self, text: str, key: Key) -> Any:
        """The text itself."""
        return text


def sealed(codec: Codec) -> Codec:
    """`codec`, sealed where the application seals: what is kept from here is as private as any other outcome."""
    if not os.environ.get("UMAVEZ_SEAL_KEYS"):
        return codec
    try:
        from umavez.seal import SealedCodec  # noqa: PLC0415  # needs umavez[seal], only where keys are set
    except ModuleNotFoundError as missing:
        raise ConfigurationError("UMAVEZ_SEAL_KEYS is set; run: pip install 'umavez[seal]'.") from missing
    return SealedCodec.from_environment(codec)


def _checked(text: str, key: Key) -> str:
    """`text` in the stored form. Raises ConfigurationError when a replay could not read it."""
    try:
        value = json.loads(sys.stdin.read() if text == "-" else text)
        compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        # NotStorable names a class that is not loaded here, which says nothing against the text.
        with suppress(NotStorable):
            JsonCodec().decode(compact, key)
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise ConfigurationError(
            "--happened is not JSON in the form that `show --result` prints; quote text twice, as in '\"ok\"'."
        ) from error
    return compact


def sweep(
    older_than: OlderThan = None,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="How many per transaction.")] = 1000,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many; without it, all of them.")] = None,
    as_json: AsJson = False,
    store: StoreUrl = None,
) -> None:
    """Delete expired records. What runs or is unknown stays, and so do outcomes that are still replayed.

    \b
    Examples:
      umavez records sweep
      umavez records sweep --older-than 7d --batch 500 --limit 100000
    """
    with opened(store) as records:
        swept = _swept(records, int((older_than or 0) * 1000), batch, limit)
    if as_json:
        print(json.dumps({"swept": swept}))
    else:
        print(f"{swept:,} expired {'record' if swept == 1 else 'records'} deleted.")


def _swept(records: Store, older_than: int, batch: int, limit: int | None) -> int:
    swept = 0
    with _progress() as progress:
        task = progress.add_task("Sweeping", total=limit)
        while limit is None or swept < limit:
            size = batch if limit is None else min(batch, limit - swept)
            gone = records.sweep(size, older_than)
            swept += gone
            progress.update(task, completed=swept)
            if gone < size:
                break
    return swept


def _progress() -> Progress:
    """A bar on stderr that leaves nothing behind, and nothing at all where stderr is not a terminal."""
    console = Console(stderr=True)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} deleted"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
