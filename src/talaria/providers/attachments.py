"""Bring the pictures and documents of a conversation into the request, where they lie in files."""

import asyncio
import base64
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from talaria.core.messages import File, Image, Message, Part, Text
from talaria.providers.transcript import note_on

MAX_BYTES = 20 * 1024 * 1024


async def load_attachments(messages: Sequence[Message], wanted: Callable[[Image | File], bool]) -> tuple[Message, ...]:
    """Return the messages with each wanted local file as a ``data:`` address; what cannot be read becomes words."""
    if not any(_is_local(part) and wanted(part) for message in messages for part in _attached(message)):
        return tuple(messages)
    return await asyncio.to_thread(_load, messages, wanted)


def _load(messages: Sequence[Message], wanted: Callable[[Image | File], bool]) -> tuple[Message, ...]:
    return tuple(
        msgspec.structs.replace(message, parts=tuple(_loaded(part, wanted) for part in message.parts))
        for message in messages
    )


def _loaded(part: Part, wanted: Callable[[Image | File], bool]) -> Part:
    if not isinstance(part, Image | File) or not _is_local(part) or not wanted(part):
        return part
    path = Path(part.source.removeprefix("file://"))
    try:
        if path.stat().st_size > MAX_BYTES:
            return Text(f"{note_on(part)} is too large to be shown.")
        data = base64.b64encode(path.read_bytes()).decode()
    except (OSError, ValueError):
        return Text(f"{note_on(part)} can no longer be read.")
    return msgspec.structs.replace(part, source=f"data:{part.media_type};base64,{data}")


def _attached(message: Message) -> list[Image | File]:
    return [part for part in message.parts if isinstance(part, Image | File)]


def _is_local(part: Image | File) -> bool:
    return not part.source.startswith(("http://", "https://", "data:"))
