"""`umavez records resolve|release`: change records by decision."""

from __future__ import annotations

from typing import Annotated

import typer

from umavez._sync.once import Once
from umavez.cli.decisions import By, Reason, refuse_alone, refuse_unsigned, release_key
from umavez.cli.durations import seconds
from umavez.cli.options import StoreUrl, existing_url
from umavez.cli.records.bulk import Before, Count, Wanted, Where, decide_all
from umavez.cli.records.command import group
from umavez.cli.records.outcome import MAX_BODY, AsWritten, response_text, result_text, sealed
from umavez.console.orders.choosing import FREE, HAPPENED
from umavez.core.key import Key
from umavez.core.policy import Answer, Happened, NotHappened
from umavez.core.resolution import AlreadySettled
from umavez.errors import ConfigurationError, NotStorable, UmavezError

Scope = Annotated[str | None, typer.Argument(metavar="SCOPE", help="Whose operation it is.")]
OperationName = Annotated[str | None, typer.Argument(metavar="OPERATION", help="What the operation is called.")]
KeyValue = Annotated[
    str | None, typer.Argument(metavar="KEY", help="Which one. Write -- before a key that begins with -.")
]
Forgotten = Annotated[
    bool, typer.Option("--forgotten", help="Also when there is no record: the database was restored to before it.")
]
Override = Annotated[bool, typer.Option("--override", help="Also when the record has an outcome already.")]


def add(app: typer.Typer) -> None:  # noqa: ARG001 -- every group is added the same way; these join `records`
    """Put the commands on the records group."""
    group.command("resolve")(resolve)
    group.command("release")(release)


def resolve(
    by: By,
    reason: Reason,
    scope: Scope = None,
    operation: OperationName = None,
    key: KeyValue = None,
    happened: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="It happened; this is its result, as `show --result` prints it. - reads standard input.",
        ),
    ] = None,
    status: Annotated[
        int | None,
        typer.Option(metavar="CODE", help="It happened, and was an HTTP request: the status of its response."),
    ] = None,
    body: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="With --status: the body of the response. - reads standard input."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="'NAME: VALUE'", help="With --status: a header of the response; may be repeated."),
    ] = None,
    not_happened: Annotated[bool, typer.Option("--not-happened", help="It did not: free its key.")] = False,
    where: Where = None,
    count: Count = None,
    before: Before = None,
    override: Override = False,
    forgotten: Forgotten = False,
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
      umavez records resolve loja/ana "POST /orders" k-1 --status 201 --body '{"id": 7}' \\
          --header "location: /orders/7" --by ana --reason "order 7 is there"
      umavez records resolve --where "status:unknown op:charge error:Timeout" --not-happened \\
          --by ana --reason "the bank has none of them"
      umavez records resolve loja charge order-42 --happened '{"id": 7}' --forgotten \\
          --by ana --reason "restored to 14:00; on the bank statement of 14:05"
    """
    if (happened is not None) + (status is not None) + not_happened != 1:
        raise ConfigurationError("Pass either --happened JSON, --status CODE for an HTTP request, or --not-happened.")
    if status is None and (body is not None or header):
        raise ConfigurationError("--body and --header belong to a response; pass its --status too.")
    if forgotten and not_happened:
        raise ConfigurationError("What is not recorded and did not happen needs no decision; leave --forgotten out.")
    if where is not None:
        _refuse_named(scope, override=override or forgotten)
        said = {"result": happened or "", "body": body or "", "headers": "\n".join(header or [])}
        said |= {} if status is None else {"status": str(status)}
        action = FREE if not_happened else HAPPENED
        decide_all(existing_url(store), Wanted(where, count, before, action, by, reason, said))
        return
    name = _named(scope, operation, key)
    answer: Answer = NotHappened()
    if happened is not None:
        answer = Happened(result_text(happened, name))
    elif status is not None:
        answer = Happened(response_text(status, body or "", header or [], name))
    _decide(existing_url(store), name, answer, by, reason, override=override, forgotten=forgotten, keep=keep)
    print(f"{name} is recorded as {'not happened; its key is free' if not_happened else 'happened'}.")


def release(
    by: By,
    reason: Reason,
    scope: Scope = None,
    operation: OperationName = None,
    key: KeyValue = None,
    where: Where = None,
    count: Count = None,
    before: Before = None,
    override: Override = False,
    store: StoreUrl = None,
) -> None:
    """Free a key, so that the next who asks runs its operation.

    \b
    Examples:
      umavez records release loja charge order-42 --by ana --reason "the card was replaced"
      umavez records release --where "status:failed op:charge age:<1d" --by ana --reason "the bank is back"
    """
    if where is not None:
        _refuse_named(scope, override=override)
        decide_all(existing_url(store), Wanted(where, count, before, FREE, by, reason))
        return
    name = _named(scope, operation, key)
    with Once(existing_url(store), scope=name.scope) as once:
        release_key(once, name, by, reason, override=override)
    print(f"{name} is free to run again.")


def _named(scope: str | None, operation: str | None, key: str | None) -> Key:
    """The key that the words name. Raises ConfigurationError unless all three do."""
    if scope is None or operation is None or key is None:
        raise ConfigurationError("Name one record by SCOPE OPERATION KEY, or many by --where SEARCH.")
    return Key(scope, operation, key)


def _refuse_named(scope: str | None, *, override: bool) -> None:
    if scope is not None or override:
        raise ConfigurationError("--where stands alone: no record is named beside it, and nothing is overridden.")


def _decide(
    url: str, key: Key, answer: Answer, by: str, reason: str, *, override: bool, forgotten: bool, keep: float
) -> None:
    refuse_unsigned(by, reason)
    with Once(url, scope=key.scope, codec=sealed(AsWritten())) as once:
        refuse_alone(once, key)
        # Declared here because nobody can ask the application how long it keeps this operation's outcomes.
        once.plans.declared(key.operation, {"unknown": "hold", "keep": keep, "max_body": MAX_BODY})
        try:
            once.resolve(
                *(key.operation, key.value, answer), by=by, reason=reason, override=override, forgotten=forgotten
            )
        except NotStorable as error:
            raise ConfigurationError(str(error)) from error
        except AlreadySettled as settled:
            raise UmavezError(f"{key} is settled already; pass --override to change it.") from settled
