"""Convert fetched content of any kind to text."""

import asyncio
import codecs
import re

from talaria.core.errors import ToolFailed
from talaria.tools.web.client import Download

_META_CHARSET = rb"""(?i)<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w-]{2,40})"""
_HTML = {"text/html", "application/xhtml+xml"}
_PLAIN = r"text/.+|application/(.+\+)?(json|xml|yaml|toml|javascript|x-sh|x-ndjson)"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


async def readable_text(download: Download) -> str:
    """Return a page as light Markdown, a PDF as its text, other text unchanged, or raise `ToolFailed`."""
    if download.media_type == "application/pdf" or download.body.startswith(b"%PDF-"):
        from talaria.tools.web.pdf import pdf_text  # noqa: PLC0415 (loaded with the first PDF)

        return await asyncio.to_thread(pdf_text, download.body)
    if download.media_type in _HTML:
        from talaria.tools.web.html_text import page_text  # noqa: PLC0415 (loaded with the first web page)

        return await asyncio.to_thread(page_text, decoded(download), download.url)
    if re.fullmatch(_PLAIN, download.media_type) or _looks_like_text(download.body):
        return decoded(download)
    raise ToolFailed(f"{download.url} is {download.media_type}, which can't be read as text")


def decoded(download: Download) -> str:
    """Decode by the server's charset, a byte order mark, the page's own declaration, or a guess."""
    for charset in _charsets(download):
        try:
            return download.body.decode(charset)
        except (LookupError, UnicodeDecodeError):
            continue
    return download.body.decode("cp1252", errors="replace")


def _charsets(download: Download) -> list[str]:
    marked = [charset for mark, charset in _MARKS if download.body.startswith(mark)]
    named = re.search(_META_CHARSET, download.body[:4_096])
    return [*marked, *filter(None, [download.charset]), *([named[1].decode("ascii")] if named else []), "utf-8"]


def _looks_like_text(body: bytes) -> bool:
    sample = body[:4_096]
    return b"\0" not in sample and all(byte >= 32 or byte in b"\t\n\r\f\x1b" for byte in sample)
