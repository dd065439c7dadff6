"""What the engine itself costs: CPU time of calls on memory:, where the store does next to nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.engine.load import RESULT
from bench.engine.ours import awaited_body, body
from umavez import AsyncOnce, Once

Found = dict[tuple[str, str], list[float]]
"""CPU microseconds per call in each round, by way in and operation.

Many short rounds: on a busy machine the lowest of them is the one that nobody else disturbed.
"""

FLOOR = "a dict, for comparison"
JUDGED = ("Once.run", "Once decorated", "AsyncOnce.run", "AsyncOnce decorated")
"""The ways in that the targets are about."""


def measured(calls: int, rounds: int) -> Found:
    """Every way in, first and replay, `rounds` times over new engines."""
    found: Found = {}
    for _ in range(rounds):
        _add(found, FLOOR, *_dict(calls))
        _add(found, "Once.run", *_run(calls))
        _add(found, "Once decorated", *_decorated(calls))
        _add(found, "AsyncOnce.run", *asyncio.run(_awaited_run(calls)))
        _add(found, "AsyncOnce decorated", *asyncio.run(_awaited_decorated(calls)))
    return found


def _add(found: Found, way: str, first: float, replay: float) -> None:
    found.setdefault((way, "first"), []).append(first)
    found.setdefault((way, "replay"), []).append(replay)


def _names(calls: int) -> list[str]:
    return [f"8e03978e-40d5-43dd-bc93-{number:012x}" for number in range(calls)]


def _timed(call: Callable[[str], Any], names: list[str]) -> float:
    began = time.process_time()
    for name in names:
        call(name)
    return (time.process_time() - began) / len(names) * 1e6


async def _awaited_timed(call: Callable[[str], Awaitable[Any]], names: list[str]) -> float:
    began = time.process_time()
    for name in names:
        await call(name)
    return (time.process_time() - began) / len(names) * 1e6


def _dict(calls: int) -> tuple[float, float]:
    """The least that remembering takes: tells how fast the machine is just now."""
    kept: dict[str, tuple[str, Any]] = {}

    def call(key: str) -> Any:
        entry = kept.get(key)
        if entry is not None:
            return entry[1]
        kept[key] = ("PENDING", None)
        value = body()
        kept[key] = ("SUCCESS", value)
        return value

    return _timed(call, names := _names(calls)), _timed(call, names)


def _run(calls: int) -> tuple[float, float]:
    with Once("memory:", scope="bench") as once:

        def call(key: str) -> Any:
            return once.run("charge", key=key, call=body, unknown="rerun")

        return _timed(call, names := _names(calls)), _timed(call, names)


def _decorated(calls: int) -> tuple[float, float]:
    with Once("memory:", scope="bench") as once:

        @once.operation("charge", key=lambda _order: _order, fingerprint=None, unknown="rerun")
        def charge(_order: str) -> Any:
            return RESULT

        return _timed(charge, names := _names(calls)), _timed(charge, names)


async def _awaited_run(calls: int) -> tuple[float, float]:
    async with AsyncOnce("memory:", scope="bench") as once:

        async def call(key: str) -> Any:
            return await once.run("charge", key=key, call=awaited_body, unknown="rerun")

        names = _names(calls)
        return await _awaited_timed(call, names), await _awaited_timed(call, names)


async def _awaited_decorated(calls: int) -> tuple[float, float]:
    async with AsyncOnce("memory:", scope="bench") as once:

        @once.operation("charge", key=lambda _order: _order, fingerprint=None, unknown="rerun")
        async def charge(_order: str) -> Any:
            return RESULT

        names = _names(calls)
        return await _awaited_timed(charge, names), await _awaited_timed(charge, names)
