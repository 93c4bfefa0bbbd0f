"""From our vocabulary to Discord's: texts, choices, names, menus of commands, keys."""

import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b

from talaria.contracts.platform import Button
from talaria.core.errors import Rejected
from talaria.platforms.discord.markdown import reshape
from talaria.platforms.text import sendable

TEXT_LIMIT = 2000
FILES_AT_ONCE = 10
MENU = "talaria-menu"
_BUTTONS_IN_A_ROW = 5
_CHOICES = 25
_VALUE_LIMIT = 100
_LABEL_LIMIT = 80
_THREAD_NAME_LIMIT = 100
_HELP_LIMIT = 100
_MOST_COMMANDS = 100

_COMMAND = re.compile(r"[-_a-z0-9]{1,32}")

Payload = dict[str, object]


def format_text(source: str) -> str:
    """Return Markdown as Discord shows it, never longer than allowed when the source is not.

    Raises `Rejected` for a text without anything in it, or one that is too long.
    """
    source = sendable(source).strip("\n")
    if not source.strip():
        raise Rejected("there is nothing to send")
    shaped = reshape(source)
    if shaped.strip() and len(shaped) <= TEXT_LIMIT:
        return shaped
    if len(source) > TEXT_LIMIT:
        raise Rejected(f"a message has at most {TEXT_LIMIT} characters there, this one has {len(source)}")
    return source


def components(buttons: Sequence[Button]) -> list[Payload]:
    """Return up to five choices as buttons, up to 25 as a menu. Raises `Rejected` for more, or for a value too long."""
    if not buttons:
        return []
    if len(buttons) > _CHOICES:
        raise Rejected(f"there are at most {_CHOICES} choices below a message there, not {len(buttons)}")
    for button in buttons:
        if not 1 <= len(button.value) <= _VALUE_LIMIT:
            raise Rejected(f"the value of a button has 1 to {_VALUE_LIMIT} characters there: {button.value!r}")
    labelled = [(sendable(one.label).strip()[:_LABEL_LIMIT] or one.value[:_LABEL_LIMIT], one.value) for one in buttons]
    below: list[Payload]
    if len(buttons) <= _BUTTONS_IN_A_ROW:
        below = [{"type": 2, "style": 2, "label": label, "custom_id": value} for label, value in labelled]
    else:
        options = [{"label": label, "value": value} for label, value in labelled]
        below = [{"type": 3, "custom_id": MENU, "options": options}]
    return [{"type": 1, "components": below}]


def menu(commands: Sequence[tuple[str, str]]) -> list[Payload]:
    """Return commands to register of (name, help): those whose names Discord takes, each with room for more words."""
    return [
        {
            "name": name,
            "type": 1,
            "description": " ".join(sendable(text).split())[:_HELP_LIMIT] or name,
            "options": [{"type": 3, "name": "words", "description": "What goes behind it", "required": False}],
        }
        for name, text in commands
        if _COMMAND.fullmatch(name)
    ][:_MOST_COMMANDS]


def nonce(key: str, part: int) -> str:
    """Return what Discord recognises a part of a message by for some minutes, in the 25 characters that there are."""
    return urlsafe_b64encode(blake2b(f"{key}\n{part}".encode(), digest_size=18).digest()).decode()


def thread_name(name: str) -> str:
    """Return a name for a thread, on one line and short enough."""
    return " ".join(sendable(name).split())[:_THREAD_NAME_LIMIT].strip() or "Conversation"
