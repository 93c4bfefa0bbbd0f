"""Streaming Markdown: final lines, and a preview of the unfinished rest."""

from collections.abc import Callable

from talaria.cli.markdown.blocks import LONGEST_PART, Blocks
from talaria.cli.markdown.leaf_blocks import Fence, Paragraph
from talaria.cli.markdown.themes import Theme
from talaria.cli.output.text import escape_control

TAIL_LINES = 20


_TAB = 4


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

    def tail(self) -> str:
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
        while self._size > LONGEST_PART and self._in_prose():
            line = "".join(self._pieces)
            cut = line.rfind(" ", LONGEST_PART // 2, LONGEST_PART)
            cut = LONGEST_PART if cut < 0 else cut
            self._blocks.add_part(_clean(line[:cut]), first=self._first)
            self._pieces, self._size, self._first = [line[cut:]], len(line) - cut, False

    def _in_prose(self) -> bool:
        return not self._first or self._blocks.leaf is None or isinstance(self._blocks.leaf, Paragraph)

    def _end_line(self) -> None:
        line = _clean("".join(self._pieces).removesuffix("\r"))
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
            blocks.add_code(_clean(rest[-limit:])[-limit:])
        elif self._size:
            line = _clean(rest[:LONGEST_PART])
            ending = isinstance(leaf, Fence) and line.strip() and leaf.marks.startswith(line.strip())
            if not self._first:
                blocks.add_part(line, first=False)
            elif not ending:
                blocks.add(line)
        blocks.finish()
        return "\n".join(blocks.take()[-TAIL_LINES:])


def _clean(line: str) -> str:
    # Tabs become spaces: terminals show tabs with different widths, and cutting must not depend on that.
    return escape_control(line.expandtabs(_TAB) if "\t" in line else line)


def render(text: str, theme: Theme, width: int) -> str:
    """Return the text as its complete stream would appear in ``width`` columns."""
    stream = MarkdownStream(theme, lambda: width)
    return stream.feed(text) + stream.end()
