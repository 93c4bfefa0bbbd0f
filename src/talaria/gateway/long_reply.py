"""Replies that are too long for a chat: cut with a notice, with the whole text attached as a file."""

from pathlib import Path

from msgspec import structs

from talaria.contracts.platform import Content
from talaria.core.messages import File
from talaria.gateway.splitting import close_code_block

REPLY_LIMIT = 200_000
_NEAR = 2_000  # characters before the limit in which a paragraph or a line is looked for
_ATTACHED = "✂ This reply has {length:,} characters. The whole of it is in the attached file."
_LEFT_OUT = "✂ This reply has {length:,} characters; the last {rest:,} were left out."


def shorten(content: Content, limit: int, file: Path | None) -> Content:
    """Return a message of at most about ``limit`` characters.

    The whole text is written to ``file``, which is ``None`` where none can be attached. The same message gives the same
    result each time.
    """
    if len(content.text) <= limit:
        return content
    text, length = _cut(content.text, limit), len(content.text)
    if file is None:
        notice = _LEFT_OUT.format(length=length, rest=length - len(text))
        return structs.replace(content, text=f"{close_code_block(text)}\n\n{notice}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content.text, encoding="utf-8", errors="replace")
    whole = File(str(file), "reply.md", "text/markdown")
    notice = _ATTACHED.format(length=length)
    return structs.replace(content, text=f"{close_code_block(text)}\n\n{notice}", files=(*content.files, whole))


def _cut(text: str, limit: int) -> str:
    """Return the beginning of a text, to the end of a paragraph or a line where there is one near."""
    for border in ("\n\n", "\n", " "):
        place = text.rfind(border, limit - min(_NEAR, limit // 2), limit)
        if place > 0:
            return text[:place].rstrip()
    return text[:limit]
