"""Convert Markdown to Slack blocks; unsupported markup is shown differently."""

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct, field

from talaria.platforms.slack.blocks import (
    MOST_CELL_CHARACTERS,
    MOST_COLUMNS,
    MOST_ROWS,
    Cell,
    Column,
    Divider,
    Element,
    Inline,
    Link,
    ListElement,
    Preformatted,
    Quote,
    RichText,
    Section,
    Style,
    Table,
    TextBlock,
    TextElement,
    draw_table,
)

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_MARKS = {"strong": "bold", "em": "italic", "s": "strike"}
_SCHEMES = frozenset({"http", "https", "mailto"})
_TASKS = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_ALIGN = re.compile(r"text-align:(left|center|right)")
_LEAVES = frozenset({"paragraph_open", "heading_open", "fence", "code_block", "hr", "table_open"})
_MAX_INDENT = 8
_Kind: TypeAlias = Literal["bullet", "ordered", "quote"]


def read_markdown(source: str, *, tables: int = 1) -> list[TextBlock]:
    """Return the blocks of a text with at most so many table blocks; other tables are drawn."""
    return _Writer(tables=tables).write(_PARSER.parse(source))


class _List(Struct):
    """An open list, and the number of its next item."""

    ordered: bool
    number: int


class _Run(Struct):
    """Items of one list, or a quotation, to which more may be added."""

    kind: _Kind
    indent: int = 0
    offset: int = 0
    points: list[Section] = field(default_factory=list)
    quoted: list[Inline] = field(default_factory=list)

    @property
    def end_position(self) -> int:
        """Return the number of items before the next one."""
        return self.offset + len(self.points)

    def element(self) -> Element:
        """Return the complete element."""
        if self.kind == "quote":
            return Quote(_merge_adjacent(self.quoted))
        return ListElement(self.kind, tuple(self.points), self.indent, self.offset)


class _Grid(Struct):
    """A table being read."""

    rows: list[list[str]]
    columns: list[Column]


class _Writer:
    """A text being converted: pieces form lines, lines elements, elements blocks."""

    def __init__(self, *, tables: int = 0) -> None:
        self._blocks: list[TextBlock] = []
        self._elements: list[Element] = []
        self._line: list[Inline] = []
        self._styles: list[str] = []
        self._links: list[str] = []
        self._lists: list[_List] = []
        self._quotes = 0
        self._in_list_item = False
        self._run: _Run | None = None
        self._grid: _Grid | None = None
        self._tables = tables
        self._last_line: int | None = None
        self._gap = 0
        self._after_marker = False

    def write(self, tokens: Sequence[Token]) -> list[TextBlock]:
        """Convert a document and return the blocks."""
        for token in tokens:
            if token.type in _LEAVES and token.map:
                self._begin_leaf(*token.map)
            self._handle_block(token)
        self._end_elements()
        return self._blocks

    def write_inline(self, tokens: Sequence[Token]) -> str:
        """Convert the content of a paragraph, and return its plain text."""
        for token in tokens:
            self._handle_inline(token)
        return "".join(one.text or one.url if isinstance(one, Link) else one.text for one in self._line)

    def _begin_leaf(self, first: int, end_position: int) -> None:
        """Keep an empty line between paragraphs where the author left one."""
        if self._last_line is not None:
            self._gap = 2 if first > self._last_line else 1
        self._last_line = end_position

    def _handle_block(self, token: Token) -> None:  # noqa: C901 -- one case for each kind of block
        match token.type:
            case "inline" if self._grid is not None:
                self._grid.rows[-1].append(" ".join(_Writer().write_inline(token.children or ()).split()))
            case "inline":
                self._add_line_break()
                self.write_inline(token.children or ())
            case "heading_open":
                self._add_line_break()
                self._styles.append("bold")
            case "heading_close":
                self._styles.pop()
            case "fence" | "code_block":
                self._add_code(token.content.rstrip("\n"))
            case "hr":
                self._end_elements()
                self._blocks.append(Divider())
            case "blockquote_open" | "blockquote_close":
                self._end_line()
                self._quotes += token.nesting
            case "bullet_list_open" | "ordered_list_open":
                self._end_line()
                self._lists.append(_List(token.type[0] == "o", int(token.attrs.get("start") or 1)))
            case "bullet_list_close" | "ordered_list_close":
                self._end_line()
                self._lists.pop()
            case "list_item_open":
                self._end_line()
                self._begin_point()
            case _:
                self._handle_table(token)

    def _handle_table(self, token: Token) -> None:
        if token.type == "table_open":
            self._grid = _Grid([], [])
        elif self._grid is not None and token.type == "tr_open":
            self._grid.rows.append([])
        elif self._grid is not None and token.type == "th_open":
            align = _ALIGN.search(str(token.attrs.get("style", "")))
            self._grid.columns.append(Column(align=align[1] if align else "left"))  # type: ignore[arg-type]
        elif self._grid is not None and token.type == "table_close":
            grid, self._grid = self._grid, None
            self._add_table(grid)

    def _add_table(self, grid: _Grid) -> None:
        rows = grid.rows
        fits = len(rows) <= MOST_ROWS and len(rows[0]) <= MOST_COLUMNS
        if not self._tables or not fits or sum(len(cell) for row in rows for cell in row) > MOST_CELL_CHARACTERS:
            self._add_code(draw_table(rows))
            return
        self._end_elements()
        self._tables -= 1
        # Slack rejects an empty cell.
        cells = tuple(tuple(Cell(text or " ") for text in row) for row in rows)
        self._blocks.append(Table(cells, tuple(grid.columns)))

    def _add_code(self, text: str) -> None:
        self._end_line()
        if text.strip():
            self._append(Preformatted((TextElement(text),)))
        self._gap = 0

    def _begin_point(self) -> None:
        """Start an item: in the same list as those before it, or in a new one."""
        one = self._lists[-1]
        if self._quotes:
            marker = f"{one.number}. " if one.ordered else "• "
            self._line.append(TextElement("  " * (len(self._lists) - 1) + marker))
            self._after_marker = True
        else:
            self._in_list_item = True
        one.number += 1
        self._gap = 0

    def _add_line_break(self) -> None:
        """Start a paragraph after another one."""
        if self._line and self._gap and not self._after_marker:
            self._line.append(TextElement("\n" * self._gap))
        self._gap, self._after_marker = 0, False

    def _end_line(self) -> None:
        """Make an element of the lines so far."""
        line, self._line = _merge_adjacent(self._line), []
        is_point, self._in_list_item = self._in_list_item, False
        if not any((one.text if isinstance(one, TextElement) else one.url).strip() for one in line):
            return
        if self._quotes:
            self._add_quote(line)
        elif is_point:
            self._add_point(Section(line))
        else:
            self._append(Section(line))

    def _add_quote(self, line: tuple[Inline, ...]) -> None:
        """Add to the current quotation, if there is one."""
        if self._run is not None and self._run.kind == "quote":
            self._run.quoted += [TextElement("\n"), *line]
        else:
            self._end_run()
            self._run = _Run("quote", quoted=list(line))

    def _add_point(self, point: Section) -> None:
        """Add to the items before it, if it is of the same list."""
        one, indent = self._lists[-1], min(len(self._lists) - 1, _MAX_INDENT)
        kind: _Kind = "ordered" if one.ordered else "bullet"
        offset = one.number - 2 if one.ordered else 0
        run = self._run
        if run is None or (run.kind, run.indent) != (kind, indent) or (one.ordered and run.end_position != offset):
            self._end_run()
            self._run = run = _Run(kind, indent=indent, offset=offset)
        run.points.append(point)

    def _end_run(self) -> None:
        """Make an element of the items or the quotation so far."""
        run, self._run = self._run, None
        if run is not None:
            self._elements.append(run.element())

    def _append(self, element: Element) -> None:
        self._end_run()
        self._elements.append(element)

    def _end_elements(self) -> None:
        """Make a block of the elements so far."""
        self._end_line()
        self._end_run()
        elements, self._elements = self._elements, []
        if elements:
            self._blocks.append(RichText(tuple(_add_spacing(elements))))

    def _handle_inline(self, token: Token) -> None:
        match token.type:
            case "code_inline":
                self._add(token.content, code=True)
            case "softbreak" | "hardbreak":
                self._add("\n")
            case "strong_open" | "em_open" | "s_open":
                self._styles.append(_MARKS[token.tag])
            case "strong_close" | "em_close" | "s_close":
                self._styles.pop()
            case "link_open":
                self._links.append(str(token.attrs.get("href", "")))
            case "link_close":
                self._end_link(self._links.pop())
            case "image":
                address = str(token.attrs.get("src", ""))
                self._links.append(address)
                self._add(token.content or address)
                self._end_link(self._links.pop())
            case _:
                self._add(token.content)

    def _add(self, text: str, *, code: bool = False) -> None:
        if not text:
            return
        if not self._line and self._in_list_item and text[:4] in _TASKS:
            text = _TASKS[text[:4]] + text[4:]
        marks = {**dict.fromkeys(self._styles, True), **({"code": True} if code else {})}
        style = Style(**marks) if marks else None
        address = self._links[-1] if self._links else ""
        if address and is_linkable(address):
            self._line.append(Link(address, text, style))
        else:
            self._line.append(TextElement(text, style))

    def _end_link(self, address: str) -> None:
        """Write a URL that Slack wouldn't link after its text."""
        if address and not is_linkable(address):
            self._line.append(TextElement(f" ({address})"))


def is_linkable(address: str) -> bool:
    """Return whether Slack links a URL."""
    try:
        return urlsplit(address).scheme.lower() in _SCHEMES and len(address) <= 3000
    except ValueError:
        return False


def _merge_adjacent(line: Sequence[Inline]) -> tuple[Inline, ...]:
    """Merge neighbours with the same formatting."""
    joined: list[Inline] = []
    for one in line:
        last = joined[-1] if joined else None
        if isinstance(one, TextElement) and isinstance(last, TextElement) and one.style == last.style:
            joined[-1] = TextElement(last.text + one.text, one.style)
        elif isinstance(one, Link) and isinstance(last, Link) and (one.url, one.style) == (last.url, last.style):
            joined[-1] = Link(one.url, last.text + one.text, one.style)
        else:
            joined.append(one)
    return tuple(joined)


def _add_spacing(elements: Sequence[Element]) -> list[Element]:
    """Separate lines from what follows them, as Slack does for people's messages."""
    spaced = list(elements)
    for number, one in enumerate(elements[:-1]):
        if isinstance(one, Section):
            spaced[number] = Section(_merge_adjacent([*one.elements, TextElement("\n")]))
    return spaced
