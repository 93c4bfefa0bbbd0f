"""A reply that arrives in small pieces: what is final, line by line, and what is still in progress."""

from collections.abc import Callable

from talaria.cli.cells import harmless
from talaria.cli.rendering.blocks import LONGEST_PART, Blocks
from talaria.cli.rendering.leaves import Fence, Paragraph
from talaria.cli.rendering.themes import Theme

TAIL_LINES = 20
_TAB = 4


class MarkdownStream:
    """Markdown in, text for a terminal out.

    What `feed` and `end` return is final and made of whole lines, each with its line break and with every style ended.
    Together they depend on what was fed only, not on how it was cut into pieces. ``width`` is asked for the
    columns of the terminal each time something is laid out.
    """

    def __init__(self, theme: Theme, width: Callable[[], int]) -> None:
        self._theme = theme
        self._width = width
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next piece begins another reply."""
        self._blocks = Blocks(self._theme, self._width)
        self._pieces: list[str] = []
        self._size = 0
        self._first = True
        self._tail: tuple[int, str] | None = None

    def feed(self, text: str) -> str:
        """Take the next piece, and return what has become final by it."""
        if not text:
            return ""
        self._tail = None
        *ended, rest = text.split("\n")
        for part in ended:
            self._keep(part)
            self._end_line()
        self._keep(rest)
        return self._taken()

    def tail(self) -> str:
        """Return how the rest would look if it ended here, its last lines only, without a line break at the end."""
        width = self._width()
        if self._tail is None or self._tail[0] != width:
            self._tail = (width, self._shown_rest(width))
        return self._tail[1]

    def end(self) -> str:
        """Return all that was not final yet; the next piece begins another reply."""
        if self._size:
            self._end_line()
        self._blocks.finish()
        rest = self._taken()
        self.reset()
        return rest

    def _keep(self, part: str) -> None:
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

    def _taken(self) -> str:
        return "".join(f"{line}\n" for line in self._blocks.take())

    def _shown_rest(self, width: int) -> str:
        self._pieces = ["".join(self._pieces)]
        rest = self._pieces[0].removesuffix("\r")
        blocks = self._blocks.copy()
        leaf = blocks.leaf
        most = TAIL_LINES * max(1, width)
        if isinstance(leaf, Fence) and self._size > most:
            # The end of one long line of code: what it belongs to was decided by its beginning.
            blocks.add_code(_clean(rest[-most:])[-most:])
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
    # Tabs become spaces: how wide a tab is shown differs, and what is cut to the width must not depend on it.
    return harmless(line.expandtabs(_TAB) if "\t" in line else line)
