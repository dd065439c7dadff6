"""What may be said about an operation, typed: a misspelt option is an error in the editor, and a clear one later."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypedDict

from umavez.core.encoding.codec import Codec
from umavez.core.policy import Exceptions, Mismatch, Unknown

Seconds = float | timedelta


class _Common(TypedDict, total=False):
    lease: Seconds
    keep: Seconds
    max_retries: int
    max_body: int
    heartbeat: bool
    patience: Seconds
    four_eyes: bool
    final: Exceptions
    free: Exceptions
    mismatch: Mismatch
    codec: Codec
    replay: Callable[[Any], Any]
    reference: Callable[[Any], Any]


class JoinedOptions(_Common, total=False):
    """Options of a joined block, which has a `wait` of its own."""

    unknown: Unknown


class Options(JoinedOptions, total=False):
    """Options of a call. Without any, those declared under the operation's name hold. See Policy for each."""

    wait: Seconds


class _Waiting(_Common, total=False):
    wait: Seconds


class Declaration(_Waiting):
    """Options of a declaration, which must say what an unknown outcome means."""

    unknown: Unknown
