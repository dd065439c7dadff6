"""The console inside the server: who may come in follows the server's own rules."""

from __future__ import annotations

from typing import Any

from starlette.types import Receive, Scope, Send

from umavez import console
from umavez.console import EVERYTHING, Authorize, Who
from umavez_systems.console.panels import panels
from umavez_systems.front.navigation import PLACES
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier

PATH = "/console"


class ConsoleMount:
    """The place of the console in an application; what answers there is opened with the server and closed with it."""

    def __init__(self) -> None:
        self._app: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request to the console."""
        await self._app(scope, receive, send)

    def open(self, carrier: Carrier) -> None:
        """Begin to answer, for the store of `carrier`."""
        url = carrier.database.store_url
        self._app = console(
            carrier.once,
            authorize=_authorize(carrier.settings),
            panels=panels(url, carrier.database),
            url=url,
            around=PLACES,
        )

    def close(self) -> None:
        """Close what the console opened."""
        if self._app is not None:
            self._app.close()


def _authorize(settings: Settings) -> Authorize | None:
    """Without API keys the doors let in nobody but this machine, as `local`; with them people sign in by name."""
    if settings.principals:
        return None
    return lambda _: Who("local", EVERYTHING)
