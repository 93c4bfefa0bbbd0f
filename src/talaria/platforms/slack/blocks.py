"""Slack blocks: rich text, tables, dividers and interactive elements."""

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias
from unicodedata import combining, east_asian_width

from msgspec import Struct

from talaria.platforms.slack.incoming import escape

MOST_BLOCKS = 50
MOST_ROWS = 100
MOST_COLUMNS = 20
MOST_CELL_CHARACTERS = 10_000


class Style(Struct, frozen=True, omit_defaults=True):
    """The formatting of a piece of text."""

    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False


class TextElement(Struct, frozen=True, omit_defaults=True, tag="text"):
    """A piece of plain text."""

    text: str
    style: Style | None = None


class Link(Struct, frozen=True, omit_defaults=True, tag="link"):
    """A link."""

    url: str
    text: str = ""
    style: Style | None = None


Inline: TypeAlias = TextElement | Link


class Section(Struct, frozen=True, tag="rich_text_section"):
    """Some lines of text."""

    elements: tuple[Inline, ...]


class Preformatted(Struct, frozen=True, tag="rich_text_preformatted"):
    """Code."""

    elements: tuple[TextElement, ...]


class Quote(Struct, frozen=True, tag="rich_text_quote"):
    """Quoted lines."""

    elements: tuple[Inline, ...]


class ListElement(Struct, frozen=True, omit_defaults=True, tag="rich_text_list"):
    """Items of a list at one depth; ``offset`` is the number of items before them."""

    style: Literal["bullet", "ordered"]
    elements: tuple[Section, ...]
    indent: int = 0
    offset: int = 0


Element: TypeAlias = Section | Preformatted | Quote | ListElement


class RichText(Struct, frozen=True, tag="rich_text"):
    """Formatted text."""

    elements: tuple[Element, ...]


class Divider(Struct, frozen=True, tag="divider"):
    """A horizontal line."""


class Cell(Struct, frozen=True, tag="raw_text"):
    """A cell of a table."""

    text: str


class Column(Struct, frozen=True):
    """The display of a table column."""

    is_wrapped: bool = True
    align: Literal["left", "center", "right"] = "left"


class Table(Struct, frozen=True, tag="table"):
    """A table, with its header in the first row."""

    rows: tuple[tuple[Cell, ...], ...]
    column_settings: tuple[Column, ...] = ()


TextBlock: TypeAlias = RichText | Divider | Table


def as_mrkdwn(blocks: Sequence[TextBlock]) -> str:
    """Return blocks as mrkdwn, for places that don't show blocks."""
    return "\n".join(filter(None, (_format_block(block).strip("\n") for block in blocks)))


def draw_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in monospace, with aligned columns."""
    widths = [max(map(_measure_width, column)) for column in zip(*rows, strict=True)]
    lines = [
        " │ ".join(
            text + " " * (width - _measure_width(text)) for text, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "─┼─".join("─" * width for width in widths))
    return "\n".join(lines)


def _format_block(block: TextBlock) -> str:
    match block:
        case Divider():
            return "———"
        case Table():
            return f"```\n{escape(draw_table([[cell.text.strip() for cell in row] for row in block.rows]))}\n```"
        case RichText():
            return "\n".join(_iterate_lines(block.elements))


def _iterate_lines(elements: Sequence[Element]) -> Iterator[str]:
    for element in elements:
        match element:
            case Section():
                yield _join_inline(element.elements).rstrip("\n")
            case Preformatted():
                yield f"```\n{_join_inline(element.elements)}\n```"
            case Quote():
                yield "\n".join(f"> {line}" for line in _join_inline(element.elements).split("\n"))
            case ListElement():
                for number, point in enumerate(element.elements, element.offset + 1):
                    marker = "•" if element.style == "bullet" else f"{number}."
                    yield f"{'    ' * element.indent}{marker} {_join_inline(point.elements)}"


def _join_inline(elements: Sequence[Inline]) -> str:
    return "".join(map(_format_inline, elements))


def _format_inline(element: Inline) -> str:
    if isinstance(element, Link):
        shown = f"<{escape(element.url).replace('|', '%7C')}|{escape(element.text or element.url).replace('|', '/')}>"
    else:
        shown = escape(element.text)
    style = element.style
    if style is None or not shown.strip():
        return shown
    markers = [
        marker_character
        for marker_character, on in zip("`~_*", (style.code, style.strike, style.italic, style.bold), strict=True)
        if on
    ]
    inner = shown.strip()
    leading, trailing = shown[: len(shown) - len(shown.lstrip())], shown[len(shown.rstrip()) :]
    return leading + "".join(reversed(markers)) + inner + "".join(markers) + trailing


def _measure_width(text: str) -> int:
    return sum(0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text)
