"""What every command asks for that changes something by a person's decision: who takes it, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from umavez._sync.once import Once
from umavez.core.key import Key
from umavez.core.lease import KEEP
from umavez.core.resolution import AlreadySettled
from umavez.errors import ConfigurationError, UmavezError

By = Annotated[str, typer.Option("--by", metavar="NAME", help="Who decides; kept as evidence.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept as evidence.")]


def refuse_unsigned(by: str, reason: str) -> None:
    """Raise ConfigurationError for a decision that does not say who takes it and why."""
    if not by.strip() or not reason.strip():
        raise ConfigurationError("--by and --reason must not be empty; both are kept as evidence.")


def refuse_alone(once: Once, key: Key) -> None:
    """Raise UmavezError for a record that two people decide about: nobody knows here who types a name."""
    record = once.store.read(key).current
    if record is not None and record.takes_two:
        raise UmavezError(
            f"{key} is decided by two people (four_eyes); nothing was done. Open it in the console: one proposes "
            "there, and another who is signed in agrees within 15 minutes."
        )


def release_key(once: Once, key: Key, by: str, reason: str, *, override: bool = False) -> None:
    """Free what stands under `key`, so that whoever asks next gets it: an operation's turn to run, or a lease.

    Raises NoSuchRecord, OperationInProgress while somebody holds it, and UmavezError for what is settled.
    """
    refuse_unsigned(by, reason)
    refuse_alone(once, key)
    # Declared here because nobody can ask the application how long it keeps what is free.
    once.plans.declared(key.operation, {"unknown": "hold", "keep": KEEP})
    try:
        once.release(key.operation, key.value, by=by, reason=reason, override=override)
    except AlreadySettled as settled:
        raise UmavezError(f"{key} is settled already; pass --override to change it.") from settled
