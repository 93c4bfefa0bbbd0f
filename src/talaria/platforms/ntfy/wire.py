"""Translation between messages of ntfy and the vocabulary, without I/O."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal
from urllib.parse import quote

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Attachment, Incoming, Sender
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.platforms.content import sanitize_text
from talaria.platforms.ntfy.settings import NtfySettings

TEXT_LIMIT = 4096  # bytes; the server turns a longer message into a file
_PAUSE = timedelta(seconds=60)  # of a server that doesn't say how long
_ERROR_TEXT = 200


class NtfyFile(Struct, frozen=True):
    """A file of a message, on this or another server."""

    name: str
    url: str
    type: str = ""
    size: int = 0


class NtfyMessage(Struct, frozen=True):
    """An event of the stream; only ``message`` events have text."""

    id: str
    time: int
    event: Literal["open", "keepalive", "message", "poll_request", "message_delete", "message_clear"]
    topic: str
    message: str = ""
    title: str = ""
    attachment: NtfyFile | None = None


class _Publish(Struct, frozen=True, omit_defaults=True):
    topic: str
    message: str
    title: str
    markdown: bool


_decode = msgspec.json.Decoder(NtfyMessage).decode


def read_message(data: bytes) -> NtfyMessage | None:
    """Return an event of the stream or the answer to a publication; ``None`` if it is of an unknown kind."""
    try:
        return _decode(data)
    except msgspec.DecodeError:
        return None


def to_incoming(message: NtfyMessage, settings: NtfySettings) -> Incoming | None:
    """Return what a person published; ``None`` for our own messages and for signs of life.

    ntfy has no senders: everyone who may publish to a topic is one sender, named after the topic.
    """
    if message.event != "message" or message.title == settings.title:
        return None
    text = f"{message.title}\n{message.message}" if message.title else message.message
    files: tuple[Attachment, ...] = ()
    if (file := message.attachment) is not None:
        kind = "picture" if file.type.startswith("image/") else "document"
        files = (Attachment(file.url, kind, file.name, file.type, file.size),)  # type: ignore[arg-type] # a literal
    return Incoming(
        external_id=message.id,
        address=Address(settings.name, message.topic),
        sender=Sender(message.topic, message.topic),
        at=datetime.fromtimestamp(message.time, UTC),
        text=text,
        attachments=files,
        message_id=message.id,
        chat_name=message.topic,
    )


def encode_text(topic: str, text: str, settings: NtfySettings) -> bytes:
    """Return the body that publishes a text; raises `Rejected` if it is empty or too long."""
    text = _check(text)
    if not text.strip():
        raise Rejected("a message without text can't be published")
    return msgspec.json.encode(_Publish(topic, text, settings.title, markdown=True))


def file_query(text: str, name: str, settings: NtfySettings) -> str:
    """Return the query that describes a file; the text, if any, is shown above it."""
    text = _check(text)
    fields = {"filename": name, "title": settings.title} | ({"message": text} if text.strip() else {})
    return "&".join(f"{field}={quote(value, safe='')}" for field, value in fields.items())


def to_error(status: int, body: bytes, headers: Mapping[str, str], *, receiving: bool = False) -> PlatformError:
    """Return the error for a refused request; a topic that may not be read makes the account useless."""
    text = body[:_ERROR_TEXT].decode(errors="replace").strip()
    if status == 401 or (status == 403 and receiving):
        return BadCredentials("the ntfy server doesn't accept the token, or the topic may not be read with it")
    if status == 429:
        seconds = headers.get("retry-after", "")
        pause = timedelta(seconds=int(seconds)) if seconds.isdigit() else _PAUSE
        return SlowDown("the ntfy server asks for a pause", retry_after=pause, everywhere=True)
    if 400 <= status < 500:
        return Rejected(f"the ntfy server refuses it with status {status}: {text}")
    return Unreachable(f"the ntfy server failed with status {status}: {text}")


def _check(text: str) -> str:
    text = sanitize_text(text)
    if (size := len(text.encode())) > TEXT_LIMIT:
        raise Rejected(f"a message has at most {TEXT_LIMIT} bytes, and this one {size}")
    return text
