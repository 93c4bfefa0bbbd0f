"""Replies that are too long for a chat: cut with a notice, with the whole text attached as a file."""

from pathlib import Path

from msgspec import structs

from talaria.contracts.platform import Content
from talaria.core.messages import File
from talaria.gateway.outbound.splitting import close_code_block

_SEARCH_WINDOW = 2_000  # characters before the limit in which a paragraph, line or word end is searched
_ATTACHED_NOTICE = "✂ This reply has {length:,} characters. The attached file has the full text."
_OMITTED_NOTICE = "✂ This reply has {length:,} characters; the last {rest:,} were left out."


def shorten(content: Content, limit: int, file: Path | None) -> Content:
    """Return a message that is longer than ``limit`` characters, cut near that limit.

    The whole text is written to ``file``, which is ``None`` if the network takes no files. The same message always
    gives the same result.
    """
    text, length = _cut_text(content.text, limit), len(content.text)
    if file is None:
        notice = _OMITTED_NOTICE.format(length=length, rest=length - len(text))
        return structs.replace(content, text=f"{close_code_block(text)}\n\n{notice}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content.text, encoding="utf-8", errors="replace")
    whole = File(str(file), "reply.md", "text/markdown")
    notice = _ATTACHED_NOTICE.format(length=length)
    return structs.replace(content, text=f"{close_code_block(text)}\n\n{notice}", files=(*content.files, whole))


def _cut_text(text: str, limit: int) -> str:
    """Return the beginning of a text, cut at a paragraph, line or word end near the limit, if possible."""
    for border in ("\n\n", "\n", " "):
        end = text.rfind(border, limit - min(_SEARCH_WINDOW, limit // 2), limit)
        if end > 0:
            return text[:end].rstrip()
    return text[:limit]
