"""Translate messages for Telegram: keyboards, file names, reactions, command menus."""

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Literal

from msgspec import Struct

from talaria.contracts.platform import Button
from talaria.core.errors import Rejected
from talaria.core.messages import File, Image
from talaria.platforms.content import safe_file_name, sanitize_text

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
_EMOJI_VARIATION = "\ufe0f"  # asks for the coloured form of an emoji; Telegram's list is without
_FALLBACK_REACTIONS = ("👀", "👍")
_SIMILAR_REACTIONS = {
    "✅": ("👍",),
    "✔": ("👍",),
    "☑": ("👍",),
    "❌": ("👎",),
    "🚫": ("👎",),
    "⚠": ("🤔",),
    "⏳": ("👀",),
}


FileKind = Literal["photo", "voice", "document"]


class MenuEntry(Struct, frozen=True):
    """A command in the menu of a bot."""

    name: str
    help: str


def arrange_buttons(buttons: Sequence[Button]) -> list[list[Button]]:
    """Return rows of buttons, short ones side by side. Raises `Rejected` for a value that is too long."""
    rows: list[list[Button]] = []
    columns_left = 0
    for button in buttons:
        if not 1 <= len(button.value.encode()) <= _VALUE_LIMIT:
            raise Rejected(f"on Telegram a button value must have 1 to {_VALUE_LIMIT} bytes: {button.value!r}")
        label = sanitize_text(button.label).strip()[:_LABEL_LIMIT] or button.value
        if len(label) > columns_left:
            rows.append([])
            columns_left = _ROW_WIDTH
        columns_left -= max(len(label), _ROW_WIDTH // 4)
        rows[-1].append(Button(label, button.value))
    return rows


def file_kind(file: File | Image, size: int) -> FileKind:
    """Return the kind under which a file is sent; an image that is too large is a document."""
    if isinstance(file, Image) or file.media_type in _PICTURES:
        return "photo" if file.media_type in _PICTURES and size <= PICTURE_LIMIT else "document"
    return "voice" if file.media_type in _VOICES else "document"


def outgoing_file_name(file: File | Image) -> str:
    """Return the name under which a file is sent."""
    if isinstance(file, File) and file.name:
        return safe_file_name(file.name)
    address = file.source.partition("?")[0]
    fallback = f"picture.{file.media_type.rpartition('/')[2]}"
    return safe_file_name(PurePath(address).name if not address.startswith("data:") else fallback)


def build_menu(commands: Sequence[tuple[str, str]]) -> list[MenuEntry]:
    """Return the menu from (name, help): valid names, as many as fit."""
    return [
        MenuEntry(name, " ".join(sanitize_text(text).split())[:_HELP_LIMIT] or name)
        for name, text in commands
        if _COMMAND.fullmatch(name)
    ][:_MOST_COMMANDS]


def reaction_candidates(emoji: str) -> list[str]:
    """Return the reactions to try for an emoji, the best first: Telegram offers about seventy."""
    plain_emoji = emoji.replace(_EMOJI_VARIATION, "")
    return list(dict.fromkeys([plain_emoji, *_SIMILAR_REACTIONS.get(plain_emoji, _FALLBACK_REACTIONS)]))
