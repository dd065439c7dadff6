"""Live: the progress of a mailing as server-sent events, from the database, so that nothing is lost on a restart."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from umavez_systems.mailing.domain import ENDED, Status
from umavez_systems.problems import Problem

LOOK_SECONDS = 0.5
QUIET_SECONDS = 15.0
MOST = 200
"""Streams that one process keeps open."""
LONGEST_SECONDS = 3600.0
"""For how long one stream is kept open; whoever still follows, as a page does, opens the next."""


class Watchers:
    """Who follows mailings in this process."""

    def __init__(self) -> None:
        self._open = 0

    def refuse_crowd(self) -> None:
        """Raise a 503 problem when too many follow already."""
        if self._open >= MOST:
            detail = "Tente de novo em instantes, ou leia o mailing sem acompanhá-lo."
            raise Problem(503, "ocupado", "Muitos acompanhando", detail)

    async def follow(
        self, look: Callable[[], Awaitable[dict[str, Any]]], gone: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[str]:
        """An event whenever what `look` shows has changed, until the mailing ends or its reader leaves."""
        told, quiet = "", 0.0
        until = time.monotonic() + LONGEST_SECONDS
        self._open += 1
        try:
            while time.monotonic() < until and not await gone():
                shown = await look()
                text = json.dumps(shown, ensure_ascii=False)
                if text != told:
                    told, quiet = text, 0.0
                    yield f"event: progresso\ndata: {text}\n\n"
                elif quiet >= QUIET_SECONDS:
                    quiet = 0.0
                    yield ": ainda aqui\n\n"
                if Status(shown["status"]) in ENDED:
                    yield "event: fim\ndata: {}\n\n"
                    return
                await asyncio.sleep(LOOK_SECONDS)
                quiet += LOOK_SECONDS
        finally:
            self._open -= 1
