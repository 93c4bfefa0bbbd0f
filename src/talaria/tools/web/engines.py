"""Engines that search the web: DuckDuckGo without a key, or a SearXNG of one's own."""

import asyncio
import importlib
from typing import Protocol

import msgspec
from msgspec import Struct

from talaria.core.errors import ToolFailed
from talaria.tools.web.client import WebClient
from talaria.tools.web.reading import decoded


class SearchResult(Struct, frozen=True):
    """A page that an engine found."""

    title: str
    url: str
    snippet: str


class SearchEngine(Protocol):
    """Something that finds pages."""

    async def search(self, query: str, count: int) -> list[SearchResult]:
        """Return at most so many pages, best first, or raise `ToolFailed`."""

    async def close(self) -> None:
        """Let go of connections."""


class DuckDuckGo:
    """The engine's page for browsers without scripts; it needs no key and now and then asks for patience."""

    def __init__(self, base_url: str = "https://html.duckduckgo.com/html/") -> None:
        self._base_url = base_url
        self._client = WebClient.for_service(base_url)

    async def search(self, query: str, count: int) -> list[SearchResult]:
        """Return what the result page lists, without what was paid for."""
        download = await self._client.get(self._base_url, {"q": query})
        listing = importlib.import_module("talaria.tools.web.listing")
        results: list[SearchResult] = await asyncio.to_thread(listing.duckduckgo_results, decoded(download))
        return results[:count]

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.close()


class SearXng:
    """An instance that answers in JSON (``search.formats`` of its settings has ``json``)."""

    def __init__(self, base_url: str) -> None:
        self._url = f"{base_url.rstrip('/')}/search"
        self._client = WebClient.for_service(base_url)

    async def search(self, query: str, count: int) -> list[SearchResult]:
        """Return what the instance found."""
        download = await self._client.get(self._url, {"q": query, "format": "json"})
        try:
            answer = msgspec.json.decode(download.body, type=_SearXngAnswer)
        except msgspec.DecodeError as error:
            raise ToolFailed("the search engine did not answer in JSON; its settings may not allow that") from error
        return [SearchResult(one.title, one.url, one.content or "") for one in answer.results[:count]]

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.close()


class _SearXngResult(Struct, frozen=True):
    url: str
    title: str = ""
    content: str | None = None


class _SearXngAnswer(Struct, frozen=True):
    results: list[_SearXngResult]
