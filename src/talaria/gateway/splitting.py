"""Cut Markdown into pieces that a network takes: at paragraphs, else lines, else words; code stays code."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from msgspec import Struct, structs

from talaria.contracts.platform import Abilities, Content, Unit
from talaria.gateway.borders import is_border, links

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)$")
_PARAGRAPH = re.compile(r"\n[ \t]*(?:\n[ \t]*)*\n")
_WORD = re.compile(r"[ \t]+")
_LEAST = 4  # a piece is filled to a quarter at least, where a worse border makes that possible
_LONGEST_FENCE = 1_000
_LOOK_AHEAD = 2_000  # characters behind the furthest end of a piece that may matter for where it ends


def split_text(text: str, limit: int, unit: Unit = "characters") -> Iterator[str]:
    """Yield pieces of at most ``limit`` units; without the white space where they were cut, they say the same.

    A code block that is cut is closed, and opened again with its language in the next piece. Characters as people
    see them and links stay whole, unless one alone is longer than the limit. The time for a piece does not depend on
    the length of the text.
    """
    text = text.strip("\n").rstrip()
    position = _Position()
    while position.begin < len(text):
        piece, position = _next_piece(text, position, limit, unit)
        if piece.strip():
            yield piece


class GrowingText:
    """Splits a text again and again while it grows; pieces that can't change any more are not cut a second time."""

    def __init__(self, limit: int, unit: Unit = "characters") -> None:
        self._limit = limit
        self._unit = unit
        self._settled: list[str] = []
        self._prefix = ""
        self._position = _Position()

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of the text as it is now."""
        text = text.lstrip("\n")
        if not text.startswith(self._prefix):
            self._settled, self._prefix, self._position = [], "", _Position()
        whole, position, rest = text.rstrip(), self._position, []
        while position.begin < len(whole):
            can_change = position.begin + 2 * self._limit + _LOOK_AHEAD > len(whole)
            piece, position = _next_piece(whole, position, self._limit, self._unit)
            if not can_change:
                self._settled += [piece] if piece.strip() else []
                self._position, self._prefix = position, whole[: position.begin]
            elif piece.strip():
                rest.append(piece)
        return [*self._settled, *rest]


def close_code_block(text: str) -> str:
    """Return a text whose last code block is closed."""
    *_, last = _lines(text, _Position(), len(text), lambda fence: fence)
    return f"{text}\n{last.behind.closing}" if last.behind else text


def split_content(content: Content, abilities: Abilities) -> list[Content]:
    """Return a message as several that a network takes: pieces of its text, then its files one by one.

    The first answers what the whole does; the choices are below the last piece of text.
    """
    texts = list(split_text(content.text, abilities.text_limit, abilities.text_unit))
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
    marks: str

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


class _Position(Struct, frozen=True):
    """Where the next piece begins: in which line, with which code block open there, ``fence`` to be opened again.

    ``marks`` are those that close the block in which the line of ``begin`` starts.
    """

    begin: int = 0
    fence: _Fence | None = None
    line: int = 0
    before: _Fence | None = None
    marks: str = ""


def _next_piece(text: str, position: _Position, limit: int, unit: Unit) -> tuple[str, _Position]:
    """Return the piece that begins at a position, white space and all, and the position behind it."""
    window = _Window(text, position, limit, unit)
    cut = window.next_cut()
    fence = position.fence
    opening = f"{fence.opening}\n" if fence else ""
    closing = f"\n{cut.fence.closing}" if cut.fence else ""
    piece = opening + text[position.begin : cut.end].rstrip() + closing
    return piece, window.position_at(cut)


class _Window:
    """The part of a text that matters for where its next piece ends."""

    def __init__(self, text: str, position: _Position, limit: int, unit: Unit) -> None:
        self._limit = limit
        self._unit = unit
        self._from = position
        self._end = min(position.begin + 2 * limit + _LOOK_AHEAD, len(text))
        self._text = text
        self._lines = list(_lines(text, position, self._end, self._mended))
        self._starts = [line.start for line in self._lines]
        self._links = links(text, position.begin, self._end)
        self._link_starts = [start for start, _ in self._links]
        self._sizes = _sizes(text[position.begin : position.begin + limit + 1], unit)

    def position_at(self, cut: _Cut) -> _Position:
        """Return the position where the next piece begins."""
        line = self._line(cut.begin)
        fence = cut.fence if cut.reopens else None
        return _Position(cut.begin, fence, line.start, line.before, line.marks)

    def _mended(self, fence: _Fence) -> _Fence | None:
        """Return a code block as it is opened again: without a language that takes too much room, or not at all."""
        if measure(fence.opening, self._unit) > self._limit // 4:
            fence = _Fence(fence.closing, fence.closing)
        marks = measure(f"{fence.opening}\n\n{fence.closing}", self._unit)
        return fence if marks <= self._limit // 2 else None

    def next_cut(self) -> _Cut:
        """Return where the piece ends."""
        begin, fence = self._from.begin, self._from.fence
        room = self._limit - (measure(f"{fence.opening}\n", self._unit) if fence else 0)
        if len(self._text) - begin < len(self._sizes) and self._sizes[-1] <= room:
            return _Cut(len(self._text), len(self._text))
        furthest = begin + bisect_right(self._sizes, room) - 1
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
        return begin < cut.end and self._sizes[cut.end - begin] + closing <= room

    def _paragraphs(self, lowest: int, furthest: int) -> Iterator[_Cut]:
        """Yield where there are blank lines outside of code, the last first."""
        found = list(_PARAGRAPH.finditer(self._text, lowest, min(furthest + self._limit, self._end)))
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


def _lines(text: str, position: _Position, end: int, mended: Callable[[_Fence], _Fence | None]) -> Iterator[_Line]:
    """Yield the lines from the one of a position on, the last one as far as ``end``."""
    start, fence, marks = position.line, position.before, position.marks
    while start <= end:
        found_end = text.find("\n", max(start, position.begin), end)
        stop = end if found_end < 0 else found_end
        before, marks_before = fence, marks
        found = _FENCE.match(text[start : min(stop, start + _LONGEST_FENCE)])
        if found and not marks and "`" not in found[2]:
            marks = found[1]
            fence = mended(_Fence(found[0].rstrip(), marks))
        elif found and marks and found[1].startswith(marks) and not found[2].strip():
            marks, fence = "", None
        yield _Line(start, stop, before, fence, marks_before)
        if found_end < 0:
            return
        start = stop + 1


def _sizes(text: str, unit: Unit) -> Sequence[int]:
    """Return how long a text is up to each of its characters."""
    if unit == "characters" or text.isascii():
        return range(len(text) + 1)
    if unit == "utf16":
        return [0, *accumulate(2 if character > "\uffff" else 1 for character in text)]
    return [0, *accumulate(map(_bytes_of, text))]


def _bytes_of(character: str) -> int:
    if character < "\x80" or "\ud800" <= character <= "\udfff":
        return 1
    return 2 if character < "\u0800" else 3 if character < "\U00010000" else 4
