"""The service: what runs beside the routes goes on running."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from umavez_systems.mailing import service
from umavez_systems.mailing.domain import new_id
from umavez_systems.mailing.ingest.sweeping import stored_name
from umavez_systems.mailing.service import Service
from umavez_systems.web import Carrier


def forgotten(folder: Path, name: str) -> Path:
    """A list of two days ago that no mailing names."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("email\n")
    os.utime(path, (time.time() - 172_800,) * 2)
    return path


def test_what_nobody_will_ask_for_is_removed_again_and_again(carrier: Carrier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "TIDY_SECONDS", 0.0)
    carrier.settings.mailing_recovery_seconds = 0.2
    folder = Path(carrier.settings.storage)

    def gone(path: Path) -> None:
        end = time.monotonic() + 60
        while path.exists() and time.monotonic() < end:
            time.sleep(0.02)

    async def run() -> None:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Service(carrier.mailing, relay=False, worker=True).run(stop))
            for _ in range(2):
                name = stored_name(new_id(), carrier.mailing.cases.database)
                await asyncio.to_thread(gone, forgotten(folder, name))
            stop.set()

    asyncio.run(run())
    assert list(folder.iterdir()) == []
