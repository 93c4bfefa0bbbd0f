"""Cut Markdown into pieces that a network takes: at paragraphs, else lines, else words; code stays code."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate

from msgspec import Struct, structs

from talaria.contracts.platform import Abilities, Content, Unit
from talaria.gateway.borders import is_border, links

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)$")
_PARAGRAPH = re.compile(r"\n[ \t]*(?:\n[ \t]*)*\n")
_WORD = re.compile(r"[ \t]+")
_LEAST = 4  # a piece is filled to a quarter at least, where a worse border makes that possible


def split_text(text: str, limit: int, unit: Unit = "characters") -> list[str]:
    """Return pieces of at most ``limit`` units; without the white space where they were cut, they say the same.

    A code block that is cut is closed, and opened again with its language in the next piece. Characters as people
    see them and links stay whole, unless one alone is longer than the limit.
    """
    text = text.strip("\n").rstrip()
    if measure(text, unit) <= limit:
        return [text] if text else []
    return [piece for piece in _Splitter(text, limit, unit).pieces() if piece.strip()]


def split_content(content: Content, abilities: Abilities) -> list[Content]:
    """Return a message as several that a network takes: pieces of its text, then its files one by one.

    The first answers what the whole does; the choices are below the last piece of text.
    """
    texts = split_text(content.text, abilities.text_limit, abilities.text_unit)
    pieces = [Content(text=text) for text in texts] + [Content(files=(file,)) for file in content.files]
    if not pieces:
        return []
    pieces[0] = structs.replace(pieces[0], reply_to=content.reply_to)
    last = max(len(texts) - 1, 0)
    pieces[last] = structs.replace(pieces[last], buttons=content.buttons)
    return pieces


def measure(text: str, unit: Unit) -> int:
    """Return how long a text is, as a network counts."""
    if unit == "characters" or text.isascii():
        return len(text)
    return (
        len(text.encode("utf-16-le", "surrogatepass")) // 2 if unit == "utf16" else len(text.encode(errors="replace"))
    )


class _Fence(Struct, frozen=True):
    """A code block that is open: the line that opened it, and the marks that close it."""

    opening: str
    closing: str


class _Line(Struct, frozen=True):
    """A line of the text, with the code block that it stands in and the one that is open behind it."""

    start: int
    end: int
    before: _Fence | None
    behind: _Fence | None

    @property
    def opens(self) -> bool:
        return self.before is None and self.behind is not None

    @property
    def closes(self) -> bool:
        return self.before is not None and self.behind is None


class _Cut(Struct, frozen=True):
    """A piece ends here, the next one begins there; ``fence`` is the code block that is cut, or just ends here."""

    end: int
    begin: int
    fence: _Fence | None = None
    reopens: bool = True


class _Splitter:
    """Cuts one text."""

    def __init__(self, text: str, limit: int, unit: Unit) -> None:
        self._text = text
        self._limit = limit
        self._unit = unit
        self._lines = list(_lines(text, self._mended))
        self._starts = [line.start for line in self._lines]
        self._links = links(text)
        self._link_starts = [start for start, _ in self._links]
        self._sizes = [0, *accumulate(measure(character, unit) for character in text)]

    def pieces(self) -> Iterator[str]:
        """Yield the pieces, white space and all."""
        begin, fence = 0, None
        while begin < len(self._text):
            cut = self._next_cut(begin, fence)
            opening = f"{fence.opening}\n" if fence else ""
            closing = f"\n{cut.fence.closing}" if cut.fence else ""
            yield opening + self._text[begin : cut.end].rstrip() + closing
            begin, fence = cut.begin, cut.fence if cut.reopens else None

    def _mended(self, fence: _Fence) -> _Fence | None:
        """Return a code block as it is opened again: without a language that takes too much room, or not at all."""
        if measure(fence.opening, self._unit) > self._limit // 4:
            fence = _Fence(fence.closing, fence.closing)
        marks = measure(f"{fence.opening}\n\n{fence.closing}", self._unit)
        return fence if marks <= self._limit // 2 else None

    def _next_cut(self, begin: int, fence: _Fence | None) -> _Cut:
        room = self._limit - (measure(f"{fence.opening}\n", self._unit) if fence else 0)
        if self._sizes[-1] - self._sizes[begin] <= room:
            return _Cut(len(self._text), len(self._text))
        furthest = bisect_right(self._sizes, self._sizes[begin] + room) - 1
        least = begin + (furthest - begin) // _LEAST
        kinds: list[Callable[[int, int], Iterator[_Cut]]] = [self._paragraphs, self._line_ends, self._words]
        for lowest in (least, begin):
            for kind in kinds:
                for cut in kind(lowest, furthest):
                    if self._fits(begin, cut, room):
                        return cut
        return self._anywhere(begin, furthest, room)

    def _fits(self, begin: int, cut: _Cut, room: int) -> bool:
        closing = measure(f"\n{cut.fence.closing}", self._unit) if cut.fence else 0
        return begin < cut.end and self._sizes[cut.end] - self._sizes[begin] + closing <= room

    def _paragraphs(self, lowest: int, furthest: int) -> Iterator[_Cut]:
        """Yield where there are blank lines outside of code, the last first."""
        found = list(_PARAGRAPH.finditer(self._text, lowest, min(furthest + self._limit, len(self._text))))
        for match in reversed(found):
            line = self._line(match.start())
            if match.start() <= furthest and line.behind is None:
                begin = self._text.rfind("\n", match.start(), match.end()) + 1
                yield _Cut(match.start(), begin)

    def _line_ends(self, lowest: int, furthest: int) -> Iterator[_Cut]:
        """Yield ends of lines, the last first; not behind the line that opens a code block, nor before its end."""
        for number in range(bisect_right(self._starts, furthest) - 1, -1, -1):
            line = self._lines[number]
            if line.end < lowest:
                return
            if line.end > furthest or line.opens or number + 1 == len(self._lines) or self._in_link(line.end):
                continue
            following = self._lines[number + 1]
            if following.closes:
                yield _Cut(line.end, min(following.end + 1, len(self._text)), line.behind, reopens=False)
            else:
                yield _Cut(line.end, following.start, line.behind)

    def _words(self, lowest: int, furthest: int) -> Iterator[_Cut]:
        """Yield the spaces between words, the last first."""
        for match in reversed(list(_WORD.finditer(self._text, lowest, min(furthest + 1, len(self._text))))):
            line = self._line(match.start())
            if match.start() > line.start and not self._in_link(match.start()) and not line.opens:
                fence = line.behind
                yield _Cut(match.start(), match.start() if fence else match.end(), fence)

    def _anywhere(self, begin: int, furthest: int, room: int) -> _Cut:
        """Return the last border of characters outside of links, else within one, else between code points."""
        for good in (lambda place: is_border(self._text, place) and not self._in_link(place), self._is_border):
            for place in range(furthest, begin, -1):
                cut = _Cut(place, place, self._line(place).behind)
                if good(place) and self._fits(begin, cut, room):
                    return cut
        place = max(furthest, begin + 1)
        return _Cut(place, place)

    def _is_border(self, place: int) -> bool:
        return is_border(self._text, place)

    def _line(self, place: int) -> _Line:
        return self._lines[bisect_right(self._starts, place) - 1]

    def _in_link(self, place: int) -> bool:
        number = bisect_right(self._link_starts, place - 1) - 1
        return number >= 0 and self._links[number][0] < place < self._links[number][1]


def _lines(text: str, mended: Callable[[_Fence], _Fence | None]) -> Iterator[_Line]:
    start, fence, marks = 0, None, ""
    for content in text.split("\n"):
        before = fence
        found = _FENCE.match(content)
        if found and not marks and "`" not in found[2]:
            marks = found[1]
            fence = mended(_Fence(content.rstrip(), marks))
        elif found and marks and found[1].startswith(marks) and not found[2].strip():
            marks, fence = "", None
        yield _Line(start, start + len(content), before, fence)
        start += len(content) + 1
