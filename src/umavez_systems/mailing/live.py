"""Live: the progress of a mailing as server-sent events, from the database, so that nothing is lost on a restart."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
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
MOST_EACH = 20
"""Of one principal: nobody shuts the others out."""


class Watchers:
    """Who follows mailings in this process."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def refuse_crowd(self, principal: str) -> None:
        """Raise a 429 problem when this principal follows too many already, a 503 one when all together do."""
        detail = "Tente de novo em instantes, ou leia o mailing sem acompanhá-lo."
        if self._open[principal] >= MOST_EACH:
            raise Problem(429, "acompanha-demais", "Acompanha demais", detail).retryable_after(LOOK_SECONDS * 10)
        if self._open.total() >= MOST:
            raise Problem(503, "ocupado", "Muitos acompanhando", detail).retryable_after(LOOK_SECONDS * 10)

    async def follow(
        self, principal: str, look: Callable[[], Awaitable[dict[str, Any]]], gone: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[str]:
        """An event whenever what `look` shows has changed, until the mailing ends or its reader leaves."""
        told, quiet = "", 0.0
        until = time.monotonic() + LONGEST_SECONDS
        self._open[principal] += 1
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
            self._open[principal] -= 1
            self._open += Counter()  # forgets those at nought
