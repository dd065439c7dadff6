"""Rounds: what fails in one of them comes again, is told of without its words, and keeps nothing else."""

from __future__ import annotations

import asyncio
import logging

import pytest

from umavez.errors import StoreUnavailable
from umavez_systems import rounds
from umavez_systems.rounds import for_ever, kept_up

PATIENCE = 20.0


class Brittle:
    """Work that fails as often as it has errors, and sets `over` when it does not."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.times = 0
        self.begun, self.over = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self.times += 1
        self.begun.set()
        if self.errors:
            raise self.errors.pop(0)
        self.over.set()


def test_a_round_that_breaks_off_comes_again_and_keeps_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> tuple[Brittle, Brittle]:
        broken = Brittle(RuntimeError("card 00123456789"), StoreUnavailable("The store is away."))
        sound = Brittle()
        task = asyncio.create_task(for_ever("The dispatch", 0.0, broken, sound))
        await asyncio.wait_for(broken.over.wait(), PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return broken, sound

    with caplog.at_level(logging.INFO):
        broken, sound = asyncio.run(main())
    assert broken.times >= 3
    assert sound.times >= 2
    first, second = caplog.records[:2]
    assert (first.levelno, second.levelno) == (logging.ERROR, logging.WARNING)
    assert "RuntimeError" in first.getMessage()
    assert "test_rounds.py" in first.getMessage(), "where it was is said"
    assert "card" not in caplog.text, "what it met is not"
    assert second.getMessage() == "The dispatch will try again: The store is away."


def test_work_that_ends_by_an_error_is_begun_again_until_it_is_to_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rounds, "FIRST_PAUSE", 0.001)

    async def main() -> int:
        stop = asyncio.Event()
        work = Brittle(ExceptionGroup("tasks", [KeyError("x"), StoreUnavailable("Away.")]), ValueError())
        await asyncio.wait_for(kept_up("Mailing", work, stop), PATIENCE)
        return work.times

    assert asyncio.run(main()) == 3
    assert [record.getMessage().split(" at\n")[0] for record in caplog.records] == [
        "Mailing broke off and will try again: KeyError",
        "Mailing will try again: Away.",
        "Mailing broke off and will try again: ValueError",
    ]


def test_who_is_to_end_is_not_begun_again() -> None:
    async def main() -> int:
        stop = asyncio.Event()
        work = Brittle(RuntimeError(), RuntimeError())
        task = asyncio.create_task(kept_up("Mailing", work, stop))
        await work.begun.wait()
        stop.set()
        await asyncio.wait_for(task, PATIENCE)
        return work.times

    assert asyncio.run(main()) == 1
