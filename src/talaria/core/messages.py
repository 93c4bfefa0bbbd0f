"""Messages of a conversation, made of typed parts."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

PROGRAM = "Talaria, not a person"  # author of messages that the program itself writes to the agent

Role = Literal["system", "user", "assistant", "tool"]


class Text(Struct, frozen=True, tag="text"):
    """Plain text."""

    text: str


class Image(Struct, frozen=True, tag="image"):
    """An image; ``source`` is a URL or a file that the session's owner may read."""

    source: str
    media_type: str = "image/png"


class File(Struct, frozen=True, tag="file", omit_defaults=True):
    """A document, a voice note, or any other file that is not an image."""

    source: str
    name: str
    media_type: str = "application/octet-stream"


class Reasoning(Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """The model's reasoning; ``signature`` lets its provider accept it again."""

    text: str
    signature: str = ""


class ToolCall(Struct, frozen=True, tag="tool_call"):
    """A call of a tool by the model; ``arguments`` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


class ToolResult(Struct, frozen=True, tag="tool_result", omit_defaults=True):
    """The result of the tool call ``call_id``."""

    call_id: str
    text: str
    failed: bool = False


Part = Text | Image | File | Reasoning | ToolCall | ToolResult


def text_of(parts: tuple[Part, ...]) -> str:
    """Return the text of some parts: messages and tool results, not reasoning."""
    return "\n".join(part.text for part in parts if isinstance(part, Text | ToolResult))


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of a transcript."""

    role: Role
    parts: tuple[Part, ...]
    at: datetime
    author: str = ""
    model: str = ""
    tokens: int | None = None
    platform_message_id: str | None = None

    @property
    def text(self) -> str:
        """Return the text that a reader sees and search finds."""
        return text_of(self.parts)


class Usage(Struct, frozen=True, omit_defaults=True):
    """Token usage and cost of model calls; money in millionths of a dollar, so that sums are exact."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_microdollars: int = 0
