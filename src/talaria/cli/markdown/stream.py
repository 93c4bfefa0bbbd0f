"""Streaming Markdown with a preview of the unfinished rest, and the texts around a reply: notices and diffs."""

from collections.abc import Callable, Iterator

from talaria.cli.markdown.block_kinds import Fence, Paragraph
from talaria.cli.markdown.blocks import LONGEST_PART, Blocks
from talaria.cli.markdown.styled_text import Theme, measure_width, to_ansi
from talaria.cli.terminal_text import cut, escape_control

TAIL_LINES = 20
_TAB = 4
_NARROWEST = 4
_RESET = "\x1b[0m"
_INDENT = "  "


class MarkdownStream:
    """Converter of streamed Markdown to terminal text.

    `feed` and `end` return final, complete lines, each with its line break and all styles closed. The result depends
    only on the text, not on how it was split. ``width`` is called for the columns of the terminal at each layout.
    """

    def __init__(self, theme: Theme, width: Callable[[], int]) -> None:
        self._theme = theme
        self._width = width
        self.reset()

    def reset(self) -> None:
        """Discard everything: the next piece starts a new reply."""
        self._blocks = Blocks(self._theme, self._width)
        self._pieces: list[str] = []
        self._size = 0
        self._first = True
        self._tail: tuple[int, str] | None = None

    def feed(self, text: str) -> str:
        """Add a piece and return the lines that became final."""
        if not text:
            return ""
        self._tail = None
        *ended, rest = text.split("\n")
        for part in ended:
            self._append(part)
            self._end_line()
        self._append(rest)
        return self._take_output()

    def render_tail(self) -> str:
        """Return the last lines of the unfinished rest as if it ended here, without a final line break."""
        width = self._width()
        if self._tail is None or self._tail[0] != width:
            self._tail = (width, self._render_tail(width))
        return self._tail[1]

    def end(self) -> str:
        """Return everything that was not final; the next piece starts a new reply."""
        if self._size:
            self._end_line()
        self._blocks.finish()
        rest = self._take_output()
        self.reset()
        return rest

    def _append(self, part: str) -> None:
        self._pieces.append(part)
        self._size += len(part)
        while self._size > LONGEST_PART and self._is_in_prose():
            line = "".join(self._pieces)
            cut = line.rfind(" ", LONGEST_PART // 2, LONGEST_PART)
            cut = LONGEST_PART if cut < 0 else cut
            self._blocks.add_part(_clean_text(line[:cut]), first=self._first)
            self._pieces, self._size, self._first = [line[cut:]], len(line) - cut, False

    def _is_in_prose(self) -> bool:
        return not self._first or self._blocks.leaf is None or isinstance(self._blocks.leaf, Paragraph)

    def _end_line(self) -> None:
        line = _clean_text("".join(self._pieces).removesuffix("\r"))
        if self._first:
            self._blocks.add(line)
        elif line.strip():
            self._blocks.add_part(line, first=False)
        self._pieces, self._size, self._first = [], 0, True

    def _take_output(self) -> str:
        return "".join(f"{line}\n" for line in self._blocks.take())

    def _render_tail(self, width: int) -> str:
        self._pieces = ["".join(self._pieces)]
        rest = self._pieces[0].removesuffix("\r")
        blocks = self._blocks.copy()
        leaf = blocks.leaf
        limit = TAIL_LINES * max(1, width)
        if isinstance(leaf, Fence) and self._size > limit:
            # The end of one long line of code; its start has decided which block it belongs to.
            blocks.add_code(_clean_text(rest[-limit:])[-limit:])
        elif self._size:
            line = _clean_text(rest[:LONGEST_PART])
            ending = isinstance(leaf, Fence) and line.strip() and leaf.marks.startswith(line.strip())
            if not self._first:
                blocks.add_part(line, first=False)
            elif not ending:
                blocks.add(line)
        blocks.finish()
        return "\n".join(blocks.take()[-TAIL_LINES:])


def render(text: str, theme: Theme, width: int) -> str:
    """Return the text as its complete stream would appear in ``width`` columns."""
    stream = MarkdownStream(theme, lambda: width)
    return stream.feed(text) + stream.end()


def wrap_text(text: str, style: str, width: int, *, first: str = "", rest: str = "") -> str:
    """Return plain text as lines in one style, with control characters escaped.

    The first line starts with ``first``, all others with ``rest``.
    """
    available = max(_NARROWEST, width - 1 - max(len(first), len(rest)))
    lines = [part for line in escape_control(text).split("\n") for part in _fold_line(line.expandtabs(_TAB), available)]
    marked = [f"{rest if index else first}{line}".rstrip() for index, line in enumerate(lines)]
    return "".join(f"{to_ansi([(line, style)])}\n" for line in marked)


def render_notice(text: str, theme: Theme, style: str, width: int) -> str:
    """Return Markdown as lines whose plain text has this style."""
    rendered = render(text, theme, width)
    if not style:
        return rendered
    begin = f"\x1b[{style}m"
    lines = rendered.rstrip("\n").split("\n")
    return "".join(f"{begin}{line.replace(_RESET, _RESET + begin)}{_RESET}\n" if line else "\n" for line in lines)


def render_diff(diff: str, theme: Theme, width: int, *, most: int = 0) -> str:
    """Return a diff as terminal lines, each cut to ``width`` columns.

    ``most`` limits the number of lines; the total follows.
    """
    lines = diff.split("\n")
    is_folded = most and len(lines) > most + 1
    shown = [_render_diff_line(line, theme, width) for line in (lines[:most] if is_folded else lines)]
    if is_folded:
        note = f"{_INDENT}… {len(lines) - most:,} more lines, Ctrl-O shows them"
        shown.append(to_ansi([(cut(note, width - 1), theme.dim)]))
    return "".join(f"{line}\n" for line in shown)


def count_changes(diff: str) -> tuple[int, int]:
    """Return how many lines a diff adds and removes."""
    lines = diff.split("\n")
    return sum(line.startswith("+") for line in lines), sum(line.startswith("-") for line in lines)


def _clean_text(line: str) -> str:
    # Tabs become spaces: terminals show tabs with different widths, and cutting must not depend on that.
    return escape_control(line.expandtabs(_TAB) if "\t" in line else line)


def _fold_line(line: str, available: int) -> Iterator[str]:
    """Split a line into parts of at most ``available`` columns, after a space if possible."""
    while (end := _count_fitting(line, available)) < len(line):
        at = line.rfind(" ", 0, end + 1) + 1 or end
        yield line[:at]
        line = line[at:]
    yield line


def _count_fitting(line: str, available: int) -> int:
    """Return how many characters fit in ``available`` columns, at least one."""
    used = 0
    for index, character in enumerate(line):
        used += measure_width(character)
        if used > available:
            return max(1, index)
    return len(line)


def _render_diff_line(line: str, theme: Theme, width: int) -> str:
    style = {"+": theme.added, "-": theme.removed, "@": theme.dim}.get(line[:1], "")
    plain = escape_control(line.expandtabs(_TAB)).replace("\n", " ")
    return to_ansi([(cut(f"{_INDENT}{plain}", width - 1), style)])
