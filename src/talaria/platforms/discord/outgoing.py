"""Translate messages, choices, names and command menus for Discord."""

import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b
from unicodedata import combining, east_asian_width

from markdown_it import MarkdownIt
from markdown_it.token import Token

from talaria.contracts.platform import Button
from talaria.core.errors import Rejected
from talaria.platforms.content import sanitize_text

MAX_TABLE_WIDTH = 60
_PARSER = MarkdownIt("commonmark").enable("table")
_PICTURE = re.compile(r"!\[([^\]\n]*)\]\((<[^>\n]*>|[^\s)]+)[^)\n]*\)")
_MARKS = re.compile(r"(\*\*|__|~~|`)")
_HEADING_PREFIXES = {"h1": "# ", "h2": "## ", "h3": "### "}
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


def reshape(source: str) -> str:
    """Return a text with tables in monospace, and other unsupported markup made readable."""
    lines = source.split("\n")
    tokens = _PARSER.parse(source)
    for position in range(len(tokens) - 1, -1, -1):
        token = tokens[position]
        if token.map is None:
            continue
        begin, end = token.map
        if token.type == "table_open":
            lines[begin:end] = [*_format_table(tokens[position:]), *_find_trailing_blank(lines[begin:end])]
        elif token.type == "heading_open":
            _rewrite_heading(lines, token, tokens[position + 1].content)
        elif token.type == "inline" and any(child.type == "image" for child in token.children or ()):
            lines[begin:end] = [_PICTURE.sub(_format_picture_link, line) for line in lines[begin:end]]
    return "\n".join(lines)


def _rewrite_heading(lines: list[str], token: Token, title: str) -> None:
    """Return a heading in one of Discord's three sizes, or bold text."""
    assert token.map is not None
    begin, end = token.map
    underlined = token.markup in ("=", "-")
    if token.level or (token.tag in _HEADING_PREFIXES and not underlined):
        return
    lines[begin:end] = [f"{_HEADING_PREFIXES[token.tag]}{title}" if underlined else f"**{_MARKS.sub('', title)}**"]


def _format_picture_link(found: re.Match[str]) -> str:
    return f"[{found[1]}]({found[2]})" if found[1] else found[2]


def _find_trailing_blank(lines: list[str]) -> list[str]:
    """Return the empty lines at the end, which belong to what follows."""
    return [""] if lines and not lines[-1].strip() else []


def _format_table(tokens: list[Token]) -> list[str]:
    rows = _read_rows(tokens)
    widths = [max(map(_measure_width, column)) for column in zip(*rows, strict=True)]
    if sum(widths) + 3 * (len(widths) - 1) > MAX_TABLE_WIDTH:
        return _format_rows_as_list(rows)
    table_lines = [
        " │ ".join(
            text + " " * (width - _measure_width(text)) for text, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    table_lines.insert(1, "─┼─".join("─" * width for width in widths))
    return ["```", *table_lines, "```"]


def _read_rows(tokens: list[Token]) -> list[list[str]]:
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "table_close":
            break
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append(_MARKS.sub("", token.content).replace("```", "'''"))
    return rows


def _format_rows_as_list(rows: list[list[str]]) -> list[str]:
    """Return a line per row: the first cell, then the others after their column names."""
    head, *others = rows
    if not others:
        return [f"**{', '.join(filter(None, head))}**"]
    return [
        f"- **{row[0]}**: " + "; ".join(f"{name}: {cell}" for name, cell in zip(head[1:], row[1:], strict=True) if cell)
        for row in others
    ]


def _measure_width(text: str) -> int:
    return sum(0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text)


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
