"""Law: the type of a law, and its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from umavez.testing.harness import AnyBench

Law = Callable[[AnyBench], None]


def name(law: Any) -> str:
    """The law as a sentence of its identifier, for test names and reports."""
    return str(law.__name__)


def outcome_of(verdicts: list[Any], kind: type) -> list[Any]:
    """Those of `verdicts` that are of `kind`."""
    return [verdict for verdict in verdicts if isinstance(verdict, kind)]
