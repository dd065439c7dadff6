"""The transport for tasks; see `umavez.http.client.transport`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import anyio
import httpx

from umavez.http.client.keys import Journal
from umavez.http.client.retrying import Retrying, may_matter
from umavez.http.client.transport import KEYED, Keys, after_response, is_safe, on_end, tell_resends
from umavez.http.client.writing import async_written


class AsyncIdempotentTransport(httpx.AsyncBaseTransport):
    """A transport over another one (by default httpx's own) that keys, keeps and retries.

    Raises IntentChanged before sending a request that differs from the one its intent was begun with, and
    KeyWouldLeak instead of following a redirect to another host.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        retrying: Retrying | None = None,
        methods: Iterable[str] = KEYED,
        quoted: bool = False,
    ) -> None:
        self._transport = transport or httpx.AsyncHTTPTransport()
        self._keys = Keys(journal, methods, quoted=quoted)
        self._retrying = retrying or Retrying()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request` until it is answered, refused, or not worth another try."""
        await request.aread()
        entry = await async_written(self._keys.begin, request)
        began, sent = time.monotonic(), 0
        while True:
            sent += 1
            if sent > 1:
                tell_resends(sent - 1)
            try:
                response = await self._transport.handle_async_request(request)
                if may_matter(response.status_code):
                    await response.aread()
            except httpx.TransportError:
                pause = self._retrying.after_error(sent, time.monotonic() - began, safe=is_safe(request))
                if pause is None:
                    raise
            else:
                pause = after_response(self._retrying, request, response, sent, time.monotonic() - began)
                if pause is None:
                    return await _listen(response, on_end(self._keys, entry, response))
                await response.aclose()
            await anyio.sleep(pause)

    async def aclose(self) -> None:
        """Close the transport underneath; the journal stays open, as others may share it."""
        await self._transport.aclose()


class _AsyncHeard(httpx.AsyncByteStream):
    """A response's body; `told` is called once it was read to its end."""

    def __init__(self, stream: Any, told: Callable[[], None]) -> None:
        self._stream = stream
        self._told = told

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield chunk
        await async_written(self._told)

    async def aclose(self) -> None:
        """Close the body. One that was not read to its end was not heard."""
        await self._stream.aclose()


async def _listen(response: httpx.Response, told: Callable[[], None] | None) -> httpx.Response:
    """The response, which calls `told` when it was read to its end, or at once where it is read already."""
    if told is not None and response.is_stream_consumed:
        await async_written(told)
    elif told is not None:
        response.stream = _AsyncHeard(response.stream, told)
    return response
