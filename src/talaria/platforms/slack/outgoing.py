"""From our vocabulary to Slack's: messages with their blocks, buttons, names of files."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Button, Content
from talaria.core.errors import Rejected
from talaria.platforms.slack.blocks import MOST_BLOCKS, Preformatted, RichText, Section, TextBlock, Words, as_mrkdwn
from talaria.platforms.slack.markdown import read_markdown
from talaria.platforms.slack.wording import escape
from talaria.platforms.text import sendable

# Slack takes 40,000 characters. Each of ours may take five of these, as `&` does, and is taken whole all the same.
TEXT_LIMIT = 8000
_WIRE_LIMIT = 40_000
_SECTION_LIMIT = 3000
_LABEL_LIMIT = 75
_VALUE_LIMIT = 2000
_OPTION_VALUE_LIMIT = 150
_MOST_BUTTONS = 5
_MOST_OPTIONS = 100
_SEED_LIMIT = 150

# What would mean something to Slack within a plain text.
_SIGNS = re.compile(r"[*_~`]|:[\w+'-]+:|^[^\S\n]*>|^[^\S\n]*•", re.MULTILINE)


class Post(Struct, frozen=True):
    """A message as Slack takes it; ``blocks`` are empty where there is nothing but text."""

    text: str
    blocks: list[dict[str, Any]] = []


def make_posts(content: Content) -> Iterator[Post]:
    """Yield a message as it should be, and then as it may be where Slack does not take that: the last is plain.

    Raises `Rejected`, before the first, for one that is empty or longer than Slack takes.
    """
    best = make_post(content)
    yield best
    drawn = make_post(content, tables=0)
    if drawn != best:
        yield drawn
    yield make_plain_post(content)


def make_post(content: Content, *, tables: int = 1) -> Post:
    """Return a message with so many tables as blocks."""
    source = sendable(content.text).strip("\n")
    if not source.strip():
        raise Rejected("there is nothing to send")
    if len(source) > TEXT_LIMIT:
        raise Rejected(f"a message has at most {TEXT_LIMIT} characters there, this one has {len(source)}")
    written = read_markdown(source, tables=tables)
    if not written:  # such as a line that only says where a link leads
        written = [RichText((Preformatted((Words(source),)),))]
    is_plain = _plain_text(written) == source and not _SIGNS.search(source)
    text = escape(source) if is_plain else as_mrkdwn(written)
    blocks = [] if is_plain and not content.buttons else list(written)
    buttons = _actions(content.buttons)
    if len(blocks) + bool(buttons) > MOST_BLOCKS or len(text) > _WIRE_LIMIT:
        return make_plain_post(content)
    return Post(text, [*_encoded(blocks), *buttons])


def make_plain_post(content: Content) -> Post:
    """Return the same message without marks, for where they are not taken."""
    source = sendable(content.text).strip("\n")
    if not content.buttons:
        return Post(escape(source))
    pieces = [source[at : at + _SECTION_LIMIT] for at in range(0, len(source), _SECTION_LIMIT)]
    sections = [{"type": "section", "text": {"type": "plain_text", "text": piece}} for piece in pieces]
    return Post(escape(source), [*sections, *_actions(content.buttons)])


def seed_text(name: str) -> str:
    """Return the words that a thread begins with, on one line and short enough."""
    return " ".join(sendable(name).split())[:_SEED_LIMIT] or "Conversation"


def _actions(buttons: Sequence[Button]) -> list[dict[str, Any]]:
    """Return what can be pressed: some buttons, or a list to choose from where they are many."""
    if not buttons:
        return []
    for button in buttons:
        if not 1 <= len(button.value) <= _VALUE_LIMIT:
            raise Rejected(f"the value of a button has 1 to {_VALUE_LIMIT} characters there: {button.value[:50]!r}")
    if len(buttons) > _MOST_OPTIONS:
        raise Rejected(f"there are at most {_MOST_OPTIONS} choices below a message there, not {len(buttons)}")
    if len(buttons) > _MOST_BUTTONS:
        return [{"type": "actions", "elements": [_select(buttons)]}]
    elements = [
        {"type": "button", "action_id": f"talaria-{number}", "text": _label(button), "value": button.value}
        for number, button in enumerate(buttons)
    ]
    return [{"type": "actions", "elements": elements}]


def _select(buttons: Sequence[Button]) -> dict[str, Any]:
    for button in buttons:
        if len(button.value) > _OPTION_VALUE_LIMIT:
            raise Rejected(f"the value of a choice has at most {_OPTION_VALUE_LIMIT} characters there")
    return {
        "type": "static_select",
        "action_id": "talaria-choice",
        "placeholder": {"type": "plain_text", "text": "Choose…"},
        "options": [{"text": _label(button), "value": button.value} for button in buttons],
    }


def _label(button: Button) -> dict[str, Any]:
    label = " ".join(sendable(button.label).split()) or button.value
    return {"type": "plain_text", "text": label[:_LABEL_LIMIT], "emoji": True}


def _plain_text(blocks: Sequence[TextBlock]) -> str | None:
    """Return all of a text that has no marks; ``None`` where it has some."""
    match blocks:
        case [RichText(elements=(Section(elements=(Words(text=text, style=None),)),))]:
            return text
    return None


def _encoded(blocks: Sequence[TextBlock]) -> list[dict[str, Any]]:
    encoded: list[dict[str, Any]] = msgspec.to_builtins(blocks)
    return encoded
