"""`umavez tokens list|show|cancel`: confirmation tokens by purpose or owner. Tokens themselves are stored nowhere."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from umavez._sync.attempt import drive
from umavez.cli.decisions import By, Reason, refuse_unsigned
from umavez.cli.options import AsJson, StoreUrl, open_to_change, open_to_look
from umavez.cli.paging import After, Limit, NewestFirst, select
from umavez.cli.records.outcome import sealed
from umavez.cli.screen.timeline import past_of
from umavez.cli.tokens import view as tokens_view
from umavez.core import token as flows
from umavez.core.encoding.codec import JsonCodec
from umavez.core.encoding.refusal import written
from umavez.core.flow import Seen
from umavez.core.key import Key
from umavez.core.record import Instant, Query, Record, Settled
from umavez.core.resolution import NoSuchRecord
from umavez.core.token import TokenState
from umavez.core.token_errors import TokenCancelled, TokenExpired, TokenUsed
from umavez.core.token_view import KEEP
from umavez.engine.stamps import STAMPS
from umavez.errors import ConfigurationError, UmavezError
from umavez.stores import Store

group = typer.Typer(no_args_is_help=True, help="List, show and cancel confirmation tokens.")

Issuer = Annotated[str, typer.Argument(metavar="SCOPE", help="Who issued it: the scope of the engine.")]
Purpose = Annotated[str, typer.Argument(metavar="PURPOSE", help="What it confirms.")]
Digest = Annotated[str, typer.Argument(metavar="DIGEST", help="Which one, as the list has it. Never type the token.")]


def add(app: typer.Typer) -> None:
    """Put the group on `app`."""
    app.add_typer(group, name="tokens")
    group.command("list")(list_tokens)
    group.command("show")(show_token)
    group.command("cancel")(cancel)


def list_tokens(
    store: StoreUrl = None,
    purpose: Annotated[str | None, typer.Option(help="Only for this purpose.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only of this owner.")] = None,
    scope: Annotated[str | None, typer.Option(help="Only issued by this scope.")] = None,
    state: Annotated[TokenState | None, typer.Option(case_sensitive=False, help="Only in this state.")] = None,
    limit: Limit = 100,
    after: After = None,
    newest_first: NewestFirst = True,
    as_json: AsJson = False,
) -> None:
    """List the tokens for a purpose, of an owner, or both, newest first. Payloads are never part of the list.

    \b
    Examples:
      umavez tokens list --purpose confirm_ride --state unused
      umavez tokens list --owner passenger-7 --json
    """
    if purpose is None and owner is None:
        raise ConfigurationError("Say which tokens to list: pass --purpose, --owner or both.")

    def wanted(record: Record, now: Instant) -> bool:
        found = tokens_view.state_of(record, now)
        return found is not None and state in (None, found)

    with open_to_look(store) as records:
        query = Query(scope, purpose, process_instance=owner, limit=limit, after=after, newest_first=newest_first)
        found = select(records, query, wanted)
    if as_json:
        tokens = [tokens_view.brief(record, found.now) for record in found.records]
        print(json.dumps({"tokens": tokens, "more": found.next is not None, "next": found.next}, indent=2))
    else:
        tokens_view.print_list(found)


def show_token(
    scope: Issuer,
    purpose: Purpose,
    digest: Digest,
    store: StoreUrl = None,
    payload: Annotated[bool, typer.Option("--payload", help="Also the payload, which may hold personal data.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one token, with what was decided about it.

    What its use created stands in its record: umavez records show SCOPE PURPOSE DIGEST --result.

    \b
    Examples:
      umavez tokens show rides confirm_ride 9f86d081…
      umavez tokens show rides confirm_ride 9f86d081… --payload --json
    """
    with open_to_look(store) as records:
        record, now = _standing(records, Key(scope, purpose, digest))
        past = past_of(records, record.key)
    if as_json:
        print(json.dumps(tokens_view.full(record, now, payload=payload), indent=2))
    else:
        tokens_view.print_token(record, now, past, payload=payload)


def cancel(scope: Issuer, purpose: Purpose, digest: Digest, by: By, reason: Reason, store: StoreUrl = None) -> None:
    """Close an unused token, so that it can no longer be redeemed.

    \b
    Example:
      umavez tokens cancel rides confirm_ride 9f86d081… \\
          --by ana --reason "the phone was stolen"
    """
    refuse_unsigned(by, reason)
    key = Key(scope, purpose, digest)
    with open_to_change(store) as records:
        done = _cancel(records, key, by, reason)
    print(f"{key} is {'cancelled' if done else 'cancelled already; nothing was changed'}.")


def _cancel(records: Store, key: Key, by: str, reason: str) -> bool:
    record, _ = _standing(records, key)
    # As the application itself would keep it: whoever comes with the token is told that it was cancelled.
    refusal = Settled(False, written(TokenCancelled(), sealed(JsonCodec()), key))
    owner = record.process_instance or ""
    try:
        return drive(flows.cancel(key, owner, refusal, int(KEEP * 1000), (by, reason), STAMPS.owner()), records)
    except TokenUsed as used:
        raise UmavezError(f"{key} was used already; what it did cannot be cancelled with it.") from used
    except TokenExpired as expired:
        raise UmavezError(f"{key} has expired already; there is nothing to cancel.") from expired


def _standing(records: Store, key: Key) -> tuple[Record, Instant]:
    """The token's record and the store's time. Raises NoSuchRecord, also for a record that is no token's."""
    seen: Seen = records.read(key)
    if seen.current is None or tokens_view.state_of(seen.current, seen.now) is None:
        raise NoSuchRecord(key)
    return seen.current, seen.now
