"""The web_search tool, with DuckDuckGo or your own SearXNG."""

import asyncio
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.tools.web.client import WebClient, decoded

_LONGEST_SNIPPET = 300


class SearchResult(Struct, frozen=True):
    """A page found by an engine."""

    title: str
    url: str
    snippet: str


class SearchEngine(Protocol):
    """A web search engine."""

    async def search(self, query: str, count: int) -> list[SearchResult]:
        """Return at most so many pages, best first, or raise `ToolFailed`."""

    async def close(self) -> None:
        """Close the connections."""


class DuckDuckGo:
    """DuckDuckGo's page for browsers without scripts; it needs no key and occasionally asks for a captcha."""

    def __init__(self, base_url: str = "https://html.duckduckgo.com/html/") -> None:
        self._base_url = base_url
        self._client = WebClient.for_service(base_url)

    async def search(self, query: str, count: int) -> list[SearchResult]:
        """Return the results, without ads."""
        download = await self._client.get(self._base_url, {"q": query})
        from talaria.tools.web.search_results import duckduckgo_results  # noqa: PLC0415 (loaded with the first results: parses HTML)

        results = await asyncio.to_thread(duckduckgo_results, decoded(download))
        return results[:count]

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


class SearXng:
    """An instance that answers in JSON (``search.formats`` of its settings has ``json``)."""

    def __init__(self, base_url: str) -> None:
        self._url = f"{base_url.rstrip('/')}/search"
        self._client = WebClient.for_service(base_url)

    async def search(self, query: str, count: int) -> list[SearchResult]:
        """Return the results of the instance."""
        download = await self._client.get(self._url, {"q": query, "format": "json"})
        try:
            answer = msgspec.json.decode(download.body, type=_SearXngAnswer)
        except msgspec.DecodeError as error:
            raise ToolFailed(
                "the search engine's answer isn't JSON; JSON output may be disabled in its settings"
            ) from error
        return [SearchResult(one.title, one.url, one.content or "") for one in answer.results[:count]]

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


class _SearXngResult(Struct, frozen=True):
    url: str
    title: str = ""
    content: str | None = None


class _SearXngAnswer(Struct, frozen=True):
    results: list[_SearXngResult]


class WebSearchArguments(Struct, frozen=True):
    """A search query."""

    query: Annotated[str, Meta(min_length=1)]
    count: Annotated[int, Meta(ge=1, le=20)] = 8


class WebSearch:
    """Searches with one engine."""

    name = "web_search"
    description = "Search the web. Read results with web_fetch."
    effect = Effect.READS
    arguments: type[Struct] = WebSearchArguments

    def __init__(self, engine: SearchEngine) -> None:
        self._engine = engine

    def proposed_action(self, arguments: WebSearchArguments) -> ProposedAction:
        """Describe the search."""
        return ProposedAction("fetch", f"web search: {arguments.query}")

    async def run(self, arguments: WebSearchArguments, call: Call) -> ToolOutput:
        """Return titles, URLs and snippets."""
        results = await self._engine.search(arguments.query, arguments.count)
        shown = "\n\n".join(f"{number}. {_shown(result)}" for number, result in enumerate(results, 1))
        return ToolOutput(shown or "Nothing found.", source="a web search" if shown else "")

    async def close(self) -> None:
        """Close the connections."""
        await self._engine.close()


def _shown(result: SearchResult) -> str:
    snippet = " ".join(result.snippet.split())[:_LONGEST_SNIPPET]
    return "\n".join(filter(None, [" ".join(result.title.split()), result.url, snippet]))
