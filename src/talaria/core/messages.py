"""What is said in a conversation: messages made of typed parts."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

Role = Literal["system", "user", "assistant", "tool"]


class Text(Struct, frozen=True, tag="text"):
    """Words."""

    text: str


class Image(Struct, frozen=True, tag="image"):
    """A picture: ``source`` is an address or a file that the owner of the conversation may read."""

    source: str
    media_type: str = "image/png"


class File(Struct, frozen=True, tag="file", omit_defaults=True):
    """A document, a voice note, or anything else that is not a picture."""

    source: str
    name: str
    media_type: str = "application/octet-stream"


class Reasoning(Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """What the model thought aloud; ``signature`` lets its provider take it back."""

    text: str
    signature: str = ""


class ToolCall(Struct, frozen=True, tag="tool_call"):
    """The model asks for a tool; ``arguments`` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


class ToolResult(Struct, frozen=True, tag="tool_result", omit_defaults=True):
    """What a tool answered to the call ``call_id``."""

    call_id: str
    text: str
    failed: bool = False


Part = Text | Image | File | Reasoning | ToolCall | ToolResult


def text_of(parts: tuple[Part, ...]) -> str:
    """Return the words in some parts: what was said and what tools answered, not what the model thought."""
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
        """What a reader sees and what search finds."""
        return text_of(self.parts)


class Usage(Struct, frozen=True, omit_defaults=True):
    """What model calls used; money in millionths of a dollar, so that sums are exact."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_microdollars: int = 0
