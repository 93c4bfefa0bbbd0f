"""Markdown splitter for the length limit of a network: at paragraphs, else lines, else words.

Replies that are too long for a chat are cut, with the whole text attached as a file.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from msgspec import Struct, structs

from talaria.contracts.platform import Content, PlatformCapabilities, Unit
from talaria.core.messages import File

_JOINER = "\u200d"
_MARKS = {"Mn", "Mc", "Me"}
_LINK = re.compile(
    r"""!?\[(?:[^\]\n]|\n(?![ \t]*\n)){0,1000}\]\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?:[ ]+"[^"\n]{0,500}")?\)
    | <[a-z][a-z0-9+.-]{1,30}:[^<>\s]+>
    | (?:https?://|www\.)\S+""",
    re.VERBOSE | re.IGNORECASE,
)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)$")
_PARAGRAPH = re.compile(r"\n[ \t]*(?:\n[ \t]*)*\n")
_WORD = re.compile(r"[ \t]+")
_MIN_FILL = 4  # a piece is at least a quarter full, if a lower-ranked split point makes that possible
_LONGEST_FENCE = 1_000
_LOOK_AHEAD = 2_000  # characters after the furthest end of a piece that can affect where it ends
_SEARCH_WINDOW = 2_000  # characters before the limit in which a paragraph, line or word end is searched
_ATTACHED_NOTICE = "✂ This reply has {length:,} characters. The attached file has the full text."
_OMITTED_NOTICE = "✂ This reply has {length:,} characters; the last {rest:,} were left out."


def is_split_point(text: str, index: int) -> bool:
    """Return whether a text may be split here, outside of combined characters, for example a flag."""
    if not 0 < index < len(text):
        return True
    before, after = text[index - 1], text[index]
    if after.isascii():
        return before != "\r" or after != "\n"
    if before == _JOINER or after == _JOINER or unicodedata.category(after) in _MARKS:
        return False
    if _is_modifier(after) or (_is_jamo(before) and _is_jamo(after)):
        return False
    return not (_is_flag_letter(after) and _count_flag_letters_before(text, index) % 2)


def find_links(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the start and end of each link in a part of a text, in order."""
    return [match.span() for match in _LINK.finditer(text, start, end)]


def _is_modifier(character: str) -> bool:
    """Return whether this changes the emoji before it: a skin tone or a tag of a regional flag."""
    return "\U0001f3fb" <= character <= "\U0001f3ff" or "\U000e0020" <= character <= "\U000e007f"


def _is_jamo(character: str) -> bool:
    return "\u1100" <= character <= "\u11ff"


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _count_flag_letters_before(text: str, index: int) -> int:
    first = index
    while first and _is_flag_letter(text[first - 1]):
        first -= 1
    return index - first


def split_text(text: str, limit: int, unit: Unit = "characters") -> Iterator[str]:
    """Yield pieces of at most ``limit`` units; only white space at the cuts is lost.

    A code block that is cut is closed, and reopened with its language in the next piece. Combined characters and links
    are not cut, unless one alone is longer than the limit. The time for a piece does not depend on the length of the
    text.
    """
    text = text.strip("\n").rstrip()
    position = _Position()
    while position.begin < len(text):
        piece, position = _cut_next_piece(text, position, limit, unit)
        if piece.strip():
            yield piece


class GrowingText:
    """Incremental splitter of a growing text; pieces that can no longer change are not split again."""

    def __init__(self, limit: int, unit: Unit = "characters") -> None:
        self._limit = limit
        self._unit = unit
        self._settled: list[str] = []
        self._prefix = ""
        self._position = _Position()

    def split_text(self, text: str) -> list[str]:
        """Return the pieces of the current text."""
        text = text.lstrip("\n")
        if not text.startswith(self._prefix):
            self._settled, self._prefix, self._position = [], "", _Position()
        whole, position, rest = text.rstrip(), self._position, []
        while position.begin < len(whole):
            can_change = position.begin + 2 * self._limit + _LOOK_AHEAD > len(whole)
            piece, position = _cut_next_piece(whole, position, self._limit, self._unit)
            if not can_change:
                self._settled += [piece] if piece.strip() else []
                self._position, self._prefix = position, whole[: position.begin]
            elif piece.strip():
                rest.append(piece)
        return [*self._settled, *rest]


def close_code_block(text: str) -> str:
    """Return a text with its last code block closed."""
    *_, last = _iterate_lines(text, _Position(), len(text), lambda fence: fence)
    return f"{text}\n{last.after.closing}" if last.after else text


def split_content(content: Content, abilities: PlatformCapabilities) -> list[Content]:
    """Return a message as several within the network's limits: pieces of text, then single files.

    The first piece is the reply to ``reply_to``; the buttons are below the last piece of text.
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
    """Return the length of a text in the network's unit."""
    if unit == "characters" or text.isascii():
        return len(text)
    return (
        len(text.encode("utf-16-le", "surrogatepass")) // 2 if unit == "utf16" else len(text.encode(errors="replace"))
    )


class _Fence(Struct, frozen=True):
    """Open code block: the line that opened it, and the marks that close it."""

    opening: str
    closing: str


class _Line(Struct, frozen=True):
    """Line of the text, with the code blocks open before and after it."""

    start: int
    end: int
    before: _Fence | None
    after: _Fence | None
    marks: str

    @property
    def opens(self) -> bool:
        return self.before is None and self.after is not None

    @property
    def closes(self) -> bool:
        return self.before is not None and self.after is None


class _Cut(Struct, frozen=True):
    """Cut between two pieces: ``end`` of one, ``begin`` of the next.

    ``fence`` is the code block that is cut or ends here; with ``reopens`` it continues in the next piece.
    """

    end: int
    begin: int
    fence: _Fence | None = None
    reopens: bool = True


class _Position(Struct, frozen=True):
    """Start of the next piece and of its line, with the code block open there; ``fence`` is reopened.

    ``marks`` are those that close the code block in which the line of ``begin`` starts.
    """

    begin: int = 0
    fence: _Fence | None = None
    line: int = 0
    before: _Fence | None = None
    marks: str = ""


def _cut_next_piece(text: str, position: _Position, limit: int, unit: Unit) -> tuple[str, _Position]:
    """Return the piece that begins at a position, and the position after it."""
    window = _Window(text, position, limit, unit)
    cut = window.find_next_cut()
    fence = position.fence
    opening = f"{fence.opening}\n" if fence else ""
    closing = f"\n{cut.fence.closing}" if cut.fence else ""
    piece = opening + text[position.begin : cut.end].rstrip() + closing
    return piece, window.find_position(cut)


class _Window:
    """Part of a text that determines where its next piece ends."""

    def __init__(self, text: str, position: _Position, limit: int, unit: Unit) -> None:
        self._limit = limit
        self._unit = unit
        self._start = position
        self._end = min(position.begin + 2 * limit + _LOOK_AHEAD, len(text))
        self._text = text
        self._lines = list(_iterate_lines(text, position, self._end, self._reopen_fence))
        self._starts = [line.start for line in self._lines]
        self._links = find_links(text, position.begin, self._end)
        self._link_starts = [start for start, _ in self._links]
        self._sizes = _measure_prefixes(text[position.begin : position.begin + limit + 1], unit)

    def find_position(self, cut: _Cut) -> _Position:
        """Return the position where the next piece begins."""
        line = self._find_line(cut.begin)
        fence = cut.fence if cut.reopens else None
        return _Position(cut.begin, fence, line.start, line.before, line.marks)

    def _reopen_fence(self, fence: _Fence) -> _Fence | None:
        """Return a code block for reopening: without a long language name, or ``None`` if it takes too much space."""
        if measure(fence.opening, self._unit) > self._limit // 4:
            fence = _Fence(fence.closing, fence.closing)
        marks = measure(f"{fence.opening}\n\n{fence.closing}", self._unit)
        return fence if marks <= self._limit // 2 else None

    def find_next_cut(self) -> _Cut:
        """Return where the piece ends."""
        begin, fence = self._start.begin, self._start.fence
        space = self._limit - (measure(f"{fence.opening}\n", self._unit) if fence else 0)
        if len(self._text) - begin < len(self._sizes) and self._sizes[-1] <= space:
            return _Cut(len(self._text), len(self._text))
        furthest = begin + bisect_right(self._sizes, space) - 1
        least = begin + (furthest - begin) // _MIN_FILL
        kinds: list[Callable[[int, int], Iterator[_Cut]]] = [
            self._find_paragraphs,
            self._find_line_ends,
            self._find_word_ends,
        ]
        for lowest in (least, begin):
            for kind in kinds:
                for cut in kind(lowest, furthest):
                    if self._fits(begin, cut, space):
                        return cut
        return self._cut_anywhere(begin, furthest, space)

    def _fits(self, begin: int, cut: _Cut, space: int) -> bool:
        closing = measure(f"\n{cut.fence.closing}", self._unit) if cut.fence else 0
        return begin < cut.end and self._sizes[cut.end - begin] + closing <= space

    def _find_paragraphs(self, lowest: int, furthest: int) -> Iterator[_Cut]:
        """Yield cuts at blank lines outside code, the last first."""
        found = list(_PARAGRAPH.finditer(self._text, lowest, min(furthest + self._limit, self._end)))
        for match in reversed(found):
            line = self._find_line(match.start())
            if match.start() <= furthest and line.after is None:
                begin = self._text.rfind("\n", match.start(), match.end()) + 1
                yield _Cut(match.start(), begin)

    def _find_line_ends(self, lowest: int, furthest: int) -> Iterator[_Cut]:
        """Yield cuts at line ends, the last first; not directly after the opening line of a code block."""
        for number in range(bisect_right(self._starts, furthest) - 1, -1, -1):
            line = self._lines[number]
            if line.end < lowest:
                return
            if line.end > furthest or line.opens or number + 1 == len(self._lines) or self._is_in_link(line.end):
                continue
            following = self._lines[number + 1]
            if following.closes:
                yield _Cut(line.end, min(following.end + 1, len(self._text)), line.after, reopens=False)
            else:
                yield _Cut(line.end, following.start, line.after)

    def _find_word_ends(self, lowest: int, furthest: int) -> Iterator[_Cut]:
        """Yield cuts at spaces between words, the last first."""
        for match in reversed(list(_WORD.finditer(self._text, lowest, min(furthest + 1, len(self._text))))):
            line = self._find_line(match.start())
            if match.start() > line.start and not self._is_in_link(match.start()) and not line.opens:
                fence = line.after
                yield _Cut(match.start(), match.start() if fence else match.end(), fence)

    def _cut_anywhere(self, begin: int, furthest: int, space: int) -> _Cut:
        """Return the last character boundary outside links, else inside a link, else between code points."""
        for is_allowed in (
            lambda index: is_split_point(self._text, index) and not self._is_in_link(index),
            self._is_split_point,
        ):
            for index in range(furthest, begin, -1):
                cut = _Cut(index, index, self._find_line(index).after)
                if is_allowed(index) and self._fits(begin, cut, space):
                    return cut
        index = max(furthest, begin + 1)
        return _Cut(index, index)

    def _is_split_point(self, index: int) -> bool:
        return is_split_point(self._text, index)

    def _find_line(self, index: int) -> _Line:
        return self._lines[bisect_right(self._starts, index) - 1]

    def _is_in_link(self, index: int) -> bool:
        number = bisect_right(self._link_starts, index - 1) - 1
        return number >= 0 and self._links[number][0] < index < self._links[number][1]


def _iterate_lines(
    text: str, position: _Position, end: int, reopen: Callable[[_Fence], _Fence | None]
) -> Iterator[_Line]:
    """Yield the lines from that of a position; the last one is cut at ``end``."""
    start, fence, marks = position.line, position.before, position.marks
    while start <= end:
        found_end = text.find("\n", max(start, position.begin), end)
        stop = end if found_end < 0 else found_end
        before, marks_before = fence, marks
        found = _FENCE.match(text[start : min(stop, start + _LONGEST_FENCE)])
        if found and not marks and "`" not in found[2]:
            marks = found[1]
            fence = reopen(_Fence(found[0].rstrip(), marks))
        elif found and marks and found[1].startswith(marks) and not found[2].strip():
            marks, fence = "", None
        yield _Line(start, stop, before, fence, marks_before)
        if found_end < 0:
            return
        start = stop + 1


def _measure_prefixes(text: str, unit: Unit) -> Sequence[int]:
    """Return the length of a text up to each of its characters."""
    if unit == "characters" or text.isascii():
        return range(len(text) + 1)
    if unit == "utf16":
        return [0, *accumulate(2 if character > "\uffff" else 1 for character in text)]
    return [0, *accumulate(map(_count_bytes, text))]


def _count_bytes(character: str) -> int:
    if character < "\x80" or "\ud800" <= character <= "\udfff":
        return 1
    return 2 if character < "\u0800" else 3 if character < "\U00010000" else 4


def shorten(content: Content, limit: int, file: Path | None) -> Content:
    """Return a message that is longer than ``limit`` characters, cut near that limit.

    The whole text is written to ``file``, which is ``None`` if the network takes no files. The same message always
    gives the same result.
    """
    text, length = _cut_text(content.text, limit), len(content.text)
    if file is None:
        notice = _OMITTED_NOTICE.format(length=length, rest=length - len(text))
        return structs.replace(content, text=f"{close_code_block(text)}\n\n{notice}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content.text, encoding="utf-8", errors="replace")
    whole = File(str(file), "reply.md", "text/markdown")
    notice = _ATTACHED_NOTICE.format(length=length)
    return structs.replace(content, text=f"{close_code_block(text)}\n\n{notice}", files=(*content.files, whole))


def _cut_text(text: str, limit: int) -> str:
    """Return the beginning of a text, cut at a paragraph, line or word end near the limit, if possible."""
    for border in ("\n\n", "\n", " "):
        end = text.rfind(border, limit - min(_SEARCH_WINDOW, limit // 2), limit)
        if end > 0:
            return text[:end].rstrip()
    return text[:limit]
