"""Fetch from the web, within limits of address, size and time, and convert content to text; and the web_fetch tool."""

import asyncio
import codecs
import re
from collections import OrderedDict
from collections.abc import Set as AbstractSet
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self
from urllib.parse import unquote, urlsplit

from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.messages import Image

if TYPE_CHECKING:  # imported on first use, with sockets, TLS and the address check
    from talaria.http_client.dial import Resolve
    from talaria.tools.web.http_client import CheckUrl, Download, Fetcher, RobotsRules

SIZE_LIMIT = 5_000_000  # bytes, decompressed
TIME_LIMIT = timedelta(seconds=30)
_PORTS = {"http": 80, "https": 443}
_META_CHARSET = rb"""(?i)<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w-]{2,40})"""
_DOCUMENTS = (b"%PDF-", b"PK\x03\x04")
_HTML = {"text/html", "application/xhtml+xml"}
_PLAIN = r"text/.+|application/(.+\+)?(json|xml|yaml|toml|javascript|x-sh|x-ndjson)"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
PAGE_LENGTH = 20_000  # characters
_CACHED_PAGES = 8
_CACHED_RULES = 64


class ReadablePage(Struct, frozen=True):
    """Text of a page, and images of pages that have none."""

    text: str
    pictures: tuple[str, ...] = ()


class WebClient:
    """A client for public servers, without cookies or credentials; owns its connections from first use to `close`."""

    def __init__(
        self,
        *,
        allowed: AbstractSet[str] = frozenset(),
        size_limit: int = SIZE_LIMIT,
        time_limit: timedelta = TIME_LIMIT,
        resolve: "Resolve | None" = None,
    ) -> None:
        self._size_limit = size_limit
        self._time_limit = time_limit
        self._allowed = allowed
        self._resolve = resolve
        self._fetcher: Fetcher | None = None

    @classmethod
    def for_service(cls, base_url: str, *, size_limit: int = SIZE_LIMIT) -> Self:
        """Return a client for a server chosen by the owner, even on this machine."""
        parts = urlsplit(base_url)
        name = parts.hostname or ""
        host = name if name.isascii() else name.encode("idna").decode()
        return cls(allowed={f"{host}:{parts.port or _PORTS.get(parts.scheme)}"}, size_limit=size_limit)

    async def get(self, url: str, *, check: "CheckUrl | None" = None) -> "Download":
        """Return the content of a URL, or raise `ToolFailed`; ``check`` may do so for it and for each redirect."""
        return await self._open_fetcher().get(url, check)

    async def close(self) -> None:
        """Close the connections."""
        if self._fetcher is not None:
            await self._fetcher.close()

    def _open_fetcher(self) -> "Fetcher":
        if self._fetcher is None:
            from talaria.tools.web.http_client import Fetcher  # noqa: PLC0415 (loaded with the first request)

            self._fetcher = Fetcher(self._size_limit, self._time_limit, self._allowed, self._resolve)
        return self._fetcher


async def read_page(download: "Download", pictures: Path | None = None) -> ReadablePage:
    """Return a page as light Markdown, a document as its text, other text unchanged, or raise `ToolFailed`.

    Pages of a document without text are stored as images in ``pictures``.
    """
    if download.media_type not in _HTML and download.body.startswith(_DOCUMENTS):
        from talaria.tools.documents.reader import read_downloaded  # noqa: PLC0415 (loaded with the first)
        from talaria.tools.documents.wire import is_document  # noqa: PLC0415 (loaded with the first)

        name = Path(unquote(urlsplit(download.url).path)).name or "document"
        if is_document(Path(name), download.body):
            text, drawn = await read_downloaded(download.body, name, pictures)
            return ReadablePage(text.strip(), drawn)
    return ReadablePage((await _read_text(download)).strip())


def decode_download(download: "Download") -> str:
    """Decode by the server's charset, a byte order mark, the page's own declaration, or a guess like a browser's."""
    from talaria.tools.files.text_file import find_codec  # noqa: PLC0415 (loaded with the first page)

    for charset in _list_charsets(download):
        try:
            return download.body.decode(find_codec(charset))
        except (LookupError, UnicodeDecodeError):
            continue
    from talaria.tools.files.text_file import decode_text  # noqa: PLC0415 (loaded for a page that doesn't say)

    return decode_text(download.body)


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
        return ToolOutput(_cut_part(page.text, arguments.first_character), images, source=arguments.url)

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
        if not self._rules[site].is_allowed(url):
            raise ToolFailed(f"{site}/robots.txt doesn't allow programs to fetch {url}. Look for another source.")


async def _read_text(download: "Download") -> str:
    if download.media_type in _HTML:
        from talaria.tools.web.html_text import extract_page_text  # noqa: PLC0415 (loaded with the first web page)

        return await asyncio.to_thread(extract_page_text, decode_download(download), download.url)
    if re.fullmatch(_PLAIN, download.media_type) or _looks_like_text(download.body):
        return decode_download(download)
    raise ToolFailed(f"{download.url} is {download.media_type}, which can't be read as text")


def _list_charsets(download: "Download") -> list[str]:
    marked = [charset for mark, charset in _MARKS if download.body.startswith(mark)]
    named = re.search(_META_CHARSET, download.body[:4_096])
    return [*marked, *filter(None, [download.charset]), *([named[1].decode("ascii")] if named else []), "utf-8"]


def _looks_like_text(body: bytes) -> bool:
    sample = body[:4_096]
    return b"\0" not in sample and all(byte >= 32 or byte in b"\t\n\r\f\x1b" for byte in sample)


def _cut_part(text: str, first: int) -> str:
    if not text:
        return "The page contains no text."
    if first > len(text):
        raise ToolFailed(f"the page has only {len(text)} characters")
    last = first - 1 + PAGE_LENGTH
    if last >= len(text):
        return text[first - 1 :]
    last = text.rfind("\n", first + PAGE_LENGTH // 2, last) + 1 or last  # at the end of a line, if there is one
    return f"{text[first - 1 : last]}\n\n[{last} of {len(text)} characters; continue with first_character={last + 1}]"
