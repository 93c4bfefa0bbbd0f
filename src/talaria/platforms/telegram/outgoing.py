"""From our vocabulary to Telegram's: texts with marks, keyboards, names of files, menus of commands."""

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Literal

from msgspec import Struct

from talaria.contracts.platform import Button
from talaria.core.errors import Rejected
from talaria.core.messages import File, Image
from talaria.platforms.files import safe_name
from talaria.platforms.telegram.entities import Formatted, assemble, utf16_length
from talaria.platforms.telegram.markdown import read_markdown
from talaria.platforms.text import sendable

TEXT_LIMIT = 4096
CAPTION_LIMIT = 1024
FILE_LIMIT = 50 * 1024 * 1024
PICTURE_LIMIT = 10 * 1024 * 1024
TOPIC_NAME_LIMIT = 128
_VALUE_LIMIT = 64
_LABEL_LIMIT = 64
_ROW_WIDTH = 24
_MOST_COMMANDS = 100
_HELP_LIMIT = 256

_COMMAND = re.compile(r"[a-z0-9_]{1,32}")
_PICTURES = frozenset({"image/jpeg", "image/png", "image/webp"})
_VOICES = frozenset({"audio/ogg", "audio/opus", "audio/ogg; codecs=opus"})

_COLOURED = "\ufe0f"  # asks for the coloured form of an emoji; Telegram's list does without
_NEUTRAL = ("👀", "👍")
_STAND_INS = {"✅": ("👍",), "✔": ("👍",), "☑": ("👍",), "❌": ("👎",), "🚫": ("👎",), "⚠": ("🤔",), "⏳": ("👀",)}

FileKind = Literal["photo", "voice", "document"]


class MenuEntry(Struct, frozen=True):
    """A command in the menu of a bot."""

    name: str
    help: str


def format_text(source: str, limit: int = TEXT_LIMIT) -> Formatted:
    """Return Markdown as a text with marks, never longer than the limit when the source is not.

    Where marks would make it longer, or leave nothing to see, it is the source itself. Raises `Rejected` for a text
    without anything in it, or one that is too long.
    """
    source = sendable(source).strip("\n")
    if not source.strip():
        raise Rejected("there is nothing to send")
    for aligned in (True, False):
        formatted = assemble(read_markdown(source, aligned_tables=aligned))
        if formatted.text.strip() and utf16_length(formatted.text) <= limit:
            return formatted
    if utf16_length(source) > limit:
        raise Rejected(f"a message has at most {limit} characters there, this one has {utf16_length(source)}")
    return Formatted(source)


def arrange(buttons: Sequence[Button]) -> list[list[Button]]:
    """Return rows of buttons: short ones side by side. Raises `Rejected` for a value that is too long."""
    rows: list[list[Button]] = []
    room = 0
    for button in buttons:
        if not 1 <= len(button.value.encode()) <= _VALUE_LIMIT:
            raise Rejected(f"the value of a button has 1 to {_VALUE_LIMIT} bytes there: {button.value!r}")
        label = sendable(button.label).strip()[:_LABEL_LIMIT] or button.value
        if len(label) > room:
            rows.append([])
            room = _ROW_WIDTH
        room -= max(len(label), _ROW_WIDTH // 4)
        rows[-1].append(Button(label, button.value))
    return rows


def kind_of(file: File | Image, size: int) -> FileKind:
    """Return as what a file is shown; a picture that is too large for one is a document."""
    if isinstance(file, Image) or file.media_type in _PICTURES:
        return "photo" if file.media_type in _PICTURES and size <= PICTURE_LIMIT else "document"
    return "voice" if file.media_type in _VOICES else "document"


def name_of(file: File | Image) -> str:
    """Return the name under which a file is sent."""
    if isinstance(file, File) and file.name:
        return safe_name(file.name)
    address = file.source.partition("?")[0]
    fallback = f"picture.{file.media_type.rpartition('/')[2]}"
    return safe_name(PurePath(address).name if not address.startswith("data:") else fallback)


def menu(commands: Sequence[tuple[str, str]]) -> list[MenuEntry]:
    """Return what can stand in the menu of (name, help): names that Telegram takes, as many as fit."""
    return [
        MenuEntry(name, " ".join(sendable(text).split())[:_HELP_LIMIT] or name)
        for name, text in commands
        if _COMMAND.fullmatch(name)
    ][:_MOST_COMMANDS]


def marks_for(emoji: str) -> list[str]:
    """Return what may be put on a message for an emoji, the best first: Telegram offers some seventy."""
    wanted = emoji.replace(_COLOURED, "")
    return list(dict.fromkeys([wanted, *_STAND_INS.get(wanted, _NEUTRAL)]))


def topic_name(name: str) -> str:
    """Return a name for a topic, on one line and short enough."""
    return " ".join(sendable(name).split())[:TOPIC_NAME_LIMIT] or "Conversation"
