"""Fetch from the web, within limits of address, size and time, and convert content to text."""

import asyncio
import codecs
import re
from collections.abc import Set as AbstractSet
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from talaria.core.errors import ToolFailed

if TYPE_CHECKING:  # imported on first use, with sockets, TLS and the address check
    from talaria.http_client.dial import Resolve
    from talaria.tools.web.http_client import CheckUrl, Download, Fetcher


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
        return await self._opened().get(url, check)

    async def close(self) -> None:
        """Close the connections."""
        if self._fetcher is not None:
            await self._fetcher.close()

    def _opened(self) -> "Fetcher":
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


async def _read_text(download: "Download") -> str:
    if download.media_type in _HTML:
        from talaria.tools.web.html_text import page_text  # noqa: PLC0415 (loaded with the first web page)

        return await asyncio.to_thread(page_text, decoded(download), download.url)
    if re.fullmatch(_PLAIN, download.media_type) or _looks_like_text(download.body):
        return decoded(download)
    raise ToolFailed(f"{download.url} is {download.media_type}, which can't be read as text")


def decoded(download: "Download") -> str:
    """Decode by the server's charset, a byte order mark, the page's own declaration, or a guess like a browser's."""
    from talaria.tools.files.text_file import find_codec  # noqa: PLC0415 (loaded with the first page)

    for charset in _charsets(download):
        try:
            return download.body.decode(find_codec(charset))
        except (LookupError, UnicodeDecodeError):
            continue
    from talaria.tools.files.text_file import decode_text  # noqa: PLC0415 (loaded for a page that doesn't say)

    return decode_text(download.body)


def _charsets(download: "Download") -> list[str]:
    marked = [charset for mark, charset in _MARKS if download.body.startswith(mark)]
    named = re.search(_META_CHARSET, download.body[:4_096])
    return [*marked, *filter(None, [download.charset]), *([named[1].decode("ascii")] if named else []), "utf-8"]


def _looks_like_text(body: bytes) -> bool:
    sample = body[:4_096]
    return b"\0" not in sample and all(byte >= 32 or byte in b"\t\n\r\f\x1b" for byte in sample)
