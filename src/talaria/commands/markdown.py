"""Text of others inside our Markdown: shown as it is, whatever signs are in it."""

import re

from talaria.core.messages import Message, Reasoning, Text
from talaria.sessions.transcripts import closed, code, in_a_line

_SIGNS = re.compile(r"([\\`*_{}\[\]<>#|~])")
_LONGEST_LINE = 120


def plain(text: str) -> str:
    """Return text on one line in which no sign has a meaning."""
    return _SIGNS.sub(r"\\\1", " ".join(text.split()))


def shortened(text: str, longest: int) -> str:
    """Return the beginning of a text, with an ellipsis where some of it is missing."""
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def readable(message: Message, longest: int) -> str:
    """Return a message for somebody who reads it again: its words as they are, tools in a line each."""
    words = "\n\n".join(part.text.strip() for part in message.parts if isinstance(part, Text))
    others = [part for part in message.parts if not isinstance(part, Text | Reasoning)]
    lines = [f"- {code(shortened(in_a_line(part), _LONGEST_LINE))}" for part in others]
    return "\n\n".join(filter(None, [closed(shortened(words, longest)), "\n".join(lines)]))
