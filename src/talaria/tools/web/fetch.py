"""The web_fetch tool: read web pages."""

from collections import OrderedDict
from typing import Annotated

from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.tools.web.client import WebClient, readable_text

PAGE_LENGTH = 20_000  # characters
_KEPT = 8


class WebFetchArguments(Struct, frozen=True):
    """A page, and where to start in it."""

    url: str
    first_character: Annotated[int, Meta(ge=1, description="Where to continue in a long page")] = 1


class WebFetch:
    """Reads pages as text; recent pages are cached, so that continuing needs no second request."""

    name = "web_fetch"
    description = "Read a public web page or PDF as text."
    effect = Effect.READS
    arguments: type[Struct] = WebFetchArguments

    def __init__(self, client: WebClient) -> None:
        self._client = client
        self._read: OrderedDict[str, str] = OrderedDict()

    def proposed_action(self, arguments: WebFetchArguments) -> ProposedAction:
        """Describe what is fetched."""
        return ProposedAction("fetch", arguments.url)

    async def run(self, arguments: WebFetchArguments, call: Call) -> ToolOutput:
        """Return a part of the page, with a note on how to continue."""
        text = self._read.get(arguments.url) if arguments.first_character > 1 else None
        if text is None:
            text = await self._fetch(arguments.url)
        return ToolOutput(_part(text, arguments.first_character), source=arguments.url)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _fetch(self, url: str) -> str:
        download = await self._client.get(url if "://" in url else f"https://{url}")
        text = (await readable_text(download)).strip()
        self._read[url] = text
        while len(self._read) > _KEPT:
            self._read.popitem(last=False)
        return text


def _part(text: str, first: int) -> str:
    if not text:
        return "The page contains no text."
    if first > len(text):
        raise ToolFailed(f"the page has only {len(text)} characters")
    last = first - 1 + PAGE_LENGTH
    if last >= len(text):
        return text[first - 1 :]
    return f"{text[first - 1 : last]}\n\n[{last} of {len(text)} characters; continue with first_character={last + 1}]"
