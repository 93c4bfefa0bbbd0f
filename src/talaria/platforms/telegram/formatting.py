"""Convert Markdown to text with Telegram entities; unsupported markup is shown differently."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal
from unicodedata import combining, east_asian_width
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct, field

from talaria.core.errors import Rejected
from talaria.platforms.content import sanitize_text

Kind = Literal["bold", "italic", "strikethrough", "code", "pre", "text_link", "blockquote"]
TEXT_LIMIT = 4096
MOST_ENTITIES = 100  # Telegram ignores further ones; code and links would be missed most
_OPTIONAL_KINDS = ("bold", "italic", "strikethrough")


class Style(Struct, frozen=True):
    """The formatting of a piece of text; ``serial`` distinguishes two blocks of one kind."""

    kind: Kind
    value: str = ""
    serial: int = 0


class Run(Struct, frozen=True):
    """A piece of text with uniform formatting."""

    text: str
    styles: frozenset[Style] = frozenset()


class Entity(Struct, frozen=True):
    """Formatting of a range of a text; ``value`` is a link's URL or a block's language."""

    kind: Kind
    offset: int
    length: int
    value: str = ""


class Formatted(Struct, frozen=True):
    """A text with its entities."""

    text: str
    entities: tuple[Entity, ...] = ()


def format_text(source: str, limit: int = TEXT_LIMIT) -> Formatted:
    """Return Markdown as formatted text, never longer than the limit if the source isn't.

    If formatting would make it longer or empty, it is the source itself. Raises `Rejected` for an empty text, or one
    that is too long.
    """
    source = sanitize_text(source).strip("\n")
    if not source.strip():
        raise Rejected("there is nothing to send")
    for aligned in (True, False):
        formatted = build_formatted(read_markdown(source, aligned_tables=aligned))
        if formatted.text.strip() and utf16_length(formatted.text) <= limit:
            return formatted
    if utf16_length(source) > limit:
        raise Rejected(f"Telegram allows at most {limit} characters per message; this one has {utf16_length(source)}")
    return Formatted(source)


def utf16_length(text: str) -> int:
    """Return how many UTF-16 code units a text has."""
    return len(text) + sum(character > "\uffff" for character in text)


def build_formatted(runs: Sequence[Run]) -> Formatted:
    """Join runs; white space at either end of an entity is excluded."""
    text = "".join(run.text for run in runs)
    positions = _compute_utf16_positions(text)
    entities = []
    for style, start, end in _iterate_ranges(runs):
        marked = text[start:end]
        first = start if style.kind == "pre" else end - len(marked.lstrip())
        end_position = start + len(marked.rstrip())
        if end_position > first:
            entities.append(
                Entity(style.kind, positions[first], positions[end_position] - positions[first], style.value)
            )
    return Formatted(text, tuple(sorted(_limit_entities(entities), key=lambda one: (one.offset, -one.length))))


def _compute_utf16_positions(text: str) -> list[int]:
    positions = [0]
    for character in text:
        positions.append(positions[-1] + (2 if character > "\uffff" else 1))
    return positions


def _iterate_ranges(runs: Sequence[Run]) -> Iterable[tuple[Style, int, int]]:
    """Yield each style with its start and end; neighbours with the same style are joined.

    A style that starts inside another ends with it, and continues as a new range: Telegram requires nesting.
    """
    open_styles: dict[Style, int] = {}
    at = 0
    for run, following in pairwise([*runs, Run("")]):
        for style in run.styles:
            open_styles.setdefault(style, at)
        at += len(run.text)
        ended = {style: open_styles.pop(style) for style in run.styles - following.styles}
        for style, start in ended.items():
            yield style, start, at
        for style, start in open_styles.items():
            if any(outer < start for outer in ended.values()):
                yield style, start, at
                open_styles[style] = at


def _limit_entities(entities: list[Entity]) -> list[Entity]:
    if len(entities) <= MOST_ENTITIES:
        return entities
    return sorted(entities, key=lambda one: (one.kind in _OPTIONAL_KINDS, one.offset))[:MOST_ENTITIES]


# Wider tables wrap on a phone, and lose their columns.
MAX_TABLE_WIDTH = 44
_SPACE = re.compile(r"\s+")
_BOLD = Style("bold")


class Row(Struct):
    """One row; each cell is some runs."""

    cells: list[list[Run]] = field(default_factory=list)


class Table(Struct):
    """A table, with its header in the first row."""

    rows: list[Row] = field(default_factory=list)

    def draw(self) -> str | None:
        """Return the table with aligned columns, or ``None`` if it is too wide."""
        texts = [[_join_text(cell) for cell in row.cells] for row in self.rows]
        widths = [max(map(_measure_width, column)) for column in zip(*texts, strict=True)]
        if sum(widths) + 3 * (len(widths) - 1) > MAX_TABLE_WIDTH:
            return None
        lines = [
            " │ ".join(
                text + " " * (width - _measure_width(text)) for text, width in zip(row, widths, strict=True)
            ).rstrip()
            for row in texts
        ]
        lines.insert(1, "─┼─".join("─" * width for width in widths))
        return "\n".join(lines)

    def to_list(self) -> list[list[Run]]:
        """Return a line per row: the first cell, then the others after their column names."""
        head, *rows = self.rows
        if not rows:
            return [[Run(", ".join(filter(None, map(_join_text, head.cells))), frozenset({_BOLD}))]]
        names = [_join_text(cell) for cell in head.cells]
        return [_format_list_item(row, names) for row in rows]


def _format_list_item(row: Row, names: list[str]) -> list[Run]:
    runs = [Run("• "), *(Run(run.text, run.styles | {_BOLD}) if _is_text(run) else run for run in row.cells[0])]
    for name, cell in zip(names[1:], row.cells[1:], strict=True):
        if _join_text(cell):
            runs += [Run("; " if len(runs) > len(row.cells[0]) + 1 else ": "), Run(f"{name}: " if name else ""), *cell]
    return [run for run in runs if run.text]


def _is_text(run: Run) -> bool:
    return not any(style.kind == "code" for style in run.styles)


def _join_text(cell: list[Run]) -> str:
    return _SPACE.sub(" ", "".join(run.text for run in cell)).strip()


def _measure_width(text: str) -> int:
    return sum(0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text)


_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_MARKS = {"strong_open": Style("bold"), "em_open": Style("italic"), "s_open": Style("strikethrough")}
_EXCLUDES_OTHERS = frozenset({"code", "pre"})
_SCHEMES = frozenset({"http", "https", "tg", "ton"})
_RULE = "———"
_TASKS = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")
_LEAVES = frozenset({"paragraph_open", "heading_open", "fence", "code_block", "hr", "table_open"})


def read_markdown(source: str, *, aligned_tables: bool = True) -> list[Run]:
    """Return the runs of a text; narrow tables are drawn with ``aligned_tables``, others become lists."""
    return _Writer(aligned_tables=aligned_tables).write(_PARSER.parse(source))


class _List(Struct):
    """An open list; ``marker`` is pending until the first text of its item."""

    marker: str = ""


class _Link(Struct):
    """An open link from this run on; ``style`` is missing if Telegram doesn't support the URL."""

    address: str
    first: int
    style: Style | None


class _Writer:
    """A text being converted."""

    def __init__(self, *, aligned_tables: bool) -> None:
        self._runs: list[Run] = []
        self._aligned_tables = aligned_tables
        self._styles: list[Style] = []
        self._quotes: list[Style] = []
        self._lists: list[_List] = []
        self._links: list[_Link] = []
        self._table: Table | None = None
        self._serial = 0
        self._gap = 0
        self._last_line: int | None = None

    def write(self, tokens: Sequence[Token]) -> list[Run]:
        """Convert a document and return its runs."""
        for token in tokens:
            if token.type in _LEAVES and token.map:
                self._begin_leaf(*token.map)
            self._handle_block(token)
        return self._runs

    def write_inline(self, tokens: Sequence[Token]) -> list[Run]:
        """Convert the content of a paragraph and return its runs."""
        for token in tokens:
            self._handle_inline(token)
        return self._runs

    def _begin_leaf(self, first: int, end_position: int) -> None:
        """Keep an empty line before a block where the author left one."""
        if self._last_line is not None:
            self._gap = 2 if first > self._last_line else 1
        self._last_line = end_position

    def _handle_block(self, token: Token) -> None:  # noqa: C901 - one case for each kind of block
        match token.type:
            case "inline" if self._table is not None:
                cell = _Writer(aligned_tables=False).write_inline(token.children or ())
                self._table.rows[-1].cells.append(cell)
            case "inline":
                self.write_inline(token.children or ())
            case "heading_open":
                self._styles.append(_BOLD)
            case "heading_close":
                self._styles.pop()
            case "fence" | "code_block":
                self._add_code(token)
            case "hr":
                self._add(_RULE)
            case "blockquote_open":
                self._serial += 1
                self._quotes.append(Style("blockquote", serial=self._serial))
            case "blockquote_close":
                self._quotes.pop()
            case "bullet_list_open" | "ordered_list_open":
                self._lists.append(_List())
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
            case "list_item_open":
                self._lists[-1].marker = f"{token.info}{token.markup} " if token.info else "• "
                self._gap = max(self._gap, 1)
            case _:
                self._handle_table(token)

    def _handle_table(self, token: Token) -> None:
        if token.type == "table_open":
            self._table = Table()
        elif self._table is not None and token.type == "tr_open":
            self._table.rows.append(Row())
        elif self._table is not None and token.type == "table_close":
            table, self._table = self._table, None
            draw = table.draw() if self._aligned_tables else None
            if draw is not None:
                self._add_block(draw, "")
                return
            for number, row in enumerate(table.to_list()):
                self._gap = self._gap if number == 0 else 1
                for run in row:
                    self._add(run.text, *run.styles)

    def _add_code(self, token: Token) -> None:
        language = _LANGUAGE.match(token.info.strip()) if token.info else None
        self._add_block(token.content.rstrip("\n"), language[0] if language else "")

    def _add_block(self, text: str, language: str) -> None:
        if not text.strip():
            return
        self._serial += 1
        if self._lists and self._lists[-1].marker:
            self._add("")
            self._gap = 1
        self._flush_gap(indented=False)
        self._append(text, frozenset({*self._quotes[:1], Style("pre", language, self._serial)}))

    def _add(self, text: str, *styles: Style) -> None:
        """Add text to a paragraph, with pending markers before it."""
        self._flush_gap()
        depth = len(self._lists)
        for level, one in enumerate(self._lists):
            if one.marker:
                task = _TASKS.get(text[:4], "") if level == depth - 1 else ""
                text = text[4:] if task else text
                self._append("  " * level + (task or one.marker), self._get_current_styles(()))
                one.marker = ""
        self._append(text.replace("\n", "\n" + "  " * depth), self._get_current_styles(styles))

    def _get_current_styles(self, styles: Sequence[Style]) -> frozenset[Style]:
        """Return the styles for text here: one quotation, one link, and nothing around code."""
        link = next((one.style for one in self._links if one.style), None)
        inner = [link] if link else list(styles)
        if not any(one.kind in _EXCLUDES_OTHERS for one in inner):
            inner += self._styles
        return frozenset({*self._quotes[:1], *inner})

    def _flush_gap(self, *, indented: bool = True) -> None:
        if self._gap and self._runs:
            shared = self._runs[-1].styles & frozenset(self._quotes[:1])
            indent = indented and not any(one.marker for one in self._lists)
            self._append("\n" * self._gap + "  " * len(self._lists) * indent, shared)
        self._gap = 0

    def _append(self, text: str, styles: frozenset[Style]) -> None:
        if text:
            self._runs.append(Run(text, styles))

    def _handle_inline(self, token: Token) -> None:
        match token.type:
            case "text" | "html_inline":
                if token.content:
                    self._add(token.content)
            case "code_inline":
                self._add(token.content, Style("code"))
            case "softbreak" | "hardbreak":
                self._add("\n")
            case "strong_open" | "em_open" | "s_open":
                self._styles.append(_MARKS[token.type])
            case "strong_close" | "em_close" | "s_close":
                self._styles.pop()
            case "link_open":
                self._begin_link(str(token.attrs.get("href", "")), automatic=token.markup == "autolink")
            case "link_close":
                self._end_link()
            case "image":
                self._begin_link(str(token.attrs.get("src", "")), automatic=False)
                self._add(token.content)
                self._end_link()
            case _:
                self._add(token.content)

    def _begin_link(self, address: str, *, automatic: bool) -> None:
        known = not automatic and _is_linkable(address)
        self._links.append(_Link(address, len(self._runs), Style("text_link", address) if known else None))

    def _end_link(self) -> None:
        link = self._links[-1]
        shown = "".join(run.text for run in self._runs[link.first :]).strip()
        if not shown:
            self._add(link.address)
        self._links.pop()
        if shown and link.style is None and link.address and not _is_same_address(shown, link.address):
            self._add(f" ({link.address})")


def _is_linkable(address: str) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme in _SCHEMES and bool(parts.netloc)


def _is_same_address(shown: str, address: str) -> bool:
    return shown in {address, address.removeprefix("mailto:")}
