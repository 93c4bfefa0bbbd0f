"""Block-level Markdown to terminal lines; lines that can no longer change are written at once."""

from collections.abc import Callable, Iterable

from talaria.cli.markdown.block_kinds import (
    MAX_DEPTH,
    Container,
    Fence,
    Heading,
    Html,
    IndentedCode,
    Item,
    Leaf,
    Paragraph,
    Quote,
    Table,
    TableRows,
    begins_html,
    begins_leaf,
    build_blank_prefix,
    build_prefix,
    closes_fence,
    copy_containers,
    copy_leaf,
    enter,
    find_underline_level,
    indent_of,
    is_rule,
    open_item,
    open_quote,
    read_alignment,
    read_fence,
    read_heading,
    split_row,
)
from talaria.cli.markdown.code import Highlighter
from talaria.cli.markdown.inline import read_inline
from talaria.cli.markdown.styled_text import StyledLine, Theme, line_width, strip_line, to_ansi, wrap

# A longer paragraph is written in parts, so that no call takes long: each part starts on a new line.
LONGEST_PART = 2000
_NARROWEST = 10
_WIDEST_RULE = 40


class Blocks:
    """Line-by-line Markdown reader that follows CommonMark's block structure."""

    def __init__(self, theme: Theme, width: Callable[[], int]) -> None:
        self._theme = theme
        self._width = width
        self._containers: list[Container] = []
        self._leaf: Leaf | None = None
        self._keys = 0
        self._written: list[str] = []
        self._above: list[int] | None = None  # keys of the containers of the line above; ``None`` before the first line
        self._gap = False

    @property
    def leaf(self) -> Leaf | None:
        """Block that the next line may continue."""
        return self._leaf

    def copy(self) -> "Blocks":
        """Return an independent copy of the reader, without the written lines."""
        other = Blocks(self._theme, self._width)
        other.__dict__.update(self.__dict__, _containers=copy_containers(self._containers), _written=[])
        other._leaf = None if self._leaf is None else copy_leaf(self._leaf)
        return other

    def take(self) -> list[str]:
        """Return and clear the lines written since the last call."""
        written, self._written = self._written, []
        return written

    def add(self, text: str) -> None:
        """Read one line, without its line break; it must have no control characters or tabs."""
        rest, depth = self._enter(text)
        is_inside = depth == len(self._containers)
        if is_inside and isinstance(self._leaf, Fence | Html) and self._add_verbatim(self._leaf, rest):
            return
        if not rest.strip():
            self._add_blank(depth)
            return
        inner, opened = self._open(rest, depth)
        if opened:
            self._begin(inner)
        elif is_inside:
            self._continue_leaf(inner)
        elif isinstance(self._leaf, Paragraph) and not begins_leaf(inner):
            self._extend(self._leaf, inner)  # a paragraph may leave out the marks of its containers
        else:
            self._close(depth)
            self._begin(inner)

    def add_part(self, text: str, *, first: bool) -> None:
        """Read a part of a line that is too long to wait for."""
        if first:
            self.add(text)
        elif isinstance(self._leaf, Paragraph):
            self._extend(self._leaf, text)
        else:
            self._close_leaf()
            self._leaf = Paragraph(continues=self._above is not None)
            self._extend(self._leaf, text)
        if isinstance(self._leaf, Paragraph):
            self._write_paragraph(self._leaf)

    def add_code(self, text: str) -> None:
        """Write a piece of a code line unchanged."""
        self._write([[(text, "")]])

    def finish(self) -> None:
        """Close all open blocks."""
        self._close(0)

    def _enter(self, text: str) -> tuple[str, int]:
        rest = text
        for depth, container in enumerate(self._containers):
            inner = enter(container, rest)
            if inner is None:
                return rest, depth
            rest = inner
        return rest, len(self._containers)

    def _open(self, rest: str, depth: int) -> tuple[str, bool]:
        """Open the containers that start here; return the rest of the line and whether any opened."""
        opened = False
        while depth < MAX_DEPTH and indent_of(rest) < 4:
            found = open_quote(rest, self._keys)
            if found is None and not is_rule(rest):
                before = self._containers[depth] if depth < len(self._containers) else None
                interrupts = before is None and isinstance(self._leaf, Paragraph)
                found = open_item(rest, self._keys, before, interrupts=interrupts)
            if found is None:
                break
            if not opened:
                self._close(depth)
            self._containers.append(found[0])
            self._keys += 1
            rest, opened, depth = found[1], True, depth + 1
        return rest, opened

    def _close(self, depth: int) -> None:
        """Close the current block and the containers from this depth on."""
        self._close_leaf()
        while len(self._containers) > depth:
            last = self._containers[-1]
            if isinstance(last, Item) and last.fresh:
                self._write([[]], begins=True)
            self._containers.pop()

    def _close_leaf(self) -> None:
        leaf, self._leaf = self._leaf, None
        match leaf:
            case Paragraph():
                self._write_paragraph(leaf)
            case TableRows():
                self._write_table(leaf, ended=True)
            case IndentedCode(blanks=blanks):
                self._gap = self._gap or blanks > 0

    def _add_blank(self, depth: int) -> None:
        if depth < len(self._containers):
            self._close(depth)
        elif isinstance(self._leaf, IndentedCode):
            self._leaf.blanks += 1
            return
        self._close_leaf()
        self._gap = True

    def _add_verbatim(self, leaf: Fence | Html, rest: str) -> bool:
        if isinstance(leaf, Html):
            if rest.strip():
                self._write([[(rest, "")]])
            return bool(rest.strip())
        if closes_fence(rest, leaf.marks):
            self._close_leaf()
        else:
            code = rest[min(leaf.indent, indent_of(rest)) :]
            self._write([leaf.highlighter.highlight_line(code)], begins=leaf.fresh)
            leaf.fresh = False
        return True

    def _continue_leaf(self, rest: str) -> None:
        """Add a line to the current block if it belongs there, otherwise start another."""
        match self._leaf:
            case Paragraph() as leaf if self._convert_paragraph(leaf, rest):
                pass
            case Paragraph() as leaf if not begins_leaf(rest):
                self._extend(leaf, rest)
            case TableRows(table=table) as rows if not begins_leaf(rest) and ("|" in rest or table.columns == 1):
                table.add(split_row(rest))
                self._write_table(rows, ended=False)
            case IndentedCode() as code if indent_of(rest) > 3:
                self._write([[]] * code.blanks + [[(rest[4:], self._theme.code)]])
                code.blanks = 0
            case _:
                self._begin(rest)

    def _convert_paragraph(self, leaf: Paragraph, rest: str) -> bool:
        """Convert a paragraph to a heading or table if this line below it says so."""
        if indent_of(rest) > 3 or not leaf.lines:
            return False
        head = split_row(leaf.lines[-1])
        alignment = read_alignment(rest) if "|" in rest or "|" in leaf.lines[-1] else []
        if alignment and len(alignment) == len(head):
            leaf.lines.pop()
            self._close_leaf()
            self._leaf = TableRows(Table(head, alignment, self._theme))
            return True
        if level := find_underline_level(rest):
            self._leaf = None
            self._write_heading(Heading(level, "\n".join(leaf.lines)))
        return bool(level)

    def _extend(self, leaf: Paragraph, rest: str) -> None:
        line = rest.strip()
        leaf.lines.append(line)
        leaf.size += len(line)
        if leaf.size >= LONGEST_PART:
            self._write_paragraph(leaf)

    def _begin(self, rest: str) -> None:
        self._close_leaf()
        if not rest.strip():
            return
        if indent_of(rest) > 3:
            self._leaf = IndentedCode()
            self._write([[(rest[4:], self._theme.code)]], begins=True)
        elif fence := read_fence(rest):
            self._begin_fence(*fence, indent_of(rest))
        elif heading := read_heading(rest):
            self._write_heading(heading)
        elif is_rule(rest):
            self._write([[("─" * min(_WIDEST_RULE, self._get_available_width()), self._theme.dim)]], begins=True)
        elif begins_html(rest):
            self._leaf = Html()
            self._write([[(rest, "")]], begins=True)
        else:
            self._leaf = Paragraph()
            self._extend(self._leaf, rest)

    def _begin_fence(self, marks: str, language: str, indent: int) -> None:
        if language:
            self._write([[(language, self._theme.dim)]], begins=True)
        self._leaf = Fence(marks, indent, Highlighter(language, self._theme), fresh=not language)

    def _write_heading(self, heading: Heading) -> None:
        theme = self._theme
        style = {1: theme.heading1, 2: theme.heading2}.get(heading.level, theme.heading)
        self._write(wrap(read_inline(heading.text, theme, style), self._get_available_width()), begins=True)

    def _write_paragraph(self, leaf: Paragraph) -> None:
        """Write the paragraph so far; more may follow."""
        if not leaf.lines:
            return
        quoted = any(isinstance(one, Quote) for one in self._containers)
        runs = read_inline("\n".join(leaf.lines), self._theme, self._theme.quote if quoted else "")
        self._write(wrap(runs, self._get_available_width()), begins=not leaf.continues)
        leaf.lines, leaf.size, leaf.continues = [], 0, True

    def _write_table(self, leaf: TableRows, *, ended: bool) -> None:
        if lines := [*leaf.table.take_lines(self._get_available_width(), ended=ended)]:
            self._write(lines, begins=leaf.fresh)
            leaf.fresh = False

    def _get_available_width(self) -> int:
        return max(_NARROWEST, self._width() - line_width(build_prefix(self._containers, self._theme)))

    def _write(self, lines: Iterable[StyledLine], *, begins: bool = False) -> None:
        keys = [one.key for one in self._containers]
        if begins and self._above is not None:
            within_list = any(isinstance(one, Item) for one in self._containers)
            if self._gap or not within_list:
                shared = [one for one in self._containers if one.key in self._above]
                self._written.append(to_ansi(build_blank_prefix(shared, self._theme)))
        self._gap, self._above = False, keys
        for line in lines:
            before = build_prefix(self._containers, self._theme)
            fresh = any(isinstance(one, Item) and one.fresh for one in self._containers)
            shown = any(text for text, _ in line)
            if shown or fresh:
                self._written.append(to_ansi([*before, *line] if shown else strip_line([*before])))
            else:
                self._written.append(to_ansi(build_blank_prefix(self._containers, self._theme)))
            for one in self._containers:
                if isinstance(one, Item):
                    one.fresh = False
