"""Translate messages, choices, names and command menus for Discord."""

import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b

from talaria.contracts.platform import Button
from talaria.core.errors import Rejected
from talaria.platforms.discord.markdown import reshape
from talaria.platforms.text import sanitize_text

TEXT_LIMIT = 2000
MOST_FILES = 10
MENU_ID = "talaria-menu"
_MOST_BUTTONS = 5
_MOST_CHOICES = 25
_VALUE_LIMIT = 100
_LABEL_LIMIT = 80
_THREAD_NAME_LIMIT = 100
_HELP_LIMIT = 100
_MOST_COMMANDS = 100

_COMMAND = re.compile(r"[-_a-z0-9]{1,32}")

Payload = dict[str, object]


def format_text(source: str) -> str:
    """Return Markdown for Discord, never longer than allowed if the source isn't.

    Raises `Rejected` for an empty text, or one that is too long.
    """
    source = sanitize_text(source).strip("\n")
    if not source.strip():
        raise Rejected("there is nothing to send")
    reshaped = reshape(source)
    if reshaped.strip() and len(reshaped) <= TEXT_LIMIT:
        return reshaped
    if len(source) > TEXT_LIMIT:
        raise Rejected(f"Discord allows at most {TEXT_LIMIT} characters per message; this one has {len(source)}")
    return source


def build_components(buttons: Sequence[Button]) -> list[Payload]:
    """Return up to five choices as buttons, up to 25 as a menu; raises `Rejected` for more or long values."""
    if not buttons:
        return []
    if len(buttons) > _MOST_CHOICES:
        raise Rejected(f"Discord allows at most {_MOST_CHOICES} choices per message, not {len(buttons)}")
    for button in buttons:
        if not 1 <= len(button.value) <= _VALUE_LIMIT:
            raise Rejected(f"on Discord a button value must have 1 to {_VALUE_LIMIT} characters: {button.value!r}")
    label_values = [
        (sanitize_text(one.label).strip()[:_LABEL_LIMIT] or one.value[:_LABEL_LIMIT], one.value) for one in buttons
    ]
    elements: list[Payload]
    if len(buttons) <= _MOST_BUTTONS:
        elements = [{"type": 2, "style": 2, "label": label, "custom_id": value} for label, value in label_values]
    else:
        options = [{"label": label, "value": value} for label, value in label_values]
        elements = [{"type": 3, "custom_id": MENU_ID, "options": options}]
    return [{"type": 1, "components": elements}]


def build_menu(commands: Sequence[tuple[str, str]]) -> list[Payload]:
    """Return commands to register from (name, help): those with valid names, each with an argument."""
    return [
        {
            "name": name,
            "type": 1,
            "description": " ".join(sanitize_text(text).split())[:_HELP_LIMIT] or name,
            "options": [{"type": 3, "name": "words", "description": "Arguments", "required": False}],
        }
        for name, text in commands
        if _COMMAND.fullmatch(name)
    ][:_MOST_COMMANDS]


def make_nonce(key: str, part: int) -> str:
    """Return a nonce of 25 characters, by which Discord recognises a repeated message for some minutes."""
    return urlsafe_b64encode(blake2b(f"{key}\n{part}".encode(), digest_size=18).digest()).decode()


def make_thread_name(name: str) -> str:
    """Return a name for a thread, on one line and short enough."""
    return " ".join(sanitize_text(name).split())[:_THREAD_NAME_LIMIT].strip() or "Conversation"
