"""Blocks as Slack takes them: rich text, tables, lines and what can be pressed."""

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias
from unicodedata import combining, east_asian_width

from msgspec import Struct

from talaria.platforms.slack.wording import escape

MOST_BLOCKS = 50
MOST_ROWS = 100
MOST_COLUMNS = 20
LONGEST_CELLS = 10_000


class Style(Struct, frozen=True, omit_defaults=True):
    """The marks on a piece of text."""

    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False


class Words(Struct, frozen=True, omit_defaults=True, tag="text"):
    """A piece of text, shown as it is."""

    text: str
    style: Style | None = None


class Link(Struct, frozen=True, omit_defaults=True, tag="link"):
    """A piece of text that leads somewhere."""

    url: str
    text: str = ""
    style: Style | None = None


Inline: TypeAlias = Words | Link


class Section(Struct, frozen=True, tag="rich_text_section"):
    """Some lines."""

    elements: tuple[Inline, ...]


class Preformatted(Struct, frozen=True, tag="rich_text_preformatted"):
    """Code."""

    elements: tuple[Words, ...]


class Quote(Struct, frozen=True, tag="rich_text_quote"):
    """Some lines that somebody else said."""

    elements: tuple[Inline, ...]


class Points(Struct, frozen=True, omit_defaults=True, tag="rich_text_list"):
    """Some points of a list, all at one depth; ``offset`` is how many were counted before them."""

    style: Literal["bullet", "ordered"]
    elements: tuple[Section, ...]
    indent: int = 0
    offset: int = 0


Element: TypeAlias = Section | Preformatted | Quote | Points


class RichText(Struct, frozen=True, tag="rich_text"):
    """Text with its marks."""

    elements: tuple[Element, ...]


class Divider(Struct, frozen=True, tag="divider"):
    """A line across."""


class Cell(Struct, frozen=True, tag="raw_text"):
    """A cell of a table."""

    text: str


class Column(Struct, frozen=True):
    """How a column of a table is shown."""

    is_wrapped: bool = True
    align: Literal["left", "center", "right"] = "left"


class Table(Struct, frozen=True, tag="table"):
    """A table, its head in the first row."""

    rows: tuple[tuple[Cell, ...], ...]
    column_settings: tuple[Column, ...] = ()


TextBlock: TypeAlias = RichText | Divider | Table


def as_mrkdwn(blocks: Sequence[TextBlock]) -> str:
    """Return blocks in the marks that Slack knows within a text, for places that show no blocks."""
    return "\n".join(filter(None, (_written(block).strip("\n") for block in blocks)))


def drawn(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in letters of one width, its columns aligned."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines = [
        " │ ".join(text + " " * (width - _width(text)) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.insert(1, "─┼─".join("─" * width for width in widths))
    return "\n".join(lines)


def _written(block: TextBlock) -> str:
    match block:
        case Divider():
            return "———"
        case Table():
            return f"```\n{escape(drawn([[cell.text.strip() for cell in row] for row in block.rows]))}\n```"
        case RichText():
            return "\n".join(_lines(block.elements))


def _lines(elements: Sequence[Element]) -> Iterator[str]:
    for element in elements:
        match element:
            case Section():
                yield _inline(element.elements).rstrip("\n")
            case Preformatted():
                yield f"```\n{_inline(element.elements)}\n```"
            case Quote():
                yield "\n".join(f"> {line}" for line in _inline(element.elements).split("\n"))
            case Points():
                for number, point in enumerate(element.elements, element.offset + 1):
                    marker = "•" if element.style == "bullet" else f"{number}."
                    yield f"{'    ' * element.indent}{marker} {_inline(point.elements)}"


def _inline(elements: Sequence[Inline]) -> str:
    return "".join(map(_marked, elements))


def _marked(element: Inline) -> str:
    if isinstance(element, Link):
        shown = f"<{escape(element.url).replace('|', '%7C')}|{escape(element.text or element.url).replace('|', '/')}>"
    else:
        shown = escape(element.text)
    style = element.style
    if style is None or not shown.strip():
        return shown
    signs = [sign for sign, on in zip("`~_*", (style.code, style.strike, style.italic, style.bold), strict=True) if on]
    inner = shown.strip()
    before, behind = shown[: len(shown) - len(shown.lstrip())], shown[len(shown.rstrip()) :]
    return before + "".join(reversed(signs)) + inner + "".join(signs) + behind


def _width(text: str) -> int:
    return sum(0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text)
