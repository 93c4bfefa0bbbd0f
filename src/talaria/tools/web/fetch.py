"""The web_fetch tool: read web pages."""

from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.messages import Image
from talaria.tools.web.client import ReadablePage, WebClient, read_page

if TYPE_CHECKING:  # loaded with the first fetch
    from talaria.tools.web.http_client import RobotsRules

PAGE_LENGTH = 20_000  # characters
_CACHED_PAGES = 8
_CACHED_RULES = 64


class WebFetchArguments(Struct, frozen=True):
    """A page, and where to start in it."""

    url: str
    first_character: Annotated[int, Meta(ge=1, description="Where to continue in a long page")] = 1


class WebFetch:
    """Reads pages as Markdown; recent pages are cached, so that continuing needs no second request.

    Pages of scanned documents are stored as images in ``pictures``, if it is given. With ``robots``, pages that a
    site's robots.txt forbids are not fetched.
    """

    name = "web_fetch"
    description = "Read a public web page or PDF as text."
    effect = Effect.READS
    arguments: type[Struct] = WebFetchArguments

    def __init__(self, client: WebClient, pictures: Path | None = None, *, robots: bool = False) -> None:
        self._client = client
        self._pictures = pictures
        self._robots = robots
        self._read: OrderedDict[str, ReadablePage] = OrderedDict()
        self._rules: OrderedDict[str, RobotsRules] = OrderedDict()

    def proposed_action(self, arguments: WebFetchArguments) -> ProposedAction:
        """Describe what is fetched."""
        return ProposedAction("fetch", arguments.url)

    async def run(self, arguments: WebFetchArguments, call: Call) -> ToolOutput:
        """Return a part of the page, with a note on how to continue."""
        page = self._read.get(arguments.url) if arguments.first_character > 1 else None
        if page is None:
            page = await self._fetch(arguments.url)
        images = tuple(Image(picture, "image/png") for picture in page.pictures if arguments.first_character == 1)
        return ToolOutput(_part(page.text, arguments.first_character), images, source=arguments.url)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _fetch(self, url: str) -> ReadablePage:
        address = url.strip() if "://" in url else f"https://{url.strip()}"
        download = await self._client.get(address, check=self._check_robots if self._robots else None)
        page = await read_page(download, self._pictures)
        self._read[url] = page
        while len(self._read) > _CACHED_PAGES:
            self._read.popitem(last=False)
        return page

    async def _check_robots(self, url: str) -> None:
        """Raise `ToolFailed` if the site's robots.txt forbids a URL.

        As RFC 9309 says, a site without one allows everything, and one whose server fails forbids everything for now.
        """
        from talaria.tools.web.http_client import (  # noqa: PLC0415 (loaded with the first fetch)
            RobotsRules,
            ServerUnreachable,
            parse_robots,
        )

        parts = urlsplit(url)
        site = f"{parts.scheme}://{parts.netloc}"
        if site not in self._rules:
            try:
                found = await self._client.get(f"{site}/robots.txt")
                rules = parse_robots(found.body.decode("utf-8", errors="replace"))
            except ServerUnreachable as error:
                raise ToolFailed(
                    f"{url} wasn't fetched, because the site's rules for programs can't be read: {error}. Try again "
                    "later, or look for another source."
                ) from error
            except ToolFailed:
                rules = RobotsRules()
            self._rules[site] = rules
            while len(self._rules) > _CACHED_RULES:
                self._rules.popitem(last=False)
        if not self._rules[site].allow(url):
            raise ToolFailed(f"{site}/robots.txt doesn't allow programs to fetch {url}. Look for another source.")


def _part(text: str, first: int) -> str:
    if not text:
        return "The page contains no text."
    if first > len(text):
        raise ToolFailed(f"the page has only {len(text)} characters")
    last = first - 1 + PAGE_LENGTH
    if last >= len(text):
        return text[first - 1 :]
    last = text.rfind("\n", first + PAGE_LENGTH // 2, last) + 1 or last  # at the end of a line, if there is one
    return f"{text[first - 1 : last]}\n\n[{last} of {len(text)} characters; continue with first_character={last + 1}]"
