"""Closing whatever an async driver calls a connection."""

from __future__ import annotations

from typing import Any


async def closed(connection: Any) -> None:
    """Close `connection`. asyncmy's close() only lets go of the socket; ensure_closed() says goodbye and waits."""
    await getattr(connection, "ensure_closed", connection.close)()
