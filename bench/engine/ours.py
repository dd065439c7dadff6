"""umavez as a subject: the plain call, through both shells."""

from __future__ import annotations

from typing import Any

from bench.engine.load import RESULT
from bench.engine.subjects import Subject
from umavez import AsyncOnce, Once


def body() -> dict[str, Any]:
    return RESULT


async def awaited_body() -> dict[str, Any]:
    return RESULT


class Threads(Subject):
    """Once, shared by threads."""

    def open(self) -> None:
        self._once = Once(self.url, scope="bench")
        self._once.migrate()

    def first(self, key: str) -> Any:
        return self._once.run("charge", key=key, call=body, unknown="rerun")

    def close(self) -> None:
        self._once.close()


class Tasks(Subject):
    """AsyncOnce, shared by tasks."""

    awaited = True

    async def open(self) -> None:
        self._once = AsyncOnce(self.url, scope="bench")
        await self._once.migrate()

    async def first(self, key: str) -> Any:
        return await self._once.run("charge", key=key, call=awaited_body, unknown="rerun")

    async def replay(self, key: str) -> Any:
        return await self._once.run("charge", key=key, call=awaited_body, unknown="rerun")

    async def close(self) -> None:
        await self._once.close()


SUBJECTS = {"threads": Threads, "tasks": Tasks}
