"""A browser without a screen: keeps cookies, reads forms, sends them as browsers do."""

from __future__ import annotations

import asyncio
from html.parser import HTMLParser
from typing import Any

import httpx

OPEN: list[Client] = []
"""Every client that was made; the test's end closes them."""

SAME = {"sec-fetch-site": "same-origin"}


class Forms(HTMLParser):
    """The forms of a page: where each goes, and what it carries."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.links: list[str] = []
        self.text: list[str] = []
        self.tags: list[str] = []
        """Names of tags and of their attributes, in the order of the page."""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags += [tag, *given]
        if tag == "form":
            self.found.append((given.get("action", ""), {}))
        elif tag == "input" and given.get("type") == "hidden" and self.found:
            self.found[-1][1][given["name"]] = given["value"]
        elif tag == "a":
            self.links.append(given.get("href", ""))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


class Client:
    """An ASGI app's client, not awaited; all its requests are in one loop."""

    def __init__(self, app: Any, address: str) -> None:
        transport = httpx.ASGITransport(app, client=(address, 50_000), raise_app_exceptions=True)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60)
        self._loop = asyncio.Runner()
        OPEN.append(self)
        self.headers, self.cookies = self._client.headers, self._client.cookies

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self._loop.run(self._client.get(path, **options))

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self._loop.run(self._client.post(path, **options))

    def together(self, many: int, path: str, **options: Any) -> list[httpx.Response]:
        """The same request so many times at once."""

        async def sent() -> list[httpx.Response]:
            return await asyncio.gather(*(self._client.post(path, **options) for _ in range(many)))

        return self._loop.run(sent())

    def close(self) -> None:
        self._loop.run(self._client.aclose())
        self._loop.close()


class Browser:
    """One browser of somebody on this machine, or elsewhere."""

    def __init__(self, app: Any, address: str = "127.0.0.1", language: str = "en") -> None:
        self.client = Client(app, address)
        self.client.headers["accept-language"] = language

    def get(self, path: str, status: int = 200) -> str:
        answer = self.client.get(path)
        assert answer.status_code == status, (path, answer.status_code, answer.text)
        return answer.text

    def form(self, path: str, ends: str = "") -> dict[str, str]:
        """What the form on a page carries whose address ends so."""
        return next(
            fields for action, fields in Forms(self.get(path)).found if action.endswith(ends) and "form" in fields
        )

    def post(self, path: str, fields: dict[str, str], **headers: str) -> Any:
        return self.client.post(path, data=fields, headers=headers or SAME)

    def done(self, path: str, fields: dict[str, str]) -> str:
        """Send a form that must be carried out; the page that it leads to."""
        answer = self.post(path, fields)
        assert answer.status_code == 303, (answer.status_code, answer.text)
        return self.get(answer.headers["location"])
