"""Where Django's sync and async requests differ in more than awaiting. So both are by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from umavez.errors import ConfigurationError

_WORKING: set[asyncio.Task[Any]] = set()
"""A task that nothing refers to can be collected in the middle of its work."""


def check_server(request: Any) -> None:
    """Raise ConfigurationError where Django serves ASGI and this middleware is sync.

    A client that leaves cancels the thread's task there, and an outcome that was reached would not be recorded.
    """
    if hasattr(request, "scope"):
        raise ConfigurationError(
            "Django is served by ASGI here: give async_once=AsyncOnce(...) to middleware(), not once=."
        )


def async_check_server(_: Any) -> None:
    """Nothing: an async middleware is right under either server."""


def settled(principal: Any) -> Any:
    """What a resolver gave."""
    return principal


async def async_settled(principal: Any) -> Any:
    """What a resolver gave, waited for where it has to be."""
    return await principal if hasattr(principal, "__await__") else principal


def to_the_end(response: Any) -> Any:
    """Nobody ends a thread, so the work is done already."""
    return response


async def async_to_the_end(work: Coroutine[Any, Any, Any]) -> Any:
    """What `work` gives, in a task of its own: Django cancels the view of a client that has left."""
    task = asyncio.get_running_loop().create_task(work)
    _WORKING.add(task)
    task.add_done_callback(_WORKING.discard)
    return await asyncio.shield(task)


def whole(response: Any) -> bytes:
    """The body of a response. One that streams is run to its end now: what it does belongs to the transaction."""
    if not response.streaming:
        return response.content  # type: ignore[no-any-return]  # Django ships no types
    body = b"".join(response)
    response.streaming_content = [body]
    return body


async def async_whole(response: Any) -> bytes:
    """The same, for what is awaited."""
    if not response.streaming:
        return response.content  # type: ignore[no-any-return]  # Django ships no types
    body = b"".join([part async for part in response])
    response.streaming_content = _again(body)
    return body


async def _again(body: bytes) -> AsyncIterator[bytes]:
    yield body
