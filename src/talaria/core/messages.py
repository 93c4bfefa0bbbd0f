"""Messages of a conversation, made of typed parts, the identity of their senders, and image formats."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

PROGRAM = "Talaria, not a person"  # author of messages that the program itself writes to the agent
ROOM = "room"  # author of a message that contains what other people said in a room
PROGRAM_AUTHORS = frozenset({PROGRAM, ROOM, "tools", "summary", "goal"})
SILENT = "[SILENT]"  # a reply that consists of this is not sent
_AUTHOR_LENGTH = 60
Role = Literal["system", "user", "assistant", "tool"]
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


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
    """The result of the tool call ``call_id``.

    ``files`` are for the person: made by the tool, and not sent to a chat. The model doesn't get them.
    """

    call_id: str
    text: str
    failed: bool = False
    files: tuple[Image | File, ...] = ()


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


def author_label(name: str, user_id: str = "") -> str:
    """Return a label for a person's text in a group: name or id, in brackets, on one line."""
    plain = "".join(one if one.isprintable() and one not in "[]" else " " for one in name or user_id)
    return f"[{' '.join(plain.split())[:_AUTHOR_LENGTH] or 'somebody'}]"


def indent_text(text: str) -> str:
    """Return a text whose lines after the first are indented, so that none of them looks like a label."""
    return "\n  ".join(text.splitlines())


def label_message(message: Message) -> Message:
    """Return a person's message as the model reads it in a group: with its author, other lines indented.

    So no text can pretend to contain a message of another person.
    """
    if message.role != "user" or not message.author or message.author in PROGRAM_AUTHORS:
        return message
    label = author_label(message.author)
    first, *rest = message.parts or (Text(""),)
    opening = (Text(f"{label} {indent_text(first.text)}"),) if isinstance(first, Text) else (Text(label), first)
    later = (Text(f"  {indent_text(part.text)}") if isinstance(part, Text) else part for part in rest)
    return Message(
        role=message.role,
        parts=(*opening, *later),
        at=message.at,
        author=message.author,
        platform_message_id=message.platform_message_id,
    )


class Usage(Struct, frozen=True, omit_defaults=True):
    """Token usage and cost of model calls; money in millionths of a dollar, so that sums are exact."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_microdollars: int = 0


KEYLESS_OWNER = "api"  # all callers without a key together; these never get tools that run programs


def api_owner(key_name: str) -> str:
    """Return the owner of conversations of a key; without a name, of callers without a key."""
    return f"{KEYLESS_OWNER}:{key_name}" if key_name else KEYLESS_OWNER


OWNER = "owner"  # the person at this machine: the terminal, a script, Python
UNKNOWN = ""
_API = "api:"


def chat_sender(platform: str, user_id: str) -> str:
    """Return the sender of a message in a chat; it ends with the colon where the network names nobody."""
    return f"{platform}:{user_id}"


def is_in_chat(sender: str) -> bool:
    """Return whether a text was written in a chat, by any sender."""
    return sender not in (OWNER, UNKNOWN) and not sender.startswith(_API)


def user_id_of(sender: str, platform: str) -> str:
    """Return the id of a sender on a network; empty for a sender from elsewhere."""
    prefix = f"{platform}:"
    return sender.removeprefix(prefix) if sender.startswith(prefix) else ""


def api_sender(key_name: str) -> str:
    """Return the sender of a request to the API."""
    return f"{_API}{key_name}"


def is_same_sender(one: str, other: str) -> bool:
    """Return whether two texts come from the same person; an unknown sender is never the same as another."""
    return one == other != UNKNOWN and not one.endswith(":")


def image_type(head: bytes) -> str | None:
    """Return the media type of an image, or ``None`` for anything else; twelve bytes are enough."""
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return next((media for magic, media in _SIGNATURES.items() if head.startswith(magic)), None)
