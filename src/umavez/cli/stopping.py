"""Stopping: how commands end that go on until they are stopped.

One rule for all of them: SIGTERM and Ctrl-C end them with 0, for that is how they are meant to end; what keeps one from
beginning, as a port that is taken, is a setting to correct: 2.
"""

from __future__ import annotations

import errno
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NoReturn, TypeVar

import typer

from umavez.errors import ConfigurationError

F = TypeVar("F", bound=Callable[..., Any])
SIGNALS = (signal.SIGTERM, signal.SIGINT)
UNLISTENABLE = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)
"""What is wrong with a port, where an error names no file: it is taken, not of this machine, or below 1024."""
MARK = "__goes_on_until_stopped__"


class Stopped(KeyboardInterrupt):
    """Somebody asked for the end; whatever takes Ctrl-C for that takes this, too."""


def until_stopped(command: F, unless: str = "") -> F:
    """`command`, ended with 0 by SIGTERM and Ctrl-C, from its first line on; but not where it is told `unless`.

    What it installs for these signals itself goes before: then it ends as it sees fit, and at once only until then.
    """

    @wraps(command)
    def guarded(*args: Any, **options: Any) -> Any:
        if options.get(unless) or threading.current_thread() is not threading.main_thread():
            return command(*args, **options)
        before = {number: signal.getsignal(number) for number in SIGNALS}
        try:
            # Within: the first of them may be asked for before the second stands.
            for number in SIGNALS:
                signal.signal(number, _stop)
            with _told_what_keeps_it():
                return command(*args, **options)
        except KeyboardInterrupt:
            return None
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    setattr(guarded, MARK, True)
    return guarded  # type: ignore[return-value]  # wraps keeps the signature


@contextmanager
def _told_what_keeps_it() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in UNLISTENABLE or error.filename is not None:
            raise
        raise ConfigurationError(f"The port cannot be listened on ({error.strerror}); name another.") from error
    except SystemExit as ended:
        if not isinstance(ended.code, str):
            raise
        # What a simulator says that cannot begin.
        print(ended.code, file=sys.stderr)
        raise typer.Exit(2) from None


def _stop(_number: int, _frame: Any) -> NoReturn:
    raise Stopped


def mark_lasting(group: typer.Typer, names: Collection[str | None], unless: str = "") -> None:
    """Let these commands of `group` end as `until_stopped` says."""
    for command in group.registered_commands:
        if command.name in names and command.callback is not None:
            command.callback = until_stopped(command.callback, unless)
