"""What Redis keeps beside the records. Events: a list for each key, a JSON array for each. Processes: one hash.

Minutes: a hash for each span that began, with a field for each name and process; and a sorted set of which there are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from umavez.core.record import Instant, Millis
from umavez.core.telling.events import EventDraft, PastEvent, Process
from umavez.core.telling.minutes import KEPT, Tally, flat, tally_of

Words = tuple[str | bytes | int, ...]
_at = itemgetter(0)


def rest_of(event: EventDraft, attempt: int, holder: str) -> bytes:
    """What stands in an event's array behind its time and its fence, which the script puts before it."""
    return json.dumps([event.kind, attempt, holder, event.detail, event.trace])[1:].encode()


def event_of(value: bytes) -> PastEvent:
    """The event in `value`."""
    at, fence, kind, attempt, holder, detail, trace = json.loads(value)
    return PastEvent(at, kind, attempt, fence, holder, detail, trace)


def head_of(process: Process) -> bytes:
    """A process as JSON, up to the times that the script puts behind it."""
    return json.dumps([*process[:5], 0])[:-1].encode()


def processes_of(values: list[Any]) -> list[Process]:
    """The processes in `values`; None where one was forgotten meanwhile."""
    return [Process(*json.loads(value)) for value in values if value is not None]


def tallying(prefix: str, process: str, span: Millis, tallies: Sequence[Tally]) -> list[Words]:
    """The commands that put what `process` has counted in the place of what it had."""
    commands: list[Words] = []
    for at, rows in groupby(sorted(flat(tallies), key=_at), key=_at):
        name = _minutes(prefix, span, at)
        fields = [word for row in rows for word in (json.dumps([*row[1:3], process]), json.dumps(row[3:]))]
        commands.append(("HSET", name, *fields))
        commands.append(("PEXPIRE", name, KEPT[span] + span))
        commands.append(("ZADD", _minutes(prefix, span), at, at))
    return commands


def forgetting(prefix: str, span: Millis, now: Instant) -> Words:
    """The command that forgets when old spans began; what was counted in them goes by itself."""
    return "ZREMRANGEBYSCORE", _minutes(prefix, span), "-inf", f"({now - KEPT[span]}"


def listing(prefix: str, span: Millis, since: Instant) -> Words:
    """The command that tells when the spans began that were counted in."""
    return "ZRANGE", _minutes(prefix, span), since, "+inf", "BYSCORE"


def reading(prefix: str, span: Millis, at: bytes) -> Words:
    """The command that tells what was counted in one of them."""
    return "HGETALL", _minutes(prefix, span, int(at))


def tallies_of(at: bytes, reply: list[Any], operation: str | None) -> list[Tally]:
    """The answer to `reading`, process by process."""
    rows = [(*json.loads(name)[:2], *json.loads(value)) for name, value in zip(reply[::2], reply[1::2], strict=True)]
    return [tally_of((int(at), *row)) for row in rows if operation in (None, row[0])]


def _minutes(prefix: str, span: Millis, at: Any = None) -> str:
    return f"{prefix}:minutes:{span}" if at is None else f"{prefix}:minutes:{span}:{at}"
