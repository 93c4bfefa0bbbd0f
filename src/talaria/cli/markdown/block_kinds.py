"""Kinds of Markdown blocks: containers with the prefix of their lines, leaf blocks with their state, and tables."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from talaria.cli.markdown.code import Highlighter
from talaria.cli.markdown.inline import read_inline
from talaria.cli.markdown.styled_text import StyledLine, StyledRun, Theme, line_width, strip_line, wrap

# From so many rows or characters on, the widths are fixed: later rows are shown at once and must fit.
_SETTLED_ROWS = 30
_SETTLED_SIZE = 3000
_LONGEST_CELL = 1000
_NARROWEST_COLUMN = 6
_MOST_COLUMNS = 30
_COLUMN_GAP = " │ "
_IS_TABLE_RULE = re.compile(r"\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*").fullmatch
_FIND_CELL = re.compile(r"(?:[^|\\]|\\.|\\$)*", re.DOTALL)
MAX_DEPTH = 16
_BAR = "│ "
_FIND_MARKER = re.compile(r"(?:(?P<bullet>[-+*])|(?P<number>\d{1,9})(?P<end>[.)]))(?P<gap> +|$)")
_FIND_TASK = re.compile(r"\[([ xX])\] +(?=\S)")
_FIND_FENCE = re.compile(r"(?P<marks>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")
_FIND_HEADING = re.compile(r"(#{1,6})(?: +|$)")
_IS_RULE = re.compile(r"(?:\*[ ]*){3,}|(?:-[ ]*){3,}|(?:_[ ]*){3,}").fullmatch
_IS_UNDERLINE = re.compile(r"(?:=+|-+) *").fullmatch
_BEGINS_HTML = re.compile(
    r"<(?:!--|[?]|![A-Z]|/?(?:address|article|aside|blockquote|body|center|dd|details|div|dl|dt|fieldset|figure|footer"
    r"|form|h[1-6]|head|header|html|iframe|li|link|main|nav|ol|p|pre|script|section|style|summary|svg|table|tbody|td"
    r"|textarea|tfoot|th|thead|title|tr|ul)(?=[\s/>]|$))",
    re.IGNORECASE,
).match


class Container(Struct):
    """Quote or list item that later lines may continue; ``key`` identifies it."""

    key: int


class Quote(Container):
    """Block quote, marked with ``>``."""


class Item(Container, kw_only=True):
    """List item.

    ``origin`` is the column of its marker and ``indent`` that of its text; ``fresh`` until its marker is written.
    """

    kind: str
    number: int
    origin: int
    indent: int
    marker: str
    fresh: bool = True


class Paragraph(Struct):
    """Lines of text; ``continues`` if earlier lines are already written."""

    lines: list[str] = field(default_factory=list)
    size: int = 0
    continues: bool = False


class Fence(Struct):
    """Fenced code; ``indent`` is that of the opening fence, ``fresh`` before any output."""

    marks: str
    indent: int
    highlighter: Highlighter
    fresh: bool


class IndentedCode(Struct):
    """Code indented by four columns, and following empty lines that may belong to it."""

    blanks: int = 0


class Html(Struct):
    """Lines shown unchanged, up to an empty one."""


class _Row(Struct, frozen=True):
    cells: tuple[list[StyledRun], ...]
    widths: tuple[int, ...]


class Table:
    """Table that is read row by row."""

    def __init__(self, head: Sequence[str], alignment: Sequence[str], theme: Theme) -> None:
        self._theme = theme
        self._alignment = alignment[:_MOST_COLUMNS]
        self._head = self._read_row(head, theme.bold)
        self._rows: list[_Row] = []
        self._size = 0
        self._widths: list[int] | None = None

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self._alignment)

    def add(self, cells: Sequence[str]) -> None:
        """Add a row."""
        self._rows.append(self._read_row(cells, ""))
        self._size += sum(map(len, cells))

    def copy(self) -> "Table":
        """Return an independent copy."""
        other = Table.__new__(Table)
        other.__dict__.update(self.__dict__, _rows=list(self._rows))
        return other

    def take_lines(self, width: int, *, ended: bool) -> Iterator[StyledLine]:
        """Yield the final lines: none until the widths are fixed, all once it has ended."""
        settled = len(self._rows) >= _SETTLED_ROWS or self._size >= _SETTLED_SIZE
        if not (ended or settled or self._widths is not None):
            return
        begins = self._widths is None
        if self._widths is None:
            self._widths = self._fit_widths(width)
        show: Callable[[_Row], Iterator[StyledLine]] = (
            self._render_row if self._widths else partial(self._render_record, width=width)
        )
        if begins and self._widths:
            yield from self._render_row(self._head)
            yield [("─┼─".join("─" * width for width in self._widths), self._theme.dim)]
        for number, row in enumerate(self._rows):
            if not self._widths and (number or not begins):
                yield []
            yield from show(row)
        self._rows = []

    def _read_row(self, cells: Sequence[str], base: str) -> _Row:
        padded = [*cells, *[""] * self.columns][: self.columns]
        read = tuple(read_inline(_shorten(cell), self._theme, base) for cell in padded)
        return _Row(read, tuple(map(line_width, read)))

    def _fit_widths(self, width: int) -> list[int]:
        """Return the width of each column; empty if they do not fit."""
        natural = [max(1, *(row.widths[i] for row in [self._head, *self._rows])) for i in range(self.columns)]
        room = width - len(_COLUMN_GAP) * (self.columns - 1)
        if sum(natural) <= room:
            return natural
        if room < sum(min(_NARROWEST_COLUMN, one) for one in natural):
            return []
        fitted = list(natural)
        open_columns = sorted(range(self.columns), key=natural.__getitem__)
        while open_columns:
            share = room // len(open_columns)
            column = open_columns.pop(0)
            fitted[column] = min(natural[column], max(1, share))
            room -= fitted[column]
        return fitted

    def _render_row(self, row: _Row) -> Iterator[StyledLine]:
        assert self._widths is not None
        wrapped = [
            [cell] if size <= width else wrap(cell, width, cut_words=True)
            for cell, size, width in zip(row.cells, row.widths, self._widths, strict=True)
        ]
        for number in range(max(map(len, wrapped))):
            line: StyledLine = []
            for i, lines in enumerate(wrapped):
                if i:
                    line.append((_COLUMN_GAP, self._theme.dim))
                part = lines[number] if number < len(lines) else []
                line += _align(part, self._widths[i], self._alignment[i])
            yield strip_line(line)

    def _render_record(self, row: _Row, width: int) -> Iterator[StyledLine]:
        """Render a row of a table that is too wide, one cell per line."""
        for name, cell in zip(self._head.cells, row.cells, strict=True):
            yield from wrap([*name, (": ", self._theme.bold), *cell], width)


class TableRows(Struct):
    """Table from its second line on; ``fresh`` before any output."""

    table: Table
    fresh: bool = True


class Heading(Struct, frozen=True):
    """Heading of level 1 to 6."""

    level: int
    text: str


def split_row(text: str) -> list[str]:
    """Return the cells of a row; an escaped bar belongs to its cell."""
    text = text.strip().removeprefix("|")
    cells = [found.strip().replace("\\|", "|") for found in _split_cells(text)]
    return cells[:-1] if len(cells) > 1 and not cells[-1] and text.endswith("|") else cells


def read_alignment(text: str) -> list[str]:
    """Return ``<``, ``^`` or ``>`` for each column of a delimiter row; empty for other rows."""
    text = text.strip()
    if "-" not in text or not _IS_TABLE_RULE(text):
        return []
    return ["^" if one[0] == one[-1] == ":" else ">" if one[-1] == ":" else "<" for one in split_row(text) if one]


def indent_of(text: str) -> int:
    """Return the number of leading spaces."""
    return len(text) - len(text.lstrip(" "))


def enter(container: Container, rest: str) -> str | None:
    """Return the part of a line inside this container; ``None`` if it does not belong there."""
    indent = indent_of(rest)
    if isinstance(container, Item):
        if indent == len(rest):
            return ""
        # Below "1." many people indent by two spaces instead of three: that is meant as a nested list.
        if container.origin + 2 <= indent < container.indent and _FIND_MARKER.match(rest, indent):
            container.indent = indent
        return rest[container.indent :] if indent >= container.indent else None
    return _strip_quote_marker(rest, indent)


def open_quote(rest: str, key: int) -> tuple[Container, str] | None:
    """Return the quote that starts here, and its part of this line."""
    inner = _strip_quote_marker(rest, indent_of(rest))
    return None if inner is None else (Quote(key), inner)


def open_item(rest: str, key: int, before: Container | None, *, interrupts: bool) -> tuple[Container, str] | None:
    """Return the item that starts here, and its part of this line.

    ``before`` has just ended at the same position: an item of the same list continues its numbering. An item that
    ``interrupts`` a paragraph must have a text and the number 1.
    """
    origin = indent_of(rest)
    found = _FIND_MARKER.match(rest, origin)
    if found is None:
        return None
    inner = rest[found.end() :]
    if interrupts and (not inner or found["number"] not in {None, "1"}):
        return None
    kind = found["bullet"] or found["end"]
    number = int(found["number"] or 0)
    if isinstance(before, Item) and before.kind == kind:
        number = max(number, before.number + 1)
    gap = len(found["gap"])
    if gap > 4 or not inner:
        inner, gap = " " * (gap - 1) + inner if inner else "", 1
    marker = f"{number}{kind} " if found["number"] else "• "
    indent = found.end("gap") - len(found["gap"]) + gap
    if task := _FIND_TASK.match(inner):
        inner = inner[task.end() :]
        marker = f"{marker if found['number'] else ''}[{task[1].lower()}] "
    return Item(key, kind=kind, number=number, origin=origin, indent=indent, marker=marker), inner


def build_prefix(containers: Sequence[Container], theme: Theme) -> StyledLine:
    """Return the prefix of the next line in these containers."""
    return [_render_part(one, theme) for one in containers]


def build_blank_prefix(containers: Sequence[Container], theme: Theme) -> StyledLine:
    """Return an empty line in these containers, without trailing spaces."""
    last = max((i + 1 for i, one in enumerate(containers) if isinstance(one, Quote)), default=0)
    line = [_render_part(one, theme) for one in containers[:last]]
    return [*line[:-1], (_BAR.rstrip(), theme.dim)] if line else []


def copy_containers(containers: Sequence[Container]) -> list[Container]:
    """Return independent copies of the containers."""
    return [replace(one) for one in containers]


Leaf = Paragraph | Fence | IndentedCode | Html | TableRows


def copy_leaf(leaf: Leaf) -> Leaf:
    """Return an independent copy of a block."""
    match leaf:
        case Paragraph():
            return replace(leaf, lines=list(leaf.lines))
        case Fence():
            return replace(leaf, highlighter=leaf.highlighter.copy())
        case TableRows():
            return replace(leaf, table=leaf.table.copy())
        case _:
            return replace(leaf)


def read_fence(rest: str) -> tuple[str, str] | None:
    """Return the opening fence and its language."""
    found = _FIND_FENCE.match(rest.strip())
    if found is None:
        return None
    info_parts = found["info"].strip().strip("{}").split(maxsplit=1)
    return found["marks"], info_parts[0].lstrip(".") if info_parts else ""


def closes_fence(rest: str, marks: str) -> bool:
    """Return whether this line closes the fence."""
    text = rest.strip()
    return len(text) >= len(marks) and indent_of(rest) < 4 and text == marks[0] * len(text)


def read_heading(rest: str) -> Heading | None:
    """Return the heading of a line that starts with number signs."""
    text = rest.strip()
    found = _FIND_HEADING.match(text)
    if found is None:
        return None
    title = text[found.end() :]
    bare = title.rstrip("#")
    return Heading(len(found[1]), (bare if not bare or bare.endswith(" ") else title).strip())


def is_rule(rest: str) -> bool:
    """Return whether a line is a horizontal rule."""
    text = rest.strip()
    return text[:1] in {"*", "-", "_"} and _IS_RULE(text) is not None


def find_underline_level(rest: str) -> int:
    """Return the heading level that a line gives to the paragraph above it, or 0."""
    text = rest.strip()
    return 0 if not _IS_UNDERLINE(text) else 1 if text[0] == "=" else 2


def begins_html(rest: str) -> bool:
    """Return whether a line starts an HTML block."""
    return _BEGINS_HTML(rest.lstrip(" ")) is not None


def begins_leaf(rest: str) -> bool:
    """Return whether a line starts a block that ends a paragraph or table."""
    if indent_of(rest) > 3:
        return False
    return bool(read_fence(rest) or read_heading(rest)) or is_rule(rest) or begins_html(rest)


def _split_cells(text: str) -> Iterator[str]:
    at = 0
    while found := _FIND_CELL.match(text, at):
        yield found[0]
        at = found.end() + 1
        if found.end() >= len(text):
            return


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…"


def _align(part: StyledLine, width: int, alignment: str) -> StyledLine:
    gap = width - line_width(part)
    left = gap if alignment == ">" else gap // 2 if alignment == "^" else 0
    return [(" " * left, ""), *part, (" " * (gap - left), "")]


def _render_part(container: Container, theme: Theme) -> tuple[str, str]:
    if not isinstance(container, Item):
        return _BAR, theme.dim
    return container.marker if container.fresh else " " * len(container.marker), ""


def _strip_quote_marker(rest: str, indent: int) -> str | None:
    if indent > 3 or not rest.startswith(">", indent):
        return None
    inner = rest[indent + 1 :]
    return inner.removeprefix(" ")
