"""Outcomes that somebody decided on, in the stored form; refused where a repeat could not be answered with them."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from umavez.core.encoding.codec import Codec, JsonCodec
from umavez.core.key import Key
from umavez.errors import ConfigurationError, NotStorable
from umavez.http.contract import answer as http

MAX_BODY = 1_000_000
"""Longest outcome in bytes: what an operation keeps unless it is declared otherwise, and nobody here can ask it."""


def result_text(text: str, key: Key) -> str:
    """What `--happened` says. Raises ConfigurationError when a replay could not read it."""
    try:
        value = json.loads(_given(text))
        compact = _compact(value)
        compact.encode()  # half of a surrogate pair is refused here, not by the store
        _read_back(compact, key)
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise ConfigurationError(
            "--happened is not JSON in the form that `show --result` prints; quote text twice, as in '\"ok\"'."
        ) from error
    if http.is_request(key.operation):
        try:
            http.check(value)
        except NotStorable as error:
            raise ConfigurationError(
                f"{key.operation} is an HTTP request, so its outcome is a response; "
                "say it with --status 201 --body '{…}' instead of --happened."
            ) from error
    return compact


def response_text(status: int, body: str, headers: list[str], key: Key) -> str:
    """What `--status`, `--body` and `--header` say. Raises ConfigurationError when it is no response."""
    if not http.is_request(key.operation):
        raise ConfigurationError(f"{key.operation} is no HTTP request (METHOD /path); say its result with --happened.")
    try:
        return _compact(http.answer_by_decision(status, _given(body), headers))
    except NotStorable as error:
        raise ConfigurationError(str(error)) from error


def _read_back(text: str, key: Key) -> None:
    """Raises ValueError where a tag of `text` holds what its type cannot be made of."""
    try:
        JsonCodec().decode(text, key)
    except NotStorable as error:
        # Without a cause it names a class that is not loaded here, which says nothing against the text.
        if error.__cause__ is not None:
            raise ValueError(str(error)) from error


def _given(text: str) -> str:
    return sys.stdin.read(MAX_BODY + 1) if text == "-" else text


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


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
        from umavez.encryption import SealedCodec  # noqa: PLC0415  # needs umavez[seal], only where keys are set
    except ModuleNotFoundError as missing:
        raise ConfigurationError("UMAVEZ_SEAL_KEYS is set; run: pip install 'umavez[seal]'.") from missing
    return SealedCodec.from_environment(codec)
