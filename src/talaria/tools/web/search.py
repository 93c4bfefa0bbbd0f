"""The web_search tool."""

from typing import Annotated

from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.tools.web.search_engines import SearchEngine, SearchResult

_LONGEST_SNIPPET = 300


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
