"""Blocks: entered by `with`, and by nothing else. As a decorator, one would run its function at every replay."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from functools import wraps
from types import TracebackType
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar

from umavez.errors import ConfigurationError

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Block(AbstractContextManager[T_co], Generic[T_co]):
    """What a generator is up to its `yield`, and from there on."""

    __slots__ = ("_inner",)

    def __init__(self, inner: AbstractContextManager[T_co]) -> None:
        self._inner = inner

    def __enter__(self) -> T_co:
        return self._inner.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._inner.__exit__(kind, error, trace)

    def __call__(self, function: object) -> NoReturn:
        """Refuse to be a decorator: contextlib's own blocks are."""
        raise _no_decorator(function)


class AsyncBlock(AbstractAsyncContextManager[T_co], Generic[T_co]):
    """As Block, of a generator that awaits."""

    __slots__ = ("_inner",)

    def __init__(self, inner: AbstractAsyncContextManager[T_co]) -> None:
        self._inner = inner

    async def __aenter__(self) -> T_co:
        return await self._inner.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)

    def __call__(self, function: object) -> NoReturn:
        """See Block."""
        raise _no_decorator(function)


def block(make: Callable[P, Iterator[T]]) -> Callable[P, Block[T]]:
    """`make` as a block."""
    manager = contextmanager(make)

    @wraps(make)
    def made(*args: P.args, **named: P.kwargs) -> Block[T]:
        return Block(manager(*args, **named))

    return made


def async_block(make: Callable[P, AsyncIterator[T]]) -> Callable[P, AsyncBlock[T]]:
    """`make` as a block of tasks."""
    manager = asynccontextmanager(make)

    @wraps(make)
    def made(*args: P.args, **named: P.kwargs) -> AsyncBlock[T]:
        return AsyncBlock(manager(*args, **named))

    return made


def _no_decorator(function: Any) -> ConfigurationError:
    name = getattr(function, "__name__", type(function).__name__)
    return ConfigurationError(f"This is a block for `with`; declare {name} by operation(), which runs it only once.")
