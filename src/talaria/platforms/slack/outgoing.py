"""Translate messages for Slack: blocks, buttons, file names."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Button, Content
from talaria.core.errors import Rejected
from talaria.platforms.content import sanitize_text
from talaria.platforms.slack.blocks import (
    MOST_BLOCKS,
    Preformatted,
    RichText,
    Section,
    TextBlock,
    TextElement,
    as_mrkdwn,
)
from talaria.platforms.slack.incoming import escape
from talaria.platforms.slack.markdown import read_markdown

# Slack accepts 40,000 characters. Each of ours may take five of these, as `&` does.
TEXT_LIMIT = 8000
_WIRE_LIMIT = 40_000
_SECTION_LIMIT = 3000
_LABEL_LIMIT = 75
_VALUE_LIMIT = 2000
_OPTION_VALUE_LIMIT = 150
_MOST_BUTTONS = 5
_MOST_OPTIONS = 100
_STARTER_LIMIT = 150

# Characters with a meaning in Slack's plain text.
_MARKUP = re.compile(r"[*_~`]|:[\w+'-]+:|^[^\S\n]*>|^[^\S\n]*•", re.MULTILINE)


class Post(Struct, frozen=True):
    """A message for Slack; ``blocks`` are empty for plain text."""

    text: str
    blocks: list[dict[str, Any]] = []


def make_posts(content: Content) -> Iterator[Post]:
    """Yield a message in its best form, then simpler forms in case Slack refuses; the last is plain.

    Raises `Rejected`, before the first, for one that is empty or too long.
    """
    best = make_post(content)
    yield best
    drawn = make_post(content, tables=0)
    if drawn != best:
        yield drawn
    yield make_plain_post(content)


def make_post(content: Content, *, tables: int = 1) -> Post:
    """Return a message with so many tables as blocks."""
    source = sanitize_text(content.text).strip("\n")
    if not source.strip():
        raise Rejected("there is nothing to send")
    if len(source) > TEXT_LIMIT:
        raise Rejected(f"Slack allows at most {TEXT_LIMIT} characters per message; this one has {len(source)}")
    text_blocks = read_markdown(source, tables=tables)
    if not text_blocks:  # for example a line that only defines a link
        text_blocks = [RichText((Preformatted((TextElement(source),)),))]
    is_plain = _find_plain_text(text_blocks) == source and not _MARKUP.search(source)
    text = escape(source) if is_plain else as_mrkdwn(text_blocks)
    blocks = [] if is_plain and not content.buttons else list(text_blocks)
    buttons = _build_action_blocks(content.buttons)
    if len(blocks) + bool(buttons) > MOST_BLOCKS or len(text) > _WIRE_LIMIT:
        return make_plain_post(content)
    return Post(text, [*_encode_blocks(blocks), *buttons])


def make_plain_post(content: Content) -> Post:
    """Return the same message without formatting."""
    source = sanitize_text(content.text).strip("\n")
    if not content.buttons:
        return Post(escape(source))
    pieces = [source[at : at + _SECTION_LIMIT] for at in range(0, len(source), _SECTION_LIMIT)]
    sections = [{"type": "section", "text": {"type": "plain_text", "text": piece}} for piece in pieces]
    return Post(escape(source), [*sections, *_build_action_blocks(content.buttons)])


def starter_text(name: str) -> str:
    """Return the first text of a thread, on one line and short enough."""
    return " ".join(sanitize_text(name).split())[:_STARTER_LIMIT] or "Conversation"


def _build_action_blocks(buttons: Sequence[Button]) -> list[dict[str, Any]]:
    """Return the interactive elements: some buttons, or a list to choose from for many."""
    if not buttons:
        return []
    for button in buttons:
        if not 1 <= len(button.value) <= _VALUE_LIMIT:
            raise Rejected(f"on Slack a button value must have 1 to {_VALUE_LIMIT} characters: {button.value[:50]!r}")
    if len(buttons) > _MOST_OPTIONS:
        raise Rejected(f"Slack allows at most {_MOST_OPTIONS} choices per message, not {len(buttons)}")
    if len(buttons) > _MOST_BUTTONS:
        return [{"type": "actions", "elements": [_select_element(buttons)]}]
    elements = [
        {
            "type": "button",
            "action_id": f"talaria-{number}",
            "text": _build_label_element(button),
            "value": button.value,
        }
        for number, button in enumerate(buttons)
    ]
    return [{"type": "actions", "elements": elements}]


def _select_element(buttons: Sequence[Button]) -> dict[str, Any]:
    for button in buttons:
        if len(button.value) > _OPTION_VALUE_LIMIT:
            raise Rejected(f"on Slack a choice value may have at most {_OPTION_VALUE_LIMIT} characters")
    return {
        "type": "static_select",
        "action_id": "talaria-choice",
        "placeholder": {"type": "plain_text", "text": "Choose…"},
        "options": [{"text": _build_label_element(button), "value": button.value} for button in buttons],
    }


def _build_label_element(button: Button) -> dict[str, Any]:
    label = " ".join(sanitize_text(button.label).split()) or button.value
    return {"type": "plain_text", "text": label[:_LABEL_LIMIT], "emoji": True}


def _find_plain_text(blocks: Sequence[TextBlock]) -> str | None:
    """Return the text if it has no formatting; otherwise ``None``."""
    match blocks:
        case [RichText(elements=(Section(elements=(TextElement(text=text, style=None),)),))]:
            return text
    return None


def _encode_blocks(blocks: Sequence[TextBlock]) -> list[dict[str, Any]]:
    encoded: list[dict[str, Any]] = msgspec.to_builtins(blocks)
    return encoded
