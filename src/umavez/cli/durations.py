"""Durations and instants as people write and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import typer

from umavez.core.record import Instant, Millis

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_WRITTEN = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*([smhd])")
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 366 * 86_400.0


def seconds(text: str | float) -> float:
    """The seconds in `90s`, `15m`, `2h` or `3d`. A number without a unit is refused: its unit would be guessed."""
    if isinstance(text, float):
        return text
    written = _WRITTEN.fullmatch(text.strip().lower())
    if written is None:
        raise typer.BadParameter(f"{text!r} is not a duration; write a number and s, m, h or d, such as 90s or 3d.")
    return float(written[1]) * _UNITS[written[2]]


def pause(text: str) -> float:
    """The seconds between two rounds. Raises BadParameter for none, and for one that no clock can wait for."""
    length = seconds(text)
    if not SHORTEST_PAUSE <= length <= LONGEST_PAUSE:
        raise typer.BadParameter(f"{text!r} is no pause between two rounds; write one from 0.05s to 366d.")
    return length


def human(duration: Millis) -> str:
    """A duration in one unit that people count in."""
    whole = max(duration, 0) // 1000
    if whole < 120:
        return f"{whole} s"
    if whole < 2 * 3600:
        return f"{round(whole / 60)} min"
    if whole < 2 * 86400:
        return f"{round(whole / 3600)} h"
    return f"{round(whole / 86400)} d"


def written(instant: Instant | None) -> str | None:
    """An instant as ISO 8601 in UTC, to the millisecond."""
    if instant is None:
        return None
    moment = datetime.fromtimestamp(instant // 1000, UTC).replace(microsecond=instant % 1000 * 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
