"""The statements about minutes of the MariaDB store. No I/O here."""

from __future__ import annotations

import json
from collections.abc import Sequence

from umavez.core.record import Millis
from umavez.core.telling.minutes import KEPT, Tally, flat
from umavez.stores.mariadb.statements import Statement, Texts
from umavez.stores.texts import statement

MINDS = Statement(
    "SELECT count(*) FROM information_schema.tables WHERE table_schema = database() AND table_name = 'umavez_minutes'"
)
"""Whether numbers can be kept here: their table may not be there yet."""

TALLY = statement("mariadb", "tally")


def tallying(texts: Texts, process: str, span: Millis, tallies: Sequence[Tally]) -> list[Statement]:
    """Put what `process` has counted in the place of what it had, and forget what is old."""
    kept = [Statement(TALLY, (span, process, json.dumps(flat(tallies))))] if tallies else []
    return [*kept, Statement(texts.forget_minutes, (span, KEPT[span]))]


def looking(texts: Texts, span: Millis, newer_than: Millis, operation: str | None, limit: int) -> Statement:
    """What all processes have counted."""
    return Statement(texts.tallied, (span, newer_than, operation, operation, limit))
